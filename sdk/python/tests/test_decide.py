"""The client against a real Tidegate, and against servers that misbehave."""

import http.server
import threading
import unittest

from server import Server, free_port
from tidegate import Admitted, Limiter, OnError, Refused, RefusedError, Undecided


class AgainstTheService(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def limiter(self, **options):
        options.setdefault("timeout", 5)
        limiter = Limiter(self.server.url, domain="shop", **options)
        self.addCleanup(limiter.close)
        return limiter

    def test_admits_until_the_limit_and_then_says_how_long_to_wait(self):
        limiter = self.limiter()
        self.assertEqual(limiter.check(user="ada"), Admitted(remaining=1))
        self.assertEqual(limiter.check(user="ada"), Admitted(remaining=0))
        refused = limiter.check(user="ada")
        self.assertIsInstance(refused, Refused)
        self.assertEqual(refused.limit, "per-user")
        self.assertTrue(0 < refused.retry_after <= 1800)

    def test_a_refusal_is_remembered_until_its_retry_time(self):
        now = [0.0]
        limiter = self.limiter(clock=lambda: now[0])
        for _ in range(10):
            limiter.check(fast="a", cost=1)
        refused = limiter.check({"fast": "a"}, cost=10)
        self.assertIsInstance(refused, Refused)
        limiter._timeout = 0  # no call would succeed now
        again = limiter.check({"fast": "a"}, cost=10)
        self.assertIsInstance(again, Refused)
        limiter._timeout = 5
        now[0] += refused.retry_after
        self.assertIsNone(limiter._remembered(limiter._body([{"fast": "a"}], {}, 10)))

    def test_a_cost_that_never_fits_has_no_retry_time(self):
        self.assertEqual(self.limiter().check(user="eve", cost=3), Refused(retry_after=None, limit="per-user"))

    def test_peek_charges_nothing_and_refund_gives_back(self):
        limiter = self.limiter()
        limiter.check(user="bob")
        for _ in range(3):
            self.assertEqual(limiter.peek(user="bob"), Admitted(remaining=1))
        self.assertTrue(limiter.refund(user="bob"))
        self.assertEqual(limiter.check(user="bob"), Admitted(remaining=1))

    def test_a_permit_is_held_while_its_block_runs(self):
        limiter = self.limiter()
        with limiter.permit(job="report") as held:
            self.assertIsInstance(held, Admitted)
            with self.assertRaises(RefusedError):
                with limiter.permit(job="report"):
                    self.fail("the slot is taken")
        limiter._refusals.clear()
        with self.assertRaises(ZeroDivisionError):
            with limiter.permit(job="report"):
                raise ZeroDivisionError
        with limiter.permit(job="report"):
            pass

    def test_a_batch_is_decided_in_order(self):
        results = self.limiter().check_batch([{"user": "cy"}, [{"user": "cy"}, {"fast": "cy"}], {"user": "cy"}])
        self.assertEqual([type(result) for result in results], [Admitted, Admitted, Refused])

    def test_a_kept_connection_that_the_service_closed_is_replaced(self):
        limiter = self.limiter()
        limiter.check(fast="kept")
        limiter._idle[0].sock.shutdown(2)
        self.assertIsInstance(limiter.check(fast="kept"), Admitted)

    def test_results_are_neither_true_nor_false(self):
        with self.assertRaises(TypeError):
            bool(self.limiter().check(fast="truth"))

    def test_a_request_needs_a_descriptor(self):
        with self.assertRaises(ValueError):
            self.limiter().check()


class AgainstFailures(unittest.TestCase):
    def serve(self, status, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            calls = 0

            def do_POST(self):
                Handler.calls += 1
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}", Handler

    def test_garbage_and_errors_are_undecided(self):
        for status, body in [(200, b"garbage"), (200, b"[]"), (200, b"{}"), (503, b"{}"), (500, b""), (401, b"{}")]:
            url, _ = self.serve(status, body)
            with Limiter(url, domain="shop", timeout=5) as limiter:
                result = limiter.check(user="ada")
                self.assertIsInstance(result, Undecided, (status, body))
                self.assertTrue(result.allowed)
                self.assertIsInstance(limiter.check_batch([{"user": "ada"}])[0], Undecided)

    def test_a_service_that_is_gone_is_undecided_as_the_settings_say(self):
        limiter = Limiter(f"http://127.0.0.1:{free_port()}", domain="shop", on_error=OnError.DENY)
        result = limiter.check(user="ada")
        self.assertIsInstance(result, Undecided)
        self.assertFalse(result.allowed)
        with self.assertRaises(RefusedError):
            with limiter.permit(user="ada"):
                self.fail("denied")

    def test_a_failing_service_is_asked_once_a_second(self):
        url, handler = self.serve(503, b"{}")
        now = [0.0]
        limiter = Limiter(url, domain="shop", timeout=5, clock=lambda: now[0])
        for _ in range(100):
            limiter.check(user="ada")
        self.assertEqual(handler.calls, 5)
        now[0] += 1.0
        for _ in range(100):
            limiter.check(user="ada")
        self.assertEqual(handler.calls, 6)

    def test_a_bad_url_is_an_error_at_once(self):
        with self.assertRaises(ValueError):
            Limiter("localhost:8080", domain="shop")


if __name__ == "__main__":
    unittest.main()
