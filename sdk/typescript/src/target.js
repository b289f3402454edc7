/** The arithmetic of paced calls. It takes the time as an argument, in nanoseconds, and never waits. */

import { FOREVER, MILLISECOND, POLICIES_MAX, SECOND } from "./fields.js";

const UTILISATION = 99;
const FLOOR_PART = 10;
const SLACK = 2 * MILLISECOND;
const IDLE_INTERVALS = 8;
const IDLE_MIN = 100 * MILLISECOND;
const UNANSWERED_MAX = 8;

const divide = (a, b) => (a - (a % b)) / b;
const divideUp = (a, b) => divide(a, b) + (a % b > 0 ? 1 : 0);
const minus = (a, b) => Math.max(a - b, 0);
const plus = (a, b) => Math.min(a + b, FOREVER);

/** When the next call may leave under one quota that the service named. */
class Schedule {
  constructor(reading, sequence, now) {
    this.name = reading.name;
    this.remaining = this.peak = reading.remaining;
    this.applied = sequence;
    this.resetsAt = FOREVER;
    this.next = now;
    this.pacedSince = null;
    this.quota = this.window = null;
    this.#readTerms(reading, now);
  }

  #readTerms(reading, now) {
    this.quota = reading.quota || this.quota;
    this.window = reading.window || this.window;
    if (reading.reset !== null) this.resetsAt = plus(now, reading.reset);
  }

  /** Only an answer to a later call than the last may raise what is left; every answer may lower it. */
  apply(reading, sequence, lastSent, now) {
    if (reading.remaining === null) return;
    const left = minus(reading.remaining, minus(lastSent, sequence));
    if (sequence <= this.applied && left >= this.#left(lastSent)) return;
    this.remaining = reading.remaining;
    this.peak = Math.max(this.peak, reading.remaining);
    this.applied = sequence;
    this.#readTerms(reading, now);
  }

  wait(lastSent, now) {
    this.#passReset(lastSent, now);
    const left = this.#available(lastSent, now);
    if (left === 0) {
      this.pacedSince ??= now;
      return minus(this.resetsAt === FOREVER ? this.next : this.resetsAt, now);
    }
    const idle = Math.max(this.#interval(left, now) * IDLE_INTERVALS, IDLE_MIN);
    if (this.pacedSince !== null && minus(now, this.next) > idle) this.pacedSince = null;
    if (this.pacedSince === null && left > divideUp(this.peak, FLOOR_PART)) return 0;
    this.pacedSince ??= now;
    return minus(this.next, now);
  }

  countSend(lastSent, now) {
    const interval = this.#interval(Math.max(this.#left(lastSent), 1), now);
    this.next = plus(Math.max(this.next, minus(now, SLACK)), interval);
  }

  reopen(at) {
    this.pacedSince = at;
    this.next = Math.max(this.next, at);
  }

  #left(lastSent) {
    return minus(this.remaining, minus(lastSent, this.applied));
  }

  /** Calls in flight are charged, except after a whole window at the stated rate. */
  #available(lastSent, now) {
    const keptPace =
      this.quota !== null && this.window !== null && this.pacedSince !== null && minus(now, this.pacedSince) >= this.window;
    return keptPace ? this.remaining : this.#left(lastSent);
  }

  #passReset(lastSent, now) {
    if (now < this.resetsAt) return;
    this.remaining = Math.min(plus(this.peak, 1), this.quota ?? FOREVER);
    this.applied = lastSent;
    this.next = Math.max(this.next, this.resetsAt);
    if (this.pacedSince !== null) this.pacedSince = now;
    this.resetsAt = this.window === null ? FOREVER : plus(now, this.window);
  }

  #interval(left, now) {
    if (this.quota !== null && this.window !== null) {
      // In whole numbers: the product may exceed what a number holds exactly.
      const scaled = BigInt(this.window) * 100n;
      const divisor = BigInt(this.quota) * BigInt(UTILISATION);
      return Math.min(Number((scaled + divisor - 1n) / divisor), FOREVER);
    }
    return this.resetsAt === FOREVER ? 0 : divide(minus(this.resetsAt, now), left);
  }
}

