// Gateway: routes with their outcomes, and the servers behind them.

import { count, day, el, put, table, tile } from "./dom.js";
import { get } from "./api.js";
import { failed } from "./app.js";

const SERVED = ["served", "kept", "own"];

export function gateway() {
  const body = el("div");
  const node = el("div", {}, el("h1", {}, "Gateway"), body);
  let seconds = 0;
  const outcome = ([code, number]) => el("span", { class: `pill ${SERVED.includes(code) ? "good" : code === "gone" ? "" : "bad"}` }, `${code} ${count(number)}`);

  async function load() {
    try {
      const page = await get("/gateway");
      const routes = page.outcomes.map(({ route, requests }) => [route || el("span", { class: "dim" }, "no route"), Object.entries(requests).map((one) => [outcome(one), " "])]);
      const health = ({ healthy, ejected }) => (!healthy ? el("span", { class: "pill bad" }, "✕ unhealthy") : ejected ? el("span", { class: "pill warn" }, "✕ ejected") : el("span", { class: "pill good" }, "✔ healthy"));
      const hosts = page.upstreams.flatMap(({ name, hosts: servers }) => servers.map((host) => [name, el("code", {}, host.host), health(host), count(host.requests), count(host.failures)]));
      put(body,
        page.document && el("p", { class: "sub" }, page.document.file, page.document.loaded_at_ms && ` · in place since ${day(page.document.loaded_at_ms)}`, ` · loaded ${page.document.loads === 1 ? "once" : `${page.document.loads} times`}`, page.document.load_failures > 0 && ` · ${page.document.load_failures} versions were wrong`),
        el("div", { class: "tiles" }, tile("in flight", count(page.in_flight), "at servers"), tile("waiting", count(page.waiting), "for a limit", page.waiting ? "warn" : ""), tile("servers", `${hosts.length}`, page.upstreams.length === 1 ? "in one group" : `in ${page.upstreams.length} groups`)),
        page.document?.last_failure && el("div", { class: "error" }, "The latest document is wrong; an older one is in place."),
        el("section", { class: "card" }, el("h2", {}, "Routes"), table("Routes", [["Route", "name"], ["Requests by outcome, since the start"]], routes)), el("br"),
        el("section", { class: "card" }, el("h2", {}, "Servers"), table("Servers", [["Group"], ["Server", "name"], ["Health"], ["In flight", "num"], ["Failures", "num"]], hosts)));
    } catch (error) {
      put(body, error.status === 404 ? el("section", { class: "card" }, el("p", { class: "empty" }, "This server has no gateway. The setting gateway.file adds one.")) : failed(error, load));
    }
  }
  load();
  return { node, state() { seconds += 1; if (seconds % 5 === 0) load(); } };
}
