// Builds elements without HTML texts: values of callers are only ever text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const put = (node, ...children) => { node.replaceChildren(); return fill(node, {}, children); };

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : value >= 1e5 ? short.format(value) : whole.format(value));
export const rate = (value) => (value === null || value === undefined ? "–" : value > 0 && value < 10 ? value.toFixed(1) : count(value));
export const percent = (part, all) => (all > 0 ? `${((100 * part) / all).toFixed(part > 0 && part < all / 100 ? 2 : 1)} %` : "–");
export const micros = (value) => (!value ? "–" : value >= 1e6 ? "≥ 1 s" : value >= 1000 ? `≤ ${value / 1000} ms` : `≤ ${value} µs`);

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].filter(([length]) => seconds >= length);
  if (!parts.length) return "0 s";
  const [length, unit] = parts[0];
  const rest = parts[1] ? Math.floor((seconds % length) / parts[1][0]) : 0;
  return `${Math.floor(seconds / length)} ${unit}${rest ? ` ${rest} ${parts[1][1]}` : ""}`;
}

export const clock = (ms) => (ms ? new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }) : "–");
export const day = (ms) => (ms ? new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false }) : "–");

// A mode is a word and a shape, never a colour alone.
export function mode(text) {
  const kind = text.startsWith("enforce") || text === "running" ? ["good", "✔ "] : text.startsWith("shadow") ? ["shadow", "◌ "] : ["warn", "✕ "];
  return el("span", { class: `pill ${kind[0]}` }, kind[1], text);
}

export function answer(text) {
  const kinds = { refused: ["bad", "✕ "], shadow: ["shadow", "◌ "], undecided: ["warn", "? "], admitted: ["good", "✔ "] };
  const [kind, mark] = kinds[text] ?? ["", ""];
  return el("span", { class: `pill ${kind}` }, mark, text);
}

export function tile(name, value, note, kind) {
  return el("div", { class: `tile ${kind ?? ""}` }, el("span", { class: "name" }, name), el("span", { class: "value" }, value), note && el("span", { class: "note" }, note));
}

export function table(caption, columns, rows, none) {
  if (!rows.length) return el("p", { class: "empty" }, none ?? "Nothing yet.");
  const head = columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, index) => el("td", { class: columns[index][1] }, cell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export function bar(share, kind) {
  const fillBar = el("i");
  fillBar.style.width = `${Math.round(100 * Math.min(1, Math.max(0, share)))}%`;
  return el("span", { class: `bar ${kind ?? ""}`, "aria-hidden": "true" }, fillBar);
}

export function spark(points) {
  if (!points.length) return el("span", { class: "dim" }, "–");
  const top = Math.max(1, ...points);
  const at = (value, index) => `${((120 * index) / (points.length - 1 || 1)).toFixed(1)},${(26 - (24 * value) / top).toFixed(1)}`;
  const line = points.map(at).join("L");
  const label = `over the limit in the last hour, at most ${count(Math.max(...points))} in two minutes`;
  return svg("svg", { class: "spark", viewBox: "0 0 120 28", role: "img", "aria-label": label }, svg("path", { class: "area", d: `M0,28L${line}L120,28Z` }), svg("path", { d: `M${line}` }));
}
