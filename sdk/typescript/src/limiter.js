/**
 * Asks the HTTP API of a Tidegate.
 *
 * A result has one of three kinds, never a bare boolean: a service that cannot be reached is `undecided`, and the caller
 * has to say what that means. Refusals are remembered until their retry time, so that a refused caller costs no call.
 * After five failures in a row the service is asked once a second until it answers.
 */

/** Refusals that are remembered. */
const REFUSALS_MAX = 10_000;
/** Failures in a row after which the service is asked less often, and how often that is, in milliseconds. */
const FAILURES_MAX = 5;
const PROBE_PAUSE_MS = 1_000;

/**
 * @typedef {Record<string, string>} Descriptor Ordered entries: an object keeps the order in which it was written.
 *
 * @typedef {object} Admitted The request may proceed.
 * @property {"admitted"} kind
 * @property {number | undefined} remaining What is left of the tightest limit; undefined if no limit applied.
 * @property {number} delayMs How long to wait before proceeding: the turn of a leaky bucket.
 * @property {string | undefined} permit Held slots of a concurrency limit, for `release`.
 * @property {boolean} soft Admitted only by the allowance of a soft limit.
 *
 * @typedef {object} Refused The request is over a limit.
 * @property {"refused"} kind
 * @property {number | undefined} retryAfterMs When to ask again; undefined if it never fits.
 * @property {string} limit The name of the limit that refused.
 *
 * @typedef {object} Undecided No decision was possible.
 * @property {"undecided"} kind
 * @property {boolean} allowed What the settings of the service, or of this client, make of it.
 * @property {string} reason
 *
 * @typedef {Admitted | Refused | Undecided} Result
 *
 * @typedef {object} LimiterOptions
 * @property {string} domain The domain whose rules apply.
 * @property {string} [url] The service; http://127.0.0.1:8080 by default.
 * @property {string} [token] An access token.
 * @property {number} [timeoutMs] The most time of one call; 50 by default.
 * @property {"allow" | "deny"} [onError] What an undecided request may do; "allow" by default.
 * @property {typeof fetch} [fetch] Another fetch, for TLS settings and proxies.
 * @property {() => number} [now] The clock in milliseconds, for tests.
 */

/** Thrown by `withPermit` for a request that may not proceed. */
export class RefusedError extends Error {
  /** @param {Result} result */
  constructor(result) {
    super(`not admitted: ${JSON.stringify(result)}`);
    this.name = "RefusedError";
    this.result = result;
  }
}

/** A client of one Tidegate for one domain. */
export class Limiter {
  #url;
  #domain;
  #headers;
  #timeoutMs;
  #allowed;
  #fetch;
  #now;
  /** @type {Map<string, {until: number, limit: string}>} */
  #refusals = new Map();
  #failures = 0;
  #probeAt = 0;

