/**
 * A `fetch` that keeps to the limits of the services it calls.
 *
 *     const fetch = pacedFetch();
 *     const answer = await fetch("https://api.example/orders");
 *
 * Calls are paced before they are refused, a target that asked to wait is closed for all calls, and refused calls are
 * repeated with jitter within a budget.
 */

import { MILLISECOND, SECOND, readFields } from "./fields.js";
import { Target } from "./target.js";

const TARGETS_MAX = 1_024;
const REPEATABLE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"]);

/** A call was not sent: its target allows none for longer than `waitMaxMs`, or is short of capacity. */
export class HeldError extends Error {
  /**
   * @param {string} target
   * @param {number | undefined} retryAfterMs undefined if the target is short of capacity
   */
  constructor(target, retryAfterMs) {
    super(`${target} allows no call: ${retryAfterMs === undefined ? "it is short of capacity" : `for ${retryAfterMs} ms`}`);
    this.name = "HeldError";
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * @param {object} [options]
 * @param {typeof fetch} [options.fetch] what sends the calls
 * @param {number} [options.waitMaxMs] the longest wait for a turn; a minute by default
 * @param {number} [options.attemptsMax] attempts at one call; three by default
 * @param {(target: string, event: "waited" | "held" | "retry", ms: number) => void} [options.onEvent] nothing waits silently
 * @returns {typeof fetch}
 */
export function pacedFetch({ fetch: send = fetch, waitMaxMs = 60_000, attemptsMax = 3, onEvent = () => {} } = {}) {
  /** @type {Map<string, PacedTarget>} */
  const targets = new Map();
  const targetOf = (host) => {
    let target = targets.get(host);
    if (!target) {
      if (targets.size >= TARGETS_MAX) {
        const idle = [...targets].reduce((a, b) => (b[1].state.usedAt < a[1].state.usedAt ? b : a));
        targets.delete(idle[0]);
      }
      targets.set(host, (target = new PacedTarget(host, waitMaxMs, onEvent)));
    }
    return target;
  };
  return async (input, init) => {
    const request = new Request(input, init);
    const host = new URL(request.url).host;
    const target = targetOf(host);
    if (target.state.drops(nowNs(), Math.floor(Math.random() * 65_536))) throw new HeldError(host, undefined);
    const repeatable = REPEATABLE.has(request.method) || request.headers.has("idempotency-key");
    for (let attempt = 1; ; attempt += 1) {
      const sequence = await target.turn(attempt === 1, request.signal);
      let answer, failure;
      try {
        answer = await send(request.clone());
      } catch (error) {
        failure = error;
      }
      const pause = target.record(sequence, answer, repeatable && !request.signal.aborted ? attemptsMax - attempt : 0, attempt);
      if (pause === undefined) {
        if (failure) throw failure;
        return answer;
      }
      await answer?.body?.cancel();
      onEvent(host, "retry", pause / MILLISECOND);
      await sleep(pause, request.signal);
    }
  };
}

const nowNs = () => Math.round(performance.now() * MILLISECOND);

/** How an answer counts. */
export function classify(status, headers) {
  if (status === 200) return { 8: "refused", 14: "short" }[headers.get("grpc-status")] ?? "served";
  return { 429: "refused", 503: "short", 408: "failed", 502: "failed", 504: "failed" }[status] ?? "served";
}

/** The pause before the next attempt. A stated wait is never shortened. */
function pauseBefore(attempt, stated, refused, jitter) {
  if (stated !== null) return stated + Math.floor(Math.min(stated, SECOND) * jitter);
  const first = refused ? SECOND : 100 * MILLISECOND;
  const half = Math.min(first * 2 ** (attempt - 1), 20 * SECOND) / 2;
  return half + Math.floor(half * jitter);
}

function sleep(ns, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve(undefined);
    }, Math.min(Math.ceil(ns / MILLISECOND) + 1, 2 ** 31 - 1));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}

/** A target with its line of callers: one at a time computes when it may leave. */
class PacedTarget {
  #name;
  #waitMax;
  #onEvent;
  /** @type {Promise<unknown>} */
  #line = Promise.resolve();
  #wake = () => {};

  constructor(name, waitMaxMs, onEvent) {
    this.#name = name;
    this.#waitMax = waitMaxMs * MILLISECOND;
    this.#onEvent = onEvent;
    this.state = new Target(nowNs());
  }

  /** Waits in line until a call may leave, and counts it. */
  turn(isFirst, signal) {
    const started = nowNs();
    const turn = this.#line.then(() => this.#ownTurn(isFirst, signal, started));
    this.#line = turn.catch(() => {});
    return turn;
  }

  async #ownTurn(isFirst, signal, started) {
    for (;;) {
      signal.throwIfAborted();
      const now = nowNs();
      const left = Math.max(this.#waitMax - (now - started), 0);
      const { step, wait } = this.state.plan(now, left);
      if (step === "send") {
        if (now - started > MILLISECOND) this.#onEvent(this.#name, "waited", (now - started) / MILLISECOND);
        return this.state.countSend(now, isFirst);
      }
      if (step === "held" || left === 0) {
        this.#onEvent(this.#name, "held", wait / MILLISECOND);
        throw new HeldError(this.#name, wait / MILLISECOND);
      }
      // The end of the wait and an answer both lead to another look.
      const ended = new AbortController();
      const answered = new Promise((resolve) => (this.#wake = () => resolve(undefined)));
      const timer = sleep(step === "wait" ? wait : left, AbortSignal.any([signal, ended.signal]));
      await Promise.race([timer.catch(() => {}), answered]);
      ended.abort();
    }
  }

  /** Applies an answer. Returns the pause before a retry, or undefined if there is none. */
  record(sequence, answer, attemptsLeft, attempt) {
    const now = nowNs();
    const kind = answer ? classify(answer.status, answer.headers) : "failed";
    const fields = answer ? readFields(answer.headers, Date.now()) : { wait: null, forbidsRetry: false, policies: [] };
    this.state.record(sequence, kind, fields, now, Math.random());
    this.#wake();
    if (kind === "served" || fields.forbidsRetry || attemptsLeft <= 0) return undefined;
    const pause = pauseBefore(attempt, fields.wait, kind !== "failed", Math.random());
    return pause <= this.#waitMax && this.state.spendRetry(fields.wait !== null, now) ? pause : undefined;
  }
}
