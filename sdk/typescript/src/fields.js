/**
 * Reads what an answer says about limits: waits and quotas, in every form that services use.
 *
 * Malformed fields are ignored one by one. An answer from a cache (`Age`) says nothing about limits now. Times are whole
 * nanoseconds; they are exact up to 104 days and saturate at `FOREVER`.
 */

export const SECOND = 1_000_000_000;
export const MILLISECOND = 1_000_000;
/** The longest span: every longer one is as good as it. */
export const FOREVER = Number.MAX_SAFE_INTEGER;
export const POLICIES_MAX = 16;
const FIELD_BYTES_MAX = 4_096;

/**
 * @typedef {object} Policy One quota, as far as an answer says something about it.
 * @property {string} name
 * @property {"requests" | "concurrency" | "other"} unit
 * @property {number | null} quota
 * @property {number | null} window
 * @property {number | null} remaining
 * @property {number | null} reset
 *
 * @typedef {object} ResponseFields
 * @property {number | null} wait
 * @property {boolean} forbidsRetry
 * @property {Policy[]} policies
 */

/**
 * Reads the fields of an answer. The answer's own `Date` counts instead of `dayMs` where it has one.
 * @param {Headers} headers
 * @param {number} dayMs the time of day in milliseconds since the epoch
 * @returns {ResponseFields}
 */
export function readFields(headers, dayMs) {
  const get = (name) => (headers.get(name) ?? "").trim();
  if ((readInteger(get("age")) ?? 0) > 0) return { wait: null, forbidsRetry: false, policies: [] };
  const now = readDate(get("date")) ?? dayMs;
  return {
    wait: readWait(get, now),
    forbidsRetry: /^-[0-9]+$/.test(get("grpc-retry-pushback-ms")),
    policies: readPolicies(get, now),
  };
}

const saturate = (number) => Math.min(number, FOREVER);

function readInteger(text) {
  return /^[0-9]+$/.test(text) ? saturate(Number(text)) : null;
}

/** A number of units with decimals, rounded up. */
function readDecimal(text, unit) {
  const found = /^([0-9]+)(?:\.([0-9]+))?$/.exec(text);
  if (!found) return null;
  const decimals = found[2] ?? "";
  let part = 0;
  let scale = unit;
  for (const digit of decimals.slice(0, 9)) {
    scale = Math.floor(scale / 10);
    part += scale * Number(digit);
  }
  const beyond = /[1-9]/.test(decimals.slice(9)) ? 1 : 0;
  return saturate(Number(found[1]) * unit + part + beyond);
}

const UNITS = {
  d: 86_400 * SECOND, h: 3_600 * SECOND, m: 60 * SECOND, s: SECOND, ms: MILLISECOND, us: 1_000, ns: 1,
};

/** A span such as `6m0s`. */
function readCompound(text) {
  if (!/^(?:[0-9]+(?:\.[0-9]+)?(?:d|h|ms|us|ns|m|s))+$/.test(text)) return null;
  let sum = 0;
  for (const [, number, unit] of text.matchAll(/([0-9.]+)(d|h|ms|us|ns|m|s)/g)) sum += readDecimal(number, UNITS[unit]);
  return saturate(sum);
}

const RFC3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;

/** When a quota is whole again: a span, an epoch, a text such as `6m0s`, or an RFC 3339 instant. */
function readReset(text, nowMs) {
  const number = readInteger(text.split(".")[0]);
  if (number !== null && number > 1_000_000_000) {
    if (!/^[0-9]+(?:\.[0-9]+)?$/.test(text)) return null;
    const ms = Number(text) * (number > 1_000_000_000_000 ? 1 : 1_000);
    return saturate(Math.max(ms - nowMs, 0) * MILLISECOND);
  }
  const span = readDecimal(text, SECOND) ?? readCompound(text);
  if (span !== null) return span;
  const instant = RFC3339.test(text) ? Date.parse(text.replace(" ", "T").toUpperCase()) : Number.NaN;
  return Number.isNaN(instant) ? null : saturate(Math.max(instant - nowMs, 0) * MILLISECOND);
}

