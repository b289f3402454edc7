"""The vectors that all client libraries share: `sdk/vectors`, made by the Rust crate."""

import json
import pathlib
import unittest

from tidegate.fields import MILLISECOND, SECOND, read_fields
from tidegate.pace import Target, classify

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "vectors"


class Vectors(unittest.TestCase):
    def test_fields_are_read_as_in_rust(self):
        vectors = json.loads((VECTORS / "fields.json").read_text())
        for case in vectors["cases"]:
            read = read_fields(case["headers"], vectors["day_seconds"] * SECOND)
            got = {
                "wait_ns": read.wait,
                "forbids_retry": read.forbids_retry,
                "policies": [
                    {
                        "name": policy.name,
                        "unit": policy.unit,
                        "quota": policy.quota,
                        "window_ns": policy.window,
                        "remaining": policy.remaining,
                        "reset_ns": policy.reset,
                    }
                    for policy in read.policies
                ],
            }
            self.assertEqual(got, case["expect"], case["headers"])

    def test_calls_are_paced_as_in_rust(self):
        vectors = json.loads((VECTORS / "pacing.json").read_text())
        for scenario in vectors["scenarios"]:
            target = Target(scenario["steps"][0]["at_ms"] * MILLISECOND)
            for index, step in enumerate(scenario["steps"]):
                got = self.run_step(target, step, vectors["day_seconds"] * SECOND)
                self.assertEqual(got, step["expect"], f"seed {scenario['seed']}, step {index}: {step}")

    def run_step(self, target, step, day):
        now = step["at_ms"] * MILLISECOND
        if "plan" in step:
            kind, wait = target.plan(now, step["plan"]["wait_max_ms"] * MILLISECOND)
            return {"step": kind, "ns": wait} if kind in ("wait", "held") else {"step": kind}
        if "send" in step:
            return {"sequence": target.count_send(now)}
        if "answer" in step:
            answer = step["answer"]
            fields = read_fields(answer["headers"], day)
            target.record(answer["sequence"], classify(answer["status"], answer["headers"]), fields, now)
            return {"held_ns": max(target.held_until - now, 0)}
        if "retry" in step:
            return {"paid": target.spend_retry(step["retry"]["stated"], now)}
        return {"dropped": target.drops(now, step["drop"]["random"])}


if __name__ == "__main__":
    unittest.main()
