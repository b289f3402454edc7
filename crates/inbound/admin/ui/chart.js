// Charts by uPlot, each with a table behind a button. Lines differ in dash as well as in colour.

import { el, put, rate } from "./dom.js";

const DASHES = [[], [], [7, 4], [2, 3], []];

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function chart(title, series, options = {}) {
  const box = el("div", { class: "chart", role: "img" });
  const tableBox = el("div", { hidden: true });
  const button = el("button", { type: "button", class: "small quiet", "aria-expanded": "false" }, "Table");
  const legend = el("ul", { class: "legend" }, series.map(({ label, color, dash }) => el("li", {}, el("span", { class: `key k${color} d${dash ?? 0}`, "aria-hidden": "true" }), label)));
  const card = el("section", { class: "card" }, el("div", { class: "card-head" }, el("h2", {}, title), options.note && el("span", { class: "dim" }, options.note), button), box, legend, tableBox);
  let plot = null;
  let data = null;
  const show = options.format ?? rate;
  const short = options.axis ?? show;
  const time = (seconds, long) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: long ? "2-digit" : undefined, hour12: false });

  const summary = () => series.map(({ label }, index) => {
    const values = (data?.[index + 1] ?? []).filter((value) => value !== null);
    return values.length ? `${label}: ${show(values.at(-1))} now, at most ${show(Math.max(...values))}` : `${label}: no values`;
  }).join("; ");

  function fillTable() {
    if (tableBox.hidden || !data) return;
    const step = Math.max(1, Math.ceil(data[0].length / 60));
    const rows = [];
    for (let index = data[0].length - 1; index >= 0 && rows.length < 60; index -= step) {
      rows.push(el("tr", {}, el("td", {}, time(data[0][index], true)), series.map((_, at) => el("td", { class: "num" }, show(data[at + 1][index])))));
    }
    const head = [el("th", { scope: "col" }, "Time"), series.map(({ label }) => el("th", { scope: "col", class: "num" }, label))];
    put(tableBox, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, as a table` }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
  }
  button.addEventListener("click", () => {
    tableBox.hidden = !tableBox.hidden;
    button.setAttribute("aria-expanded", String(!tableBox.hidden));
    fillTable();
  });

  function draw() {
    plot?.destroy();
    plot = null;
    if (!data || !data[0].length || !box.clientWidth) return;
    const grid = { stroke: style("--line"), width: 1 };
    const axis = { stroke: style("--soft"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: box.clientWidth,
      height: 200,
      cursor: { y: false, points: { size: 6 } },
      legend: { show: false },
      padding: [8, 26, 0, 0],
      scales: { x: { time: true, range: (_, low, high) => [Math.min(low, high - 10), high] }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(high * 1.08, options.least ?? 1)] } },
      axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((tick) => time(tick, ticks.length > 1 && ticks[1] - ticks[0] < 60)) }, { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : short(tick))) }],
      series: [{}, ...series.map(({ label, color, dash, fill }) => ({
        label,
        stroke: style(`--c${color}`),
        width: 2,
        dash: DASHES[dash === 1 ? 2 : dash === 2 ? 3 : 0],
        fill: fill ? `${style(`--c${color}`)}22` : undefined,
        points: { show: false },
      }))],
    }, data, box);
    if (!performance.getEntriesByName("first-chart").length) performance.mark("first-chart");
  }

  const observer = new ResizeObserver(() => {
    if (!plot) draw();
    else if (Math.abs(plot.width - box.clientWidth) > 1) plot.setSize({ width: box.clientWidth, height: 200 });
  });
  observer.observe(box);

  return {
    card,
    set(columns) {
      data = columns;
      if (plot) plot.setData(data);
      else draw();
      box.setAttribute("aria-label", `${title}. ${summary()}`);
      fillTable();
    },
    redraw: draw,
    end() {
      observer.disconnect();
      plot?.destroy();
      plot = null;
    },
  };
}