/** An HTTP date, in milliseconds. */
function readDate(text) {
  if (!/^[A-Z][a-z]{2,8},? .*GMT$/.test(text)) return null;
  const date = Date.parse(text);
  return Number.isNaN(date) ? null : date;
}

function readWait(get, nowMs) {
  const longest = (waits) => waits.reduce((a, b) => (a === null || (b !== null && b > a) ? b : a), null);
  const milliseconds = ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"];
  const pushback = readInteger(get("grpc-retry-pushback-ms"));
  const precise = longest([
    ...milliseconds.map((name) => readDecimal(get(name), MILLISECOND)),
    pushback === null ? null : saturate(pushback * MILLISECOND),
    readRetryInfo(get("grpc-status-details-bin")),
  ]);
  const rounded = longest(
    ["retry-after", "x-ratelimit-retry-after"].map((name) => {
      const span = readDecimal(get(name), SECOND);
      const date = span === null ? readDate(get(name)) : null;
      return date === null ? span : saturate(Math.max(date - nowMs, 0) * MILLISECOND);
    }),
  );
  if (precise === null || rounded === null) return precise ?? rounded;
  // Whole seconds are rounded up: the precise one is the same wait.
  return Math.abs(rounded - precise) < SECOND ? precise : Math.max(precise, rounded);
}

/** The delay of a `google.rpc.RetryInfo` in the details of a gRPC status. */
function readRetryInfo(text) {
  if (!/^[A-Za-z0-9+/]{1,8192}=*$/.test(text)) return null;
  const status = Uint8Array.from(atob(text.replace(/=+$/, "")), (character) => character.charCodeAt(0));
  const find = (message, number) => protobufFields(message).find((field) => field.number === number)?.value;
  for (const { number, value } of protobufFields(status)) {
    if (number !== 3 || !(value instanceof Uint8Array)) continue;
    const kind = find(value, 1);
    if (!(kind instanceof Uint8Array)) continue;
    if (new TextDecoder().decode(kind) !== "type.googleapis.com/google.rpc.RetryInfo") continue;
    const delay = find(find(value, 2) ?? new Uint8Array(), 1);
    if (!(delay instanceof Uint8Array)) return null;
    const [seconds, nanos] = [find(delay, 1) ?? 0, find(delay, 2) ?? 0];
    return nanos < SECOND && seconds < 2 ** 63 ? saturate(seconds * SECOND + nanos) : null;
  }
  return null;
}

/** The fields of a message, up to its end or its first malformed byte. */
function protobufFields(message) {
  const fields = [];
  let position = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = message[position];
      position += 1;
      if (byte === undefined) return Number.NaN;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    return Number.NaN;
  };
  while (position < message.length) {
    const tag = varint();
    const [number, kind] = [Math.floor(tag / 8), tag % 8];
    if (kind === 0) fields.push({ number, value: varint() });
    else if (kind === 2) {
      const length = varint();
      if (!(position + length <= message.length)) return fields;
      fields.push({ number, value: message.subarray(position, position + length) });
      position += length;
    } else if (kind === 1 || kind === 5) position += kind === 1 ? 8 : 4;
    else return fields;
  }
  return fields;
}

const TRIPLES = [
  ["", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "requests"],
  ["", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "requests"],
  ["", "x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset", "requests"],
  ...[["requests", "requests"], ["tokens", "other"]].map(([name, unit]) => [
    name, `x-ratelimit-limit-${name}`, `x-ratelimit-remaining-${name}`, `x-ratelimit-reset-${name}`, unit,
  ]),
  ...[["requests", "requests"], ["input-tokens", "other"], ["output-tokens", "other"]].map(([name, unit]) => [
    name, `anthropic-ratelimit-${name}-limit`, `anthropic-ratelimit-${name}-remaining`,
    `anthropic-ratelimit-${name}-reset`, unit,
  ]),
];

