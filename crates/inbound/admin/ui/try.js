// Try: what would happen to a request now. Charges nothing.

import { bar, count, el, mode, put, span, table } from "./dom.js";
import { send } from "./api.js";
import { failed } from "./app.js";

const wait = (ms) => (ms === null ? "–" : ms < 1000 ? `${ms} ms` : span(Math.ceil(ms / 1000)));

export function tryIt(parts) {
  const given = parts[0] ? JSON.parse(parts[0]) : null;
  const result = el("div", { "aria-live": "polite" });
  const field = (name, label, node, hint) => el("div", { class: "field" }, el("label", { for: name }, label), node, hint && el("p", { class: "hint" }, hint));
  const line = el("input", { id: "line", value: "GET /", autocomplete: "off", spellcheck: "false" });
  const headers = el("textarea", { id: "headers", spellcheck: "false", placeholder: "X-User: alice\nHost: api.example.com" });
  const client = el("input", { id: "client", placeholder: "203.0.113.7", autocomplete: "off" });
  const domain = el("input", { id: "domain", value: given?.domain ?? "", autocomplete: "off", spellcheck: "false" });
  const descriptors = el("textarea", { id: "descriptors", spellcheck: "false", placeholder: "user=alice\nplan=free path=/orders" });
  if (given) descriptors.value = given.entries.map(([key, value]) => `${key}=${value}`).join("\n   ");
  const asRequest = el("div", {}, field("line", "Request line", line), field("headers", "Header fields", headers, "One in each line."), field("client", "Client address", client, "Behind which address the client is. May be empty."));
  const asDescriptors = el("div", {}, field("domain", "Domain", domain), field("descriptors", "Descriptors", descriptors, "One in each line: key=value pairs, in the order of the rules. A line that begins with a space adds to the one before."));
  const kinds = [["request", "HTTP request"], ["descriptors", "Descriptors"]].map(([kind, text]) => el("button", { type: "button", "data-kind": kind, onclick: () => choose(kind) }, text));
  const form = el("form", { class: "card", onsubmit: (event) => { event.preventDefault(); run(); } }, el("div", { class: "row" }, el("div", { class: "group", role: "group", "aria-label": "What to try" }, kinds)), asRequest, asDescriptors, el("div", { class: "actions" }, el("button", { type: "submit", class: "primary" }, "Try it")));
  const node = el("div", {}, el("h1", {}, "Try a request"), el("p", { class: "sub" }, "Route, descriptors, rules, what is left, and whether it would pass now. Nothing is charged and nothing is sent."), el("div", { class: "two" }, form, result));
  let kind;

  function choose(chosen) {
    kind = chosen;
    kinds.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.kind === chosen)));
    asRequest.hidden = chosen !== "request";
    asDescriptors.hidden = chosen === "request";
  }
  function body() {
    if (kind === "request") {
      const [method, path] = /^\s*([A-Za-z]+)\s+(\S+)/.exec(line.value)?.slice(1) ?? ["GET", line.value.trim()];
      const fields = headers.value.split("\n").filter((text) => text.includes(":")).map((text) => [text.slice(0, text.indexOf(":")).trim(), text.slice(text.indexOf(":") + 1).trim()]);
      return { request: { method, path, headers: fields, ...(client.value.trim() ? { client: client.value.trim() } : {}) } };
    }
    const list = [];
    for (const text of descriptors.value.split("\n").filter((text) => text.trim())) {
      const entries = text.trim().split(/\s+(?=[^\s=]+=)/).map((pair) => ({ key: pair.split("=")[0], value: pair.slice(pair.indexOf("=") + 1) }));
      if (/^\s/.test(text) && list.length) list.at(-1).push(...entries);
      else list.push(entries);
    }
    return { domain: domain.value.trim(), descriptors: list };
  }
  const levels = (found) => (found.levels ?? []).map((level) => `${level.key}=${level.value} ${level.matched ? `matches ${level.matched}` : "matches nothing"}`).join(", then ");

  function show(page) {
    const why = page.off ? "everything is switched off" : page.exempt ? "the route is exempt" : page.refused_by ? `refused by ${page.refused_by}` : "every limit has room";
    const facts = [["Route", page.route], ["Upstream", page.upstream], ["Domain", page.domain_known ? page.domain : `${page.domain} (has no rules)`], ["Category", page.category && (page.shed_now === "no" ? page.category : `${page.category} (${page.shed_now === "all" ? "shed now" : "partly shed now"})`)], ["Undecided", page.undecided], ["Rejected", page.fault && `${page.fault.status} ${page.fault.code}: ${page.fault.detail}`]].filter(([, value]) => value);
    put(result,
      el("div", { class: `verdict ${page.passes ? "good" : "bad"}` }, page.passes ? "✔ Would pass" : "✕ Would be refused", el("span", { class: "dim" }, why)),
      el("section", { class: "card" }, el("dl", { class: "pairs" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))), el("br"),
      page.descriptors.map((found) => [el("section", { class: "card" }, el("h2", {}, el("code", {}, found.entries.map(([key, value]) => `${key}=${value}`).join("  "))), el("p", { class: "hint" }, levels(found), found.ending && [el("br"), found.ending]),
        table("Limits", [["Limit", "name"], ["Role"], ["Left", "num"], ["Now"], ["Retry after", "num"]], found.limits.map((limit) => [[`${limit.rule}${limit.limit === "1" ? "" : ` · ${limit.limit}`}`, el("br"), el("span", { class: "dim" }, limit.terms)], mode(limit.role === "enforced" ? "enforce" : limit.role), [bar(limit.quota ? limit.remaining / limit.quota : 0, "left"), ` ${count(limit.remaining)} of ${count(limit.quota)}`], limit.passes ? el("span", { class: "pill good" }, "✔ passes") : el("span", { class: "pill bad" }, "✕ refuses"), limit.never ? "never" : wait(limit.retry_after_ms)]), "No limit applies to this descriptor.")), el("br")]),
      !page.descriptors.length && !page.fault && el("section", { class: "card" }, el("p", { class: "empty" }, "The request has no descriptors, so no rule limits it.")));
  }
  async function run() {
    try {
      show(await send("POST", "/api/try", body()));
    } catch (error) {
      put(result, failed(error));
    }
  }
  choose(given ? "descriptors" : "request");
  if (given) run();
  let first = !given;
  return { node, state(state) { if (first) { first = false; if (!state.gateway) choose("descriptors"); } } };
}
