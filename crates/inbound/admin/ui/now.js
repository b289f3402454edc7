// Now: what the service does at this moment, and the last quarter of an hour or six hours.

import { count, el, micros, mode, put, rate, span, table, tile } from "./dom.js";
import { get } from "./api.js";
import { chart } from "./chart.js";
import { failed } from "./app.js";

const NAMES = ["admitted", "refused", "shadow", "undecided", "shed_test", "shed_get", "shed_post", "shed_critical", "latency_p50_us", "latency_p99_us", "gate_in_flight", "gate_queued", "gate_limit", "worker_utilization_permille", "worker_admitted_permille", "fleet_used", "fleet_grant"];
const SPANS = { "15 min": [900, 1], "1 h": [3600, 10], "6 h": [21600, 60] };

export function now() {
  const charts = {
    answers: chart("Answers per second", [{ label: "admitted", color: 1, fill: true }, { label: "refused", color: 2 }, { label: "would be refused (shadow)", color: 3, dash: 1 }, { label: "undecided", color: 4, dash: 2 }]),
    latency: chart("Time of a decision", [{ label: "median", color: 5 }, { label: "99 of 100", color: 4, dash: 1 }], { note: "upper bounds", format: micros, axis: (value) => micros(value).replace("≤ ", ""), least: 10 }),
    shed: chart("Shed per second, by category", [{ label: "test", color: 5, dash: 2 }, { label: "get", color: 4, dash: 1 }, { label: "post", color: 3 }, { label: "critical", color: 2 }]),
    gate: chart("Gate", [{ label: "in flight", color: 5, fill: true }, { label: "queued", color: 2, dash: 1 }, { label: "limit", color: 4, dash: 2 }], { format: count }),
    worker: chart("Worker", [{ label: "utilization", color: 5 }, { label: "admitted", color: 1, dash: 1 }], { format: (value) => (value === null ? "–" : `${Math.round(value / 10)} %`), least: 1000 }),
    fleet: chart("Fleet", [{ label: "used", color: 5, fill: true }, { label: "granted to this node", color: 4, dash: 1 }], { format: count }),
  };
  const overloadCharts = ["shed", "gate", "worker", "fleet"];
  const tiles = el("div", { class: "tiles" });
  const problem = el("div");
  const limiters = el("section", { class: "card" });
  const nodes = el("section", { class: "card wide-card", hidden: true });
  const queues = el("section", { class: "card wide-card", hidden: true });
  const spans = Object.keys(SPANS).map((name, index) => el("button", { type: "button", "aria-pressed": String(index === 0), onclick: () => choose(name) }, name));
  const grid = el("div", { class: "grid" }, Object.values(charts).map(({ card }) => card), limiters, queues, nodes);
  overloadCharts.forEach((name) => { charts[name].card.hidden = true; });
  const node = el("div", {}, el("div", { class: "row" }, el("h1", { class: "grow" }, "Now"), el("div", { class: "group", role: "group", "aria-label": "Span" }, spans)), problem, tiles, grid);

  let chosen = "15 min";
  let data = null;
  let busy = false;
  let shown = "";

  async function load() {
    if (busy) return;
    busy = true;
    try {
      const [length, step] = SPANS[chosen];
      const page = await get(`/api/series?names=${NAMES}&step=${step}&since=${Math.floor(Date.now() / 1000) - length}`);
      const column = (name) => page.values[page.names.indexOf(name)] ?? page.times.map(() => null);
      data = (...names) => [page.times, ...names.map(column)];
      charts.answers.set(data("admitted", "refused", "shadow", "undecided"));
      charts.latency.set(data("latency_p50_us", "latency_p99_us").map((values, index) => (index ? values.map((value) => value || null) : values)));
      charts.shed.set(data("shed_test", "shed_get", "shed_post", "shed_critical"));
      charts.gate.set(data("gate_in_flight", "gate_queued", "gate_limit"));
      charts.worker.set(data("worker_utilization_permille", "worker_admitted_permille"));
      charts.fleet.set(data("fleet_used", "fleet_grant"));
      put(problem);
    } catch (error) {
      put(problem, failed(error, load));
    }
    busy = false;
  }
  function nodeRow(one, usual) {
    const { rates, overload } = one;
    const version = one.rules.version;
    const notes = [one.off && "everything off", version !== usual && `other rules ${version.slice(0, 8)}`, one.store?.unavailable, ...(one.limiters ?? []).map((limiter) => `${limiter.name} ${limiter.mode}`)].filter(Boolean);
    const state = notes.length ? notes.map((note) => [el("span", { class: "pill warn" }, "▲ ", note), " "]) : el("span", { class: "pill good" }, `✔ rules ${version.slice(0, 8)}`);
    return [one.name, rate(rates.admitted), rate(rates.refused), rate(rates.shed), overload ? `${overload.gate.in_flight} / ${overload.gate.limit}` : "–", state];
  }
  async function loadNodes() {
    const page = await get("/api/fleet").catch(() => ({ nodes: [] }));
    nodes.hidden = page.nodes.length < 2 && !page.problem;
    const { rates } = page;
    put(nodes, el("h2", {}, "Nodes of the fleet"), page.problem && el("p", { class: "error" }, "The other nodes cannot be read: ", page.problem),
      rates && table("Nodes", [["Node", "name"], ["Admitted/s", "num"], ["Refused/s", "num"], ["Shed/s", "num"], ["Gate", "num"], ["State"]], [...page.nodes.map((one) => nodeRow(one, page.rules_version)), [el("strong", {}, `all ${page.nodes.length}`), rate(rates.admitted), rate(rates.refused), rate(rates.shed), "", ""]]));
  }
  function showQueues(list) {
    queues.hidden = !list?.length;
    if (list) put(queues, el("h2", {}, "Forwarder"), table("Queues", [["Queue", "name"], ["State"], ["Waiting", "num"], ["In flight", "num"], ["Per second", "num"], ["Dead", "num"], ["Empty in", "num"]], list.map((one) => [[one.name, one.target && [" → ", one.target]], one.problem ? el("span", { class: "pill bad" }, "▲ ", one.problem) : mode(one.mode), count(one.waiting), count(one.in_flight), rate(one.rate), count(one.dead), span(one.empty_in_s)])));
  }
  function choose(name) {
    chosen = name;
    spans.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    load();
  }

  let seconds = 0;
  load();
  return {
    node,
    state(state) {
      const { rates, overload } = state;
      const shed = overload && (rates.shed ?? 0);
      put(tiles,
        tile("admitted", rate(rates.admitted), "per second", "good"),
        tile("refused", rate(rates.refused), "per second", rates.refused > 0 ? "bad" : ""),
        overload && tile("shed", rate(shed), "per second", shed > 0 ? "bad" : ""),
        tile("in shadow", rate(rates.shadow), "would be refused", rates.shadow > 0 ? "shadow" : ""),
        tile("undecided", rate(rates.undecided), "per second", rates.undecided > 0 ? "warn" : ""),
        tile("decision", micros(rates.latency_p99_us), "99 of 100"),
        overload && tile("gate", `${overload.gate.in_flight} / ${overload.gate.limit}`, `${overload.gate.queued} queued`, overload.gate.queued > 0 ? "warn" : ""),
        overload && tile("utilization", `${Math.round(100 * (overload.worker.utilization ?? 0))} %`, `admits ${Math.round(100 * (overload.worker.admitted ?? 1))} %`, overload.worker.shed_level > 0 ? "bad" : ""));
      const key = JSON.stringify([state.limiters, state.limits_switched, state.gateway]);
      if (key !== shown) {
        shown = key;
        overloadCharts.forEach((name) => { charts[name].card.hidden = !overload; });
        const rows = state.limiters.map(({ name, mode: text, configured, ends_in_s: ends }) => [name, mode(text), text === configured ? el("span", { class: "dim" }, "as configured") : ["configured: ", configured], ends ? `for ${span(ends)}` : ""]);
        put(limiters, el("div", { class: "card-head" }, el("h2", {}, "Limiters"), el("a", { href: "#/switches" }, "Switches")), table("Limiters", [["Limiter"], ["Mode"], ["File"], ["Ends"]], rows),
          state.limits_switched > 0 && el("p", { class: "hint" }, `${state.limits_switched} limits are switched at run time.`));
      }
      showQueues(state.forwarder);
      if (state.shared && seconds % 5 === 0) loadNodes();
      seconds += 1;
      if (seconds % (SPANS[chosen][1] === 1 ? 2 : 10) === 0) load();
    },
    redraw: () => Object.values(charts).forEach((one) => one.redraw()),
    end: () => Object.values(charts).forEach((one) => one.end()),
  };
}
