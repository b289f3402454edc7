// Switches: everything, limiters, limits. Each change asks for a reason and how long; the file's mode is beside it.

import { clock, el, mode, put, span, table } from "./dom.js";
import { get, send } from "./api.js";
import { ask, failed } from "./app.js";

const LENGTHS = [["900", "for 15 minutes"], ["3600", "for an hour"], ["28800", "for 8 hours"], ["", "until it is switched again"]];
const REASON = { name: "reason", label: "Why", type: "text", maxlength: 300, required: true, autocomplete: "off", hint: "It is logged and shown under Changes." };
const LENGTH = { name: "length", label: "How long", options: LENGTHS, value: "3600" };
const MODES = [["enforce", "enforce"], ["enforce 10%", "enforce for 10 % of callers"], ["enforce 50%", "enforce for 50 % of callers"], ["shadow", "shadow: count, refuse nobody"], ["off", "off: neither count nor refuse"]];

const withLength = (body, values) => ({ ...body, reason: values.reason, ...(values.length ? { for_seconds: Number(values.length) } : {}) });

async function attempt(action) {
  try {
    await action();
    return true;
  } catch (problem) {
    await ask(`Not changed: ${problem.message}`, [], "Close");
    return false;
  }
}

export async function switchLimit(limit) {
  const name = `${limit.rule}${limit.limit === "1" ? "" : ` · ${limit.limit}`}`;
  const values = await ask(`Switch ${name}`, [{ name: "mode", label: `Mode (file: ${limit.written})`, options: [...MODES, ["", "as the rule file says"]], value: limit.mode }, LENGTH, REASON], "Switch");
  if (!values) return false;
  const target = { domain: limit.domain, path: limit.rule, limit: limit.limit };
  if (!values.mode) return attempt(() => send("DELETE", "/switches/limit", { ...target, reason: values.reason }));
  const [word, share] = values.mode.split(" ");
  const body = { ...target, mode: word, ...(share ? { enforce_percent: parseInt(share, 10) } : {}) };
  return attempt(() => send("PUT", "/switches/limit", withLength(body, values)));
}

export function switches() {
  const body = el("div");
  const node = el("div", {}, el("h1", {}, "Switches"), el("p", { class: "sub" }, "Changes at run time. Files stay as they are; a switch with a duration ends by itself."), body);
  let state = null;
  let shown = "";

  async function kill(off) {
    const fields = off ? [LENGTH, REASON] : [REASON];
    const values = await ask(off ? "Switch everything off: every request passes" : "Switch everything on again", fields, off ? "Switch off" : "Switch on", off);
    if (values) await attempt(() => send("PUT", "/switches/kill", withLength({ off }, off ? values : { reason: values.reason })));
    load(true);
  }
  async function limiter(one) {
    const values = await ask(`Switch the limiter ${one.name}`, [{ name: "mode", label: `Mode (configured: ${one.configured})`, options: MODES, value: one.mode }, LENGTH, REASON], "Switch");
    if (values) await attempt(() => send("PUT", "/switches/limiter", withLength({ limiter: one.name, mode: values.mode }, values)));
    load(true);
  }
  async function restore(path, target) {
    const values = await ask("As the file says again", [REASON], "Restore");
    if (values) await attempt(() => send("DELETE", path, { ...target, reason: values.reason }));
    load(true);
  }

  async function load(force) {
    try {
      const [page, current] = [await get("/switches"), state ?? (await get("/api/state"))];
      const fresh = force ? await get("/api/state") : current;
      const key = JSON.stringify([page, fresh.limiters, fresh.off]);
      // What has the focus stays.
      if (!force && (key === shown || body.contains(document.activeElement))) return;
      shown = key;
      const limiters = fresh.limiters.map((one) => [one.name, mode(one.mode), one.configured, one.ends_in_s ? `in ${span(one.ends_in_s)}` : "–", [el("button", { type: "button", class: "small", "aria-label": `Switch ${one.name}`, onclick: () => limiter(one) }, "Switch…"), " ", one.mode !== one.configured && el("button", { type: "button", class: "small", "aria-label": `Restore ${one.name}`, onclick: () => restore("/switches/limiter", { limiter: one.name }) }, "Restore")]]);
      const limits = page.limits.map((one) => [`${one.rule ?? one.path} · ${one.limit}`, one.domain, mode(one.mode === "enforce" && one.enforce_percent < 100 ? `enforce ${one.enforce_percent}%` : one.mode), one.written.mode, one.ends_in ? `in ${span(one.ends_in)}` : "–", el("button", { type: "button", class: "small", "aria-label": `Restore ${one.path} ${one.limit}`, onclick: () => restore("/switches/limit", { domain: one.domain, path: one.path, limit: one.limit }) }, "Restore")]);
      put(body,
        el("section", { class: "card kill" }, el("div", { class: "row" }, el("div", { class: "grow" }, el("h2", {}, "Everything"), page.off ? el("span", { class: "pill bad" }, "✕ off: every request passes") : el("span", { class: "pill good" }, "✔ on"), page.ends_in.off ? ` ends in ${span(page.ends_in.off)}` : ""), page.off ? el("button", { type: "button", class: "primary", onclick: () => kill(false) }, "Switch on…") : el("button", { type: "button", class: "danger", onclick: () => kill(true) }, "Switch off…"))), el("br"),
        el("section", { class: "card" }, el("h2", {}, "Limiters"), table("Limiters", [["Limiter"], ["Runs"], ["File", "wide"], ["Ends"], ["Action"]], limiters)), el("br"),
        el("section", { class: "card" }, el("div", { class: "card-head" }, el("h2", {}, "Limits that are switched"), el("a", { href: "#/limits" }, "Switch another")), table("Limits that are switched", [["Limit", "name"], ["Domain", "wide"], ["Runs"], ["File", "wide"], ["Ends"], ["Action"]], limits, "All limits are as their files say.")));
    } catch (error) {
      put(body, failed(error, () => load(true)));
    }
  }
  load(true);
  let seconds = 0;
  return { node, state(current) { state = current; seconds += 1; if (seconds % 3 === 0 && !body.contains(document.activeElement)) load(); }, change: () => load(true) };
}
