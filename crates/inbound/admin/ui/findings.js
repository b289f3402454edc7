// Findings: what traffic says about the rules, with evidence and a suggested change.

import { el, put, span } from "./dom.js";
import { get } from "./api.js";
import { failed } from "./app.js";

const GOOD = ["one_abuser", "ready"];
const figure = ({ name, value, unit }) => [name.replaceAll("_", " "), unit === "share" ? `${(100 * value).toFixed(1)} %` : unit === "seconds" ? span(Math.round(value)) : new Intl.NumberFormat("en", { maximumFractionDigits: 1 }).format(value)];

export function finding(found) {
  const { limit } = found;
  return el("article", { class: "card" },
    el("div", { class: "row" }, el("span", { class: `pill ${GOOD.includes(found.kind) ? "good" : "warn"}` }, GOOD.includes(found.kind) ? "✔ " : "▲ ", found.kind.replaceAll("_", " ")), el("strong", { class: "grow" }, limit.rule, limit.limit !== "1" && ` · ${limit.limit}`, " ", el("span", { class: "dim" }, limit.domain)), el("span", { class: "dim" }, `confidence: ${found.confidence}`)),
    el("p", {}, found.summary),
    el("dl", { class: "pairs" }, found.figures.map(figure).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("h3", {}, "Suggestion"), el("p", {}, found.suggestion.text),
    found.suggestion.diff && el("pre", { class: "mono scroll", tabindex: "0", role: "region", "aria-label": "Suggested change" }, found.suggestion.diff),
    found.replay && el("p", { class: "hint" }, "Try it on recorded traffic: ", el("code", {}, found.replay)));
}

export function findings() {
  const body = el("div");
  const node = el("div", {}, el("h1", {}, "Findings"), el("p", { class: "sub" }, "What the last days of traffic say about the rules. A suggestion never enforces anything by itself."), body);
  async function load() {
    try {
      const page = await get("/api/findings");
      const enough = page.seconds >= page.minimum.seconds;
      put(body, !enough && el("p", { class: "card" }, `Most findings need ${span(page.minimum.seconds)} of history and ${page.minimum.hits} hits; there are ${span(page.seconds)}. The setting debug.history.file keeps it over restarts.`), !enough && el("br"),
        page.findings.length ? page.findings.map((found) => [finding(found), el("br")]) : el("section", { class: "card" }, el("p", { class: "empty" }, `No findings about ${page.limits} limits.`)));
    } catch (error) {
      put(body, failed(error, load));
    }
  }
  load();
  return { node };
}
