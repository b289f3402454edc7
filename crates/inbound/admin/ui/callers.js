// Callers: who is refused most, by what, and what each has left.

import { bar, clock, count, el, put, table } from "./dom.js";
import { download, get } from "./api.js";
import { failed } from "./app.js";

export function callers() {
  const search = el("input", { type: "search", placeholder: "Search: caller, rule", "aria-label": "Search callers", oninput: () => { clearTimeout(timer); timer = setTimeout(load, 200); } });
  const list = el("section", { class: "card" });
  const since = el("p", { class: "sub" });
  const node = el("div", {}, el("div", { class: "row" }, el("h1", { class: "grow" }, "Most refused callers"), search, el("button", { type: "button", class: "small", onclick: () => download("/api/callers?format=csv", "callers.csv") }, "CSV")), since, list);
  let timer = 0;
  let seconds = 0;

  function row(one) {
    const link = one.entries && el("a", { class: "button small", href: `#/try/${encodeURIComponent(JSON.stringify({ domain: one.domain, entries: one.entries }))}` }, "Try");
    const left = one.remaining === null ? "–" : [bar(one.quota ? one.remaining / one.quota : 0, "left"), ` ${count(one.remaining)} of ${count(one.quota)}`];
    return [el("code", {}, one.caller), [one.rule, one.limit !== "1" && ` · ${one.limit}`, el("br"), el("span", { class: "dim" }, one.domain)], [count(one.refusals), one.error ? el("span", { class: "dim" }, ` ±${count(one.error)}`) : ""], one.shadow ? el("span", { class: "pill shadow" }, "◌ shadow: passed") : el("span", { class: "pill bad" }, "✕ refused"), left, link];
  }
  async function load(auto) {
    try {
      const page = await get(`/api/callers?find=${encodeURIComponent(search.value)}`);
      // What has the focus stays.
      if (auto === true && list.contains(document.activeElement)) return;
      put(since, page.since_ms ? `Refusals by limits since ${clock(page.since_ms)}. Nothing is charged by looking.` : "");
      put(list, table("Callers", [["Caller", "name"], ["Limit"], ["Refusals", "num"], ["Answer", "wide"], ["Left now", "num"], ["Action"]], page.callers.map(row), "No caller was refused by a limit."));
    } catch (error) {
      put(list, failed(error, load));
    }
  }
  load();
  return { node, state() { seconds += 1; if (seconds % 5 === 0) load(true); } };
}
