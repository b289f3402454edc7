// Limits: all of them, sorted by the share that they refuse; one with its history, callers and switch.

import { bar, count, day, el, mode, percent, put, spark, table, tile } from "./dom.js";
import { download, get } from "./api.js";
import { chart } from "./chart.js";
import { failed } from "./app.js";
import { switchLimit } from "./switches.js";
import { finding } from "./findings.js";

const ORDERS = [["refused_share", "share refused"], ["refused", "refused"], ["hits", "hits"], ["name", "name"]];
const over = ({ refused, shadow }) => refused + shadow;
const hits = ({ admitted, refused, shadow }) => admitted + refused + shadow;

export function limits() {
  const search = el("input", { type: "search", placeholder: "Search: domain, rule, name", "aria-label": "Search limits", oninput: () => { clearTimeout(timer); timer = setTimeout(load, 200); } });
  const order = el("select", { "aria-label": "Sort by", onchange: load }, ORDERS.map(([value, text]) => el("option", { value }, `by ${text}`)));
  const list = el("section", { class: "card" });
  const node = el("div", {}, el("div", { class: "row" }, el("h1", { class: "grow" }, "Limits"), search, order, el("button", { type: "button", class: "small", onclick: () => download("/api/limits?format=csv", "limits.csv") }, "CSV")),
    el("p", { class: "sub" }, "Counts of the last hour; for limits that are rarely hit, of this hour and the one before."), list);
  let timer = 0;
  let pages = 1;
  let seconds = 0;
  let busy = false;

  function row(limit) {
    const { last_hour: hour } = limit;
    return [
      el("a", { href: `#/limits/${limit.id}` }, limit.rule, limit.limit !== "1" && ` · ${limit.limit}`),
      [limit.terms, el("br"), el("span", { class: "dim" }, limit.domain)],
      mode(limit.mode), count(hits(hour)), count(over(hour)),
      [bar(hits(hour) ? over(hour) / hits(hour) : 0), " ", percent(over(hour), hits(hour))],
      spark(limit.spark),
    ];
  }
  async function load(auto) {
    if (busy) return;
    busy = true;
    try {
      const rows = [];
      let after = 0, page;
      for (let read = 0; read < pages && after !== null; read += 1) {
        page = await get(`/api/limits?sort=${order.value}&find=${encodeURIComponent(search.value)}&after=${after}`);
        rows.push(...page.limits);
        after = page.next;
      }
      // What has the focus stays.
      if (auto === true && list.contains(document.activeElement)) { busy = false; return; }
      put(list, table("Limits", [["Rule", "name"], ["Allows"], ["Mode"], ["Hits", "num"], ["Over", "num"], ["Share over", "num wide"], ["Last hour", "wide"]], rows.map(row), search.value ? "No limit has this in its name." : "There are no limits."),
        after !== null && el("div", { class: "actions" }, el("button", { type: "button", onclick: () => { pages += 1; load(); } }, `Show more (${page.total - rows.length})`)),
        page.summed > 0 && el("p", { class: "hint" }, `${page.summed} limits are beyond debug.history.budget and have no history of their own.`));
    } catch (error) {
      put(list, failed(error, load));
    }
    busy = false;
  }
  load();
  return { node, state() { seconds += 1; if (seconds % 5 === 0) load(true); }, change: load };
}

function demand(summary) {
  const { peaks } = summary;
  return el("section", { class: "card" }, el("h2", {}, "Demand of callers"), el("p", { class: "hint" }, `About ${count(summary.callers)} callers, ${count(summary.sampled)} sampled. The most that a caller asked for in one period:`),
    el("div", { class: "tiles" }, [["p50", "half of them, at most"], ["p90", "90 %"], ["p99", "99 %"], ["p999", "99.9 %"], ["max", "all"]].map(([name, text]) => tile(text, count(peaks[name])))));
}

export function limit(id) {
  const history = chart("Hits in ten seconds", [{ label: "admitted", color: 1, fill: true }, { label: "refused", color: 2 }, { label: "over in shadow", color: 3, dash: 1 }], { format: count });
  const head = el("div"), days = el("section", { class: "card" }), callers = el("section", { class: "card" }), found = el("div");
  const node = el("div", {}, el("p", {}, el("a", { href: "#/limits" }, "← All limits")), head, el("div", { class: "grid" }, history.card, days), found, el("br"), callers);
  let seconds = 0;

  async function load() {
    try {
      const page = await get(`/api/limits/${id}`);
      const { last_hour: hour, today, history: past } = page;
      put(head, el("div", { class: "row" }, el("h1", { class: "grow" }, page.rule, page.limit !== "1" && ` · ${page.limit}`), mode(page.mode), page.mode !== page.written && el("span", { class: "dim" }, `file: ${page.written}`),
        el("button", { type: "button", onclick: async () => { if (await switchLimit(page)) load(); } }, "Switch…")),
        el("p", { class: "sub" }, page.terms, " · domain ", page.domain, past && ` · known since ${day(past.first_seen_ms)}`, past?.shadow_since_ms && ` · in shadow since ${day(past.shadow_since_ms)}`),
        el("div", { class: "tiles" }, tile("hits", count(hits(hour)), "last hour"), tile("refused", count(hour.refused), percent(hour.refused, hits(hour)), hour.refused ? "bad" : ""), tile("in shadow", count(hour.shadow), percent(hour.shadow, hits(hour)), hour.shadow ? "shadow" : ""), tile("near the limit", count(hour.near), percent(hour.near, hits(hour))), tile("refused", count(today.refused), "today (UTC)")));
      history.set(past ? [past.times, past.admitted, past.refused, past.shadow] : [[], [], [], []]);
      const rows = (past?.days ?? []).map((counts, back) => [back ? new Date(Date.now() - back * 864e5).toISOString().slice(0, 10) : "today", count(hits(counts)), count(counts.refused), count(counts.shadow), [bar(hits(counts) ? over(counts) / hits(counts) : 0), " ", percent(over(counts), hits(counts))]]).filter((_, back) => back === 0 || hits(past.days[back]));
      put(days, el("h2", {}, "Days (UTC)"), table("Days", [["Day"], ["Hits", "num"], ["Refused", "num"], ["Shadow", "num"], ["Share over", "num"]], rows));
      put(found, (page.findings ?? []).map((one) => [el("br"), finding(one)]), page.demand && [el("br"), demand(page.demand)]);
      put(callers, el("h2", {}, "Most refused callers of this limit"), table("Callers", [["Caller", "name"], ["Refusals", "num"], ["Action"]], page.callers.map((one) => [el("code", {}, one.caller), [count(one.refusals), one.error ? el("span", { class: "dim" }, ` ±${count(one.error)}`) : ""], one.entries && el("a", { class: "button small", href: `#/try/${encodeURIComponent(JSON.stringify({ domain: one.domain, entries: one.entries }))}` }, "What is left")]), "No caller of this limit is among the most refused."));
    } catch (error) {
      put(head, failed(error, load));
    }
  }
  load();
  return { node, state() { seconds += 1; if (seconds % 5 === 0 && !callers.contains(document.activeElement)) load(); }, redraw: history.redraw, end: history.end };
}