/** @returns {Policy[]} */
function readPolicies(get, nowMs) {
  const policies = [];
  for (const { key, value, parameters } of readList(get("ratelimit-policy"))) {
    if (key === null && value !== null && policies.length < POLICIES_MAX) policies.push(policyOf(value, parameters));
  }
  for (const item of readList(get("ratelimit"))) applyState(item, policies);
  if (policies.length > 0) return policies;
  for (const [name, limit, remaining, reset, unit] of TRIPLES) {
    const first = (field) => get(field).split(/[,;]/)[0].trim();
    const [quota, left] = [readInteger(first(limit)), readInteger(first(remaining))];
    if (quota !== null || left !== null) {
      policies.push({ name, unit, quota, window: null, remaining: left, reset: readReset(first(reset), nowMs) });
    }
  }
  return policies;
}

const natural = (value) => (typeof value === "number" && value >= 0 ? value : null);
const inSeconds = (value) => (natural(value) === null ? null : saturate(value * SECOND));

function policyOf(value, parameters) {
  const units = { requests: "requests", "concurrent-requests": "concurrency" };
  const unit = parameters.get("qu");
  return {
    name: typeof value === "string" ? value : "",
    unit: typeof unit === "string" ? (units[unit] ?? "other") : "requests",
    quota: natural(typeof value === "number" ? value : parameters.get("q")),
    window: inSeconds(parameters.get("w")),
    remaining: null,
    reset: null,
  };
}

function applyState({ key, value, parameters }, policies) {
  const unnamed = (name) => ({ name, unit: "requests", quota: null, window: null, remaining: null, reset: null });
  if (key === null) {
    const name = typeof value === "string" ? value : "";
    let policy = policies.find((each) => each.name === name);
    if (!policy) {
      if (policies.length >= POLICIES_MAX) return;
      policies.push((policy = unnamed(name)));
    }
    policy.remaining = natural(parameters.get("r"));
    policy.reset = inSeconds(parameters.get("t"));
    return;
  }
  if (natural(value) === null) return;
  if (policies.length === 0) policies.push(unnamed(""));
  if (key === "limit") policies[0].quota ??= value;
  else if (key === "remaining") policies[0].remaining = value;
  else if (key === "reset") policies[0].reset = inSeconds(value);
}

const KEY = /[a-z*][a-z0-9_\-.*]*/y;
const ITEM =
  /"((?:[ !#-[\]-~]|\\["\\])*)"|(-?[0-9]+)(\.[0-9]+)?|([A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*)|\?[01]|:[A-Za-z0-9+/=]*:/y;

/** A list of items with parameters (RFC 9651), or a dictionary: its members have keys. Empty if it is malformed. */
function readList(text) {
  // eslint-disable-next-line no-control-regex
  if (text.length > FIELD_BYTES_MAX || /[^\x00-\x7f]/.test(text)) return [];
  const members = [];
  let position = 0;
  const match = (pattern) => {
    pattern.lastIndex = position;
    const found = pattern.exec(text);
    if (found) position = pattern.lastIndex;
    return found;
  };
  const take = (character) => text[position] === character && ((position += 1), true);
  const bareItem = () => {
    const found = match(ITEM);
    if (!found) return undefined;
    const [, string, integer, decimals, token] = found;
    if (string !== undefined) return string.replace(/\\(.)/g, "$1");
    if (token !== undefined) return token;
    if (integer === undefined) return null;
    const digits = integer.replace("-", "").length;
    if (digits > (decimals ? 12 : 15) || (decimals && decimals.length > 4)) return undefined;
    return decimals ? null : Number(integer);
  };
  while (position < text.length) {
    const start = position;
    const found = match(KEY);
    const key = found && take("=") ? found[0] : null;
    if (key === null) position = start;
    const value = bareItem();
    if (value === undefined) return [];
    const parameters = new Map();
    while (take(";")) {
      while (take(" "));
      const name = match(KEY);
      if (!name) return [];
      const parameter = take("=") ? bareItem() : null;
      if (parameter === undefined) return [];
      parameters.set(name[0], parameter);
    }
    members.push({ key, value, parameters });
    match(/[ \t]*/y);
    if (position === text.length) break;
    if (!take(",")) return [];
    match(/[ \t]*/y);
    if (position === text.length) return [];
  }
  return members;
}
