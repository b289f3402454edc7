// Tail: refusals as they happen.

import { answer, clock, count, el, put, table } from "./dom.js";

const ROWS = 100;

export function tail() {
  let rows = [];
  let paused = false;
  let timer = 0;
  const list = el("section", { class: "card" });
  const note = el("p", { class: "sub" });
  const button = el("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; button.setAttribute("aria-pressed", String(paused)); button.textContent = paused ? "Go on" : "Pause"; draw(); } }, "Pause");
  const node = el("div", {}, el("div", { class: "row" }, el("h1", { class: "grow" }, "Tail of refusals"), button, el("button", { type: "button", onclick: () => { rows = []; draw(); } }, "Clear")), note, list);

  function draw() {
    put(list, table("Verdicts", [["Time"], ["Answer"], ["Caller", "name"], ["Rule", "name"], ["Limit"], ["Left", "num"]], rows.map((one) => [clock(one.at_ms), answer(one.answer), el("code", {}, one.caller), [one.rule, el("br"), el("span", { class: "dim" }, one.domain)], one.limit, count(one.remaining)]), "No refusals since this page was opened."));
  }
  draw();
  return {
    node,
    state(state) {
      const text = state.tail === "off" ? "The setting debug.tail is off." : state.tail === "all" ? "All verdicts, up to 50 a second." : "Refusals, and what limits in shadow mode would have refused; up to 50 a second.";
      if (note.textContent !== text) note.textContent = text;
    },
    verdict(one) {
      if (paused) return;
      rows = [one, ...rows].slice(0, ROWS);
      timer ||= setTimeout(() => { timer = 0; draw(); }, 250);
    },
    end: () => clearTimeout(timer),
  };
}