  /** @param {LimiterOptions} options */
  constructor(options) {
    const url = new URL(options.url ?? "http://127.0.0.1:8080");
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`not an http or https URL: ${options.url}`);
    }
    this.#url = url.href.replace(/\/$/, "");
    this.#domain = options.domain;
    this.#headers = { "content-type": "application/json" };
    if (options.token !== undefined) this.#headers.authorization = `Bearer ${options.token}`;
    this.#timeoutMs = options.timeoutMs ?? 50;
    this.#allowed = (options.onError ?? "allow") === "allow";
    this.#fetch = options.fetch ?? fetch;
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * Decides a request and charges it if it is admitted.
   * @param {Descriptor | Descriptor[]} descriptors
   * @param {{cost?: number}} [options]
   * @returns {Promise<Result>}
   */
  async check(descriptors, { cost = 1 } = {}) {
    const body = this.#body(descriptors, cost);
    const remembered = this.#remembered(body);
    if (remembered) return remembered;
    const result = await this.#ask("/v1/check?status=200", body);
    this.#remember(body, result);
    return result;
  }

  /**
   * Decides up to 100 requests in one call, each on its own and in order.
   * @param {(Descriptor | Descriptor[])[]} requests
   * @returns {Promise<Result[]>}
   */
  async checkBatch(requests) {
    const bodies = requests.map((descriptors) => this.#request(descriptors, 1));
    try {
      const answer = await this.#post("/v1/check?status=200", JSON.stringify({ requests: bodies }));
      if (answer?.answers?.length !== requests.length) throw new Error("the answer is not one of a Tidegate");
      return answer.answers.map((/** @type {any} */ item) => this.#result(item));
    } catch (error) {
      return requests.map(() => this.#undecided(error));
    }
  }

  /**
   * Shows what `check` would answer. Charges nothing.
   * @param {Descriptor | Descriptor[]} descriptors
   * @param {{cost?: number}} [options]
   * @returns {Promise<Result>}
   */
  async peek(descriptors, { cost = 1 } = {}) {
    return this.#ask("/v1/peek?status=200", this.#body(descriptors, cost));
  }

  /**
   * Gives a charge back. Returns whether the service did it; it needs the role `change`.
   * @param {Descriptor | Descriptor[]} descriptors
   * @param {{cost?: number}} [options]
   */
  async refund(descriptors, { cost = 1 } = {}) {
    const body = this.#body(descriptors, cost);
    this.#refusals.delete(body);
    return this.#post("/v1/refund", body).then(
      () => true,
      () => false,
    );
  }

  /**
   * Frees the slots of a permit. Returns whether they were held; without an answer they expire by themselves.
   * @param {string} permit
   */
  async release(permit) {
    return this.#post("/v1/release", JSON.stringify({ permit })).then(
      (answer) => answer?.released === true,
      () => false,
    );
  }

  /**
   * Holds a slot while the work runs. Throws `RefusedError` if the request may not proceed.
   * @template T
   * @param {Descriptor | Descriptor[]} descriptors
   * @param {(result: Result) => Promise<T> | T} work
   * @returns {Promise<T>}
   */
  async withPermit(descriptors, work) {
    const result = await this.check(descriptors);
    if (result.kind === "refused" || (result.kind === "undecided" && !result.allowed)) {
      throw new RefusedError(result);
    }
    try {
      return await work(result);
    } finally {
      if (result.kind === "admitted" && result.permit !== undefined) await this.release(result.permit);
    }
  }

  #body(descriptors, cost) {
    return JSON.stringify(this.#request(descriptors, cost));
  }

  #request(descriptors, cost) {
    const list = Array.isArray(descriptors) ? descriptors : [descriptors];
    if (list.length === 0) throw new TypeError("a request needs at least one descriptor: check({user: 'ada'})");
    const entries = (descriptor) => Object.entries(descriptor).map(([key, value]) => ({ key, value: String(value) }));
    return {
      domain: this.#domain,
      cost,
      descriptors: list.map((descriptor) => ({ entries: entries(descriptor) })),
    };
  }

  async #ask(path, body) {
    try {
      return this.#result(await this.#post(path, body));
    } catch (error) {
      return this.#undecided(error);
    }
  }

  /** @returns {Result} */
  #result(answer) {
    if (typeof answer?.admitted !== "boolean") return this.#undecided("the answer is not one of a Tidegate");
    if (answer.undecided) return { kind: "undecided", allowed: answer.admitted, reason: String(answer.undecided) };
    if (!answer.admitted) {
      const limit = answer.refused_by?.limit ?? answer.refused_by?.path ?? "";
      return { kind: "refused", retryAfterMs: answer.retry_after_ms, limit };
    }
    const counted = (answer.decisions ?? []).filter((decision) => decision.role !== "shadow");
    const left = counted.map((decision) => decision.remaining);
    return {
      kind: "admitted",
      remaining: left.length > 0 ? Math.min(...left) : undefined,
      delayMs: answer.delay_ms ?? 0,
      permit: answer.permit,
      soft: answer.soft ?? false,
    };
  }

  /** @returns {Undecided} */
  #undecided(reason) {
    return { kind: "undecided", allowed: this.#allowed, reason: reason instanceof Error ? reason.message : reason };
  }

  #remembered(body) {
    const entry = this.#refusals.get(body);
    if (!entry) return undefined;
    const left = entry.until - this.#now();
    if (left <= 0) {
      this.#refusals.delete(body);
      return undefined;
    }
    return { kind: "refused", retryAfterMs: left, limit: entry.limit };
  }

  #remember(body, result) {
    if (result.kind !== "refused" || !result.retryAfterMs) return;
    // The oldest is the first: a map keeps the order of insertion.
    if (this.#refusals.size >= REFUSALS_MAX) this.#refusals.delete(this.#refusals.keys().next().value);
    this.#refusals.set(body, { until: this.#now() + result.retryAfterMs, limit: result.limit });
  }

  async #post(path, body) {
    if (this.#failures >= FAILURES_MAX) {
      if (this.#now() < this.#probeAt) throw new Error("the service did not answer; it is asked again once a second");
      this.#probeAt = this.#now() + PROBE_PAUSE_MS;
    }
    try {
      const answer = await this.#send(path, body);
      this.#failures = 0;
      return answer;
    } catch (error) {
      this.#failures += 1;
      this.#probeAt = this.#now() + PROBE_PAUSE_MS;
      throw error;
    }
  }

  async #send(path, body) {
    const signal = AbortSignal.timeout(this.#timeoutMs);
    const request = { method: "POST", headers: this.#headers, body, signal };
    let answer, text;
    try {
      answer = await this.#fetch(this.#url + path, request);
      text = await answer.text();
    } catch (error) {
      throw new Error(`the service did not answer: ${error.cause?.message ?? error.message}`);
    }
    let parsed;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw new Error(`the service answered ${answer.status} without JSON`);
    }
    if (answer.status !== 200 && answer.status !== 429) {
      throw new Error(`the service answered ${answer.status}: ${parsed?.detail ?? parsed?.undecided ?? ""}`);
    }
    return parsed;
  }
}
