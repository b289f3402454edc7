"""Paced calls to a real Tidegate, whose checks carry the fields of a limit of ten a second."""

import http.client
import json
import threading
import unittest

from server import Server
from tidegate import HeldError, Pacer

CALLS = 30


class Answer:
    def __init__(self, status, headers):
        self.status_code, self.headers = status, headers


class Paced(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def check(self, user):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        body = {"domain": "shop", "descriptors": [{"entries": [{"key": "fast", "value": user}]}]}
        connection.request("POST", "/v1/check", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return Answer(answer.status, dict(answer.getheaders()))

    def count_refusals(self, call):
        refused, threads = [], []
        for _ in range(10):
            def work():
                for _ in range(CALLS // 10):
                    refused.append(call().status_code == 429)
            threads.append(threading.Thread(target=work))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(refused)

    def test_paced_calls_are_not_refused(self):
        without = self.count_refusals(lambda: self.check("plain"))
        pacer = Pacer(attempts_max=1)
        paced = self.count_refusals(lambda: pacer.call("shop", lambda: self.check("paced")))
        print(f"refused of {CALLS}: {without} without the pacer, {paced} with it")
        self.assertGreater(without, CALLS // 3)
        # A busy machine delays calls past the edge of a window, so that a few are refused.
        self.assertLess(paced, without / 2)

    def test_a_target_that_asked_to_wait_is_closed(self):
        pacer, calls = Pacer(wait_max=1.0), []

        def refuse():
            calls.append(1)
            return Answer(429, {"retry-after": "3600"})

        self.assertEqual(pacer.call("api", refuse).status_code, 429)
        with self.assertRaises(HeldError) as held:
            pacer.call("api", refuse)
        self.assertGreaterEqual(held.exception.retry_after, 3_599)
        self.assertEqual(len(calls), 1)

    def test_a_failed_call_is_repeated_and_its_error_raised_at_last(self):
        calls = []

        def fail():
            calls.append(1)
            raise ConnectionResetError("reset")

        with self.assertRaises(ConnectionResetError):
            Pacer().call("api", fail)
        self.assertEqual(len(calls), 3)
        with self.assertRaises(ConnectionResetError):
            Pacer().call("api", fail, repeatable=False)
        self.assertEqual(len(calls), 4)


if __name__ == "__main__":
    unittest.main()
