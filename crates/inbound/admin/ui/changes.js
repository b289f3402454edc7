// Changes: who changed what, when and why; undo.

import { clock, day, el, put, table } from "./dom.js";
import { download, get, send } from "./api.js";
import { ask, failed } from "./app.js";

export function changes() {
  const list = el("section", { class: "card" });
  const node = el("div", {}, el("div", { class: "row" }, el("h1", { class: "grow" }, "Changes"), el("button", { type: "button", class: "small", onclick: () => download("/api/changes?format=csv", "changes.csv") }, "CSV")), el("p", { class: "sub" }, "The last 1,000 changes at run time, newest first. Switches end with the process; debug.changes_file keeps the list."), list);

  async function undo(change) {
    const values = await ask(`Undo: ${change.what}`, [{ name: "reason", label: "Why", type: "text", maxlength: 300, value: `undo of change ${change.id}`, autocomplete: "off" }], "Undo");
    if (!values) return;
    try {
      await send(change.undo.method, change.undo.path, { ...change.undo.body, reason: values.reason });
    } catch (problem) {
      await ask(`Not changed: ${problem.message}`, [], "Close");
    }
    load();
  }
  const row = (change) => [
    [day(change.at_ms)],
    [change.what, change.before_start && el("span", { class: "dim" }, " (before the last start)"), change.reason && [el("br"), el("span", { class: "dim" }, "“", change.reason, "”")]],
    change.after && [change.before, " → ", el("strong", {}, change.after)],
    change.until_ms ? clock(change.until_ms) : "–",
    [change.by ?? el("span", { class: "dim" }, change.peer ? "no token" : "by itself"), el("br"), el("span", { class: "dim" }, change.peer ?? "")],
    change.undo && el("button", { type: "button", class: "small", "aria-label": `Undo change ${change.id}`, onclick: () => undo(change) }, "Undo…"),
  ];
  async function load() {
    try {
      const page = await get("/api/changes");
      put(list, table("Changes", [["When"], ["What", "name"], ["Mode"], ["Until"], ["Who"], ["Action"]], page.changes.map(row), "Nothing was changed at run time."));
    } catch (error) {
      put(list, failed(error, load));
    }
  }
  load();
  return { node, change: load };
}
