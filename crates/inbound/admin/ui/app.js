// The frame: views by address, the stream of events, the token, the colours.

import { el, put, span } from "./dom.js";
import { Problem, events, setToken, takeTokenFromAddress, token } from "./api.js";
import { now } from "./now.js";
import { limits, limit } from "./limits.js";
import { callers } from "./callers.js";
import { findings } from "./findings.js";
import { gateway } from "./gateway.js";
import { switches } from "./switches.js";
import { changes } from "./changes.js";
import { tail } from "./tail.js";
import { tryIt } from "./try.js";

const VIEWS = [
  ["now", "Now", now],
  ["limits", "Limits", limits],
  ["callers", "Callers", callers],
  ["findings", "Findings", findings],
  ["gateway", "Gateway", gateway],
  ["switches", "Switches", switches],
  ["changes", "Changes", changes],
  ["tail", "Tail", tail],
  ["try", "Try", tryIt],
];
const $ = (id) => document.getElementById(id);
let view = null;
let state = null;
let stream = null;
let watched = null;
let lastId;

// The dialog: resolves with the form's values, or null.
export function ask(title, fields, action, danger) {
  const dialog = $("dialog");
  return new Promise((resolve) => {
    const done = (values) => { dialog.close(); resolve(values); };
    const inputs = fields.map((field) => {
      const { name, label, hint, options, ...rest } = field;
      const input = options
        ? el("select", { id: `f-${name}`, name }, options.map(([value, text]) => el("option", { value, selected: value === rest.value }, text)))
        : el("input", { id: `f-${name}`, name, ...rest });
      return el("div", { class: "field" }, el("label", { for: `f-${name}` }, label), input, hint && el("p", { class: "hint" }, hint));
    });
    const form = el("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); done(Object.fromEntries(new FormData(form))); } },
      inputs,
      el("div", { class: "actions" },
        el("button", { type: "button", onclick: () => done(null) }, "Cancel"),
        el("button", { type: "submit", class: danger ? "danger" : "primary" }, action)));
    put(dialog, el("h2", { id: "dialog-title" }, title), form);
    dialog.oncancel = () => resolve(null);
    dialog.showModal();
  });
}

export function failed(problem, retry) {
  const needsToken = problem instanceof Problem && problem.status === 401;
  return el("div", { class: "error", role: "alert" }, needsToken ? "This page needs an access token with the role read. " : `${problem.message}. `,
    needsToken && el("button", { type: "button", class: "small", onclick: askToken }, "Enter a token"),
    retry && !needsToken && el("button", { type: "button", class: "small", onclick: retry }, "Try again"));
}

async function askToken() {
  const values = await ask("Access token", [{ name: "token", label: "Token", type: "password", autocomplete: "off", value: token(), hint: "It stays in this tab. Leave it empty to forget it." }], "Use");
  if (!values) return;
  setToken(values.token.trim());
  watched = null;
  open();
}

function open() {
  const [name, ...rest] = (location.hash.replace(/^#\/?/, "") || "now").split("/");
  const [found, title, make] = VIEWS.find(([known]) => known === name) ?? VIEWS[0];
  view?.end?.();
  for (const link of $("nav").children) {
    if (link.dataset.view === found) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Tidegate`;
  const parts = rest.map(decodeURIComponent);
  view = found === "limits" && parts[0] ? limit(parts[0]) : make(parts);
  put($("main"), view.node);
  if (state) view.state?.(state);
  // Verdicts cost something, so that they are asked for only while they are shown.
  if (Boolean(view.verdict) !== watched) connect();
}

function showState(data) {
  state = data;
  const banner = $("banner");
  const warnings = [];
  if (data.off) warnings.push("✕ Everything is switched off: every request passes");
  if (data.rules.stale) warnings.push("▲ The latest rules are wrong; older ones are in place");
  if (data.store?.unavailable) warnings.push(`▲ The store is not available: ${data.store.unavailable}`);
  if (data.overload?.fleet.fallback) warnings.push("▲ The fleet's lease has expired; this node uses its safe share");
  if (data.control?.problem) warnings.push(`▲ Control plane: ${data.control.problem}`);
  const text = warnings.join(" · ");
  if (banner.textContent !== text) banner.textContent = text;
  banner.hidden = !text;
  put($("foot"), `Tidegate ${data.version} · up ${span(data.uptime_s)} · rules ${data.rules.version.slice(0, 8)}, ${data.rules.limits} limits · store ${data.store?.kind ?? "memory"}${data.control ? ` · control version ${data.control.version}, ${span(data.control.age_s)} old` : ""}`);
  view?.state?.(data);
}

function link(text, lost) {
  const node = $("link");
  if (node.textContent !== text) node.textContent = text;
  node.classList.toggle("lost", Boolean(lost));
}

async function connect() {
  stream?.abort();
  const own = (stream = new AbortController());
  watched = Boolean(view?.verdict);
  const kinds = watched ? "state,changes,verdicts" : "state,changes";
  while (!own.signal.aborted) {
    try {
      await events(kinds, (kind, data, id) => {
        link("live");
        if (id) lastId = id;
        if (kind === "state") showState(data);
        else if (kind === "change") view?.change?.(data);
        else if (kind === "verdict") view?.verdict?.(data);
      }, own.signal, lastId);
      link("reconnecting", true);
    } catch (problem) {
      if (own.signal.aborted) return;
      link(problem.status === 401 ? "needs a token" : problem.status === 503 ? "too many pages" : "no connection", true);
      if (problem.status === 401 || problem.status === 403) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

const THEMES = { system: "as the system", light: "light", dark: "dark" };
const dark = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const choice = localStorage.getItem("tidegate-theme") ?? "system";
  document.documentElement.dataset.theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  $("theme").setAttribute("aria-label", `Colours: ${THEMES[choice]}`);
  $("theme").textContent = { system: "◐", light: "☀", dark: "☾" }[choice];
  view?.redraw?.();
}
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(localStorage.getItem("tidegate-theme") ?? "system") + 1) % names.length];
  localStorage.setItem("tidegate-theme", next);
  applyTheme();
});
dark.addEventListener("change", applyTheme);
$("token").addEventListener("click", askToken);
addEventListener("hashchange", () => { open(); $("main").focus({ preventScroll: true }); scrollTo(0, 0); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
// A number opens a view, a slash the search.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const index = Number(event.key) - 1;
  if (VIEWS[index]) location.hash = `#/${VIEWS[index][0]}`;
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
});
addEventListener("pagehide", () => stream?.abort());
addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

put($("nav"), VIEWS.map(([name, title], index) => el("a", { href: `#/${name}`, "data-view": name, title: `Key ${index + 1}` }, title)));
takeTokenFromAddress();
applyTheme();
open();