/** The rate that this process may use when the stated one is not the whole truth, in calls per 1,000 seconds. */
class Share {
  constructor(now) {
    this.cutRate = null;
    this.cutAt = 0;
    this.accepted = 0;
    this.binStart = now;
    this.acceptedRate = 0;
    this.next = now;
  }

  countAccepted(now) {
    this.accepted += 1;
    this.#readBin(now);
  }

  cut(now) {
    if (this.cutRate !== null && minus(now, this.cutAt) < SECOND) return;
    this.#readBin(now);
    const rate = this.#rate(now);
    const accepted =
      rate === null ? this.acceptedRate : Math.min(rate, Math.max(this.acceptedRate, Math.floor(rate / 2)));
    // Nothing accepted yet says nothing about a share.
    if (accepted === 0) return;
    this.cutRate = Math.max(accepted, 500);
    this.cutAt = now;
    this.next = Math.max(this.next, now);
  }

  skipUntil(until) {
    this.binStart = Math.max(this.binStart, until);
    this.accepted = 0;
  }

  wait(now) {
    if (this.#rate(now) === null) {
      this.cutRate = null;
      return 0;
    }
    return minus(this.next, now);
  }

  countSend(now) {
    const rate = this.#rate(now);
    if (rate !== null) this.next = Math.max(this.next, minus(now, SLACK)) + divide(1_000 * SECOND, rate);
  }

  #rate(now) {
    if (this.cutRate === null) return null;
    const passed = divide(minus(now, this.cutAt), MILLISECOND);
    let thousandths = 850 + divide(100 * passed, 2_000);
    if (passed >= 2_000) {
      const grown = Math.min(passed - 2_000, 1_000_000);
      thousandths = divide(grown * 5 + divide(grown * grown, 1_000), 1_000) + 950;
    }
    return thousandths < 2_000 ? Math.max(divide(this.cutRate * thousandths, 1_000), 500) : null;
  }

  #readBin(now) {
    const passed = minus(now, this.binStart);
    if (passed < 500 * MILLISECOND) return;
    const rate = Number((BigInt(this.accepted) * BigInt(1_000 * SECOND)) / BigInt(passed));
    this.acceptedRate = this.acceptedRate === 0 ? rate : divide(this.acceptedRate, 5) + divide(rate, 5) * 4;
    this.accepted = 0;
    this.binStart = now;
  }
}

/** Drops calls to a service that is short of capacity, before they are sent. */
class Throttle {
  #bins = Array.from({ length: 10 }, () => [0, 0]);
  #newest = 0;

  drops(now, draw) {
    this.#advance(now);
    const sum = (index) => this.#bins.reduce((total, bin) => total + bin[index], 0);
    const [calls, allowed] = [sum(0), divide(sum(1) * 15, 10)];
    if (calls < 20 || calls <= allowed) return false;
    const dropped = draw % 65_536 < Math.min(divide((calls - allowed) * 65_536, calls + 1), 58_982);
    if (dropped) this.count(now, false);
    return dropped;
  }

  count(now, accepted) {
    this.#advance(now);
    const bin = this.#bins[this.#newest % 10];
    bin[0] += 1;
    bin[1] += accepted ? 1 : 0;
  }

  #advance(now) {
    const newest = divide(now, SECOND);
    for (let each = 0; each < Math.min(minus(newest, this.#newest), 10); each += 1) {
      this.#bins[(newest - each) % 10] = [0, 0];
    }
    this.#newest = Math.max(this.#newest, newest);
  }
}

/** Everything known of one target. */
export class Target {
  #schedules = [];
  #share;
  #throttle = new Throttle();
  #inFlight = 0;
  #limit = null;
  #stated = null;
  #answers = 0;
  #hasAnswer = false;
  #tokens = 10_000;
  #filledAt;

  /** @param {number} now */
  constructor(now) {
    this.#share = new Share(now);
    this.#filledAt = now;
    this.heldUntil = 0;
    this.lastSent = 0;
    this.usedAt = now;
  }

