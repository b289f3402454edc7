// The vectors that all client libraries share: sdk/vectors, made by the Rust crate.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { MILLISECOND, readFields } from "../src/fields.js";
import { classify } from "../src/pace.js";
import { Target } from "../src/target.js";

const vectors = async (name) => JSON.parse(await readFile(new URL(`../../vectors/${name}.json`, import.meta.url), "utf8"));

test("fields are read as in Rust", async () => {
  const { day_seconds: day, cases } = await vectors("fields");
  for (const { headers, expect } of cases) {
    const read = readFields(new Headers(headers), day * 1_000);
    const policies = read.policies.map(({ name, unit, quota, window, remaining, reset }) => ({
      name, unit, quota, window_ns: window, remaining, reset_ns: reset,
    }));
    assert.deepEqual({ wait_ns: read.wait, forbids_retry: read.forbidsRetry, policies }, expect, JSON.stringify(headers));
  }
});

test("calls are paced as in Rust", async () => {
  const { day_seconds: day, scenarios } = await vectors("pacing");
  for (const { seed, steps } of scenarios) {
    const target = new Target(steps[0].at_ms * MILLISECOND);
    steps.forEach((step, index) => {
      assert.deepEqual(run(target, step, day * 1_000), step.expect, `seed ${seed}, step ${index}`);
    });
  }
});

function run(target, step, dayMs) {
  const now = step.at_ms * MILLISECOND;
  if (step.plan) {
    const { step: kind, wait } = target.plan(now, step.plan.wait_max_ms * MILLISECOND);
    return kind === "wait" || kind === "held" ? { step: kind, ns: wait } : { step: kind };
  }
  if (step.send) return { sequence: target.countSend(now) };
  if (step.answer) {
    const headers = new Headers(step.answer.headers);
    target.record(step.answer.sequence, classify(step.answer.status, headers), readFields(headers, dayMs), now);
    return { held_ns: Math.max(target.heldUntil - now, 0) };
  }
  if (step.retry) return { paid: target.spendRetry(step.retry.stated, now) };
  return { dropped: target.drops(now, step.drop.random) };
}
