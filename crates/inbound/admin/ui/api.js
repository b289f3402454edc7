// Requests to the debug port. The token stays in this tab; it is sent in a header field, never in an address.

const KEY = "tidegate-token";

export function takeTokenFromAddress() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", `${location.pathname}#/now`);
}
export const token = () => sessionStorage.getItem(KEY) ?? "";
export function setToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}
const fields = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function request(method, path, body, signal) {
  const options = { method, headers: fields(), signal, cache: "no-store", redirect: "error" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(path, options);
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, problem.detail ?? `the server answered ${answer.status}`);
  }
  return answer;
}

export const get = async (path, signal) => (await request("GET", path, undefined, signal)).json();
export const send = async (method, path, body) => {
  const text = await (await request(method, path, body)).text();
  try { return JSON.parse(text); } catch { return text; }
};

export async function download(path, name) {
  const blob = await (await request("GET", path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}

// Events over fetch: an EventSource cannot send header fields. Calls `on(kind, data)` until the signal ends it.
export async function events(kinds, on, signal, lastId) {
  const options = { headers: fields(), signal, cache: "no-store" };
  if (lastId) options.headers["Last-Event-ID"] = lastId;
  const answer = await fetch(`/api/events?kinds=${kinds}`, options);
  if (!answer.ok) throw new Problem(answer.status, (await answer.json().catch(() => ({}))).detail ?? "no events");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let kind = "message", data = "", id;
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
        else if (line.startsWith("id: ")) id = line.slice(4);
      }
      if (data) on(kind, JSON.parse(data), id);
    }
  }
}