  /**
   * What the next call does: `send`, `wait` for a time, `wait_for_answer`, or `held` for longer than `waitMax`.
   * @returns {{step: "send" | "wait" | "wait_for_answer" | "held", wait: number}}
   */
  plan(now, waitMax) {
    this.usedAt = now;
    let wait = Math.max(minus(this.heldUntil, now), this.#share.wait(now));
    for (const schedule of this.#schedules) wait = Math.max(wait, schedule.wait(this.lastSent, now));
    if (wait > waitMax) return { step: "held", wait };
    if (wait > 0) return { step: "wait", wait };
    const limit = this.#hasAnswer ? this.#limit : UNANSWERED_MAX;
    return { step: limit === null || this.#inFlight < limit ? "send" : "wait_for_answer", wait: 0 };
  }

  drops(now, draw) {
    return this.#throttle.drops(now, draw);
  }

  countSend(now, isFirst = true) {
    this.lastSent += 1;
    for (const schedule of this.#schedules) schedule.countSend(this.lastSent, now);
    this.#share.countSend(now);
    this.#inFlight += 1;
    if (isFirst) this.#tokens = Math.min(this.#tokens + 100, 50_000);
    return this.lastSent;
  }

  /**
   * Applies an answer.
   * @param {"served" | "refused" | "short" | "failed"} kind
   */
  record(sequence, kind, fields, now, jitter = 0) {
    const exhausted = fields.policies.filter((policy) => policy.remaining === 0);
    const limitedInFlight =
      kind === "refused" && exhausted.length > 0 && exhausted.every((policy) => policy.unit === "concurrency");
    this.#readPolicies(sequence, fields, now);
    if (kind === "served") {
      this.#share.countAccepted(now);
      this.#raiseInFlight();
    } else if (limitedInFlight) {
      this.#limit = Math.max(Math.min(divide(this.#inFlight * 80, 100), this.#limit ?? FOREVER), 1);
      this.#answers = 0;
    } else if (kind === "refused") {
      this.#share.cut(now);
    }
    this.#hasAnswer = true;
    this.cancel();
    this.#throttle.count(now, kind !== "short");
    if ((kind === "refused" || kind === "short") && !limitedInFlight && fields.wait !== null) {
      const spread = Math.floor(Math.min(fields.wait, SECOND) * jitter);
      this.heldUntil = Math.max(this.heldUntil, plus(plus(now, fields.wait), spread));
      this.#share.skipUntil(this.heldUntil);
      for (const schedule of this.#schedules) schedule.reopen(this.heldUntil);
    }
  }

  /** Forgets a call that got no answer. */
  cancel() {
    this.#inFlight = minus(this.#inFlight, 1);
  }

  spendRetry(stated, now) {
    this.#tokens = Math.min(this.#tokens + divide(minus(now, this.#filledAt), MILLISECOND), 50_000);
    this.#filledAt = now;
    const price = stated ? 500 : 1_000;
    if (this.#tokens < price) return false;
    this.#tokens -= price;
    return true;
  }

  #raiseInFlight() {
    if (this.#limit === null) return;
    this.#answers += 1;
    if (this.#answers >= this.#limit) {
      this.#answers = 0;
      this.#limit = Math.min(this.#limit + 1, this.#stated ?? FOREVER);
    }
  }

  #readPolicies(sequence, fields, now) {
    for (const reading of fields.policies) {
      if (reading.unit === "concurrency" && reading.quota !== null) {
        const stated = Math.max(reading.quota, 1);
        if (this.#stated !== stated) {
          this.#stated = stated;
          this.#limit = Math.min(this.#limit ?? FOREVER, stated);
        }
      }
      if (reading.unit !== "requests") continue;
      const known = this.#schedules.find((schedule) => schedule.name === reading.name);
      if (known) known.apply(reading, sequence, this.lastSent, now);
      else if (reading.remaining !== null) {
        if (this.#schedules.length === POLICIES_MAX) this.#schedules.shift();
        this.#schedules.push(new Schedule(reading, sequence, now));
      }
    }
    if (fields.policies.some((reading) => reading.remaining !== null && reading.quota !== null)) {
      const names = new Set(fields.policies.map((reading) => reading.name));
      this.#schedules = this.#schedules.filter((schedule) => names.has(schedule.name));
    }
  }
}
