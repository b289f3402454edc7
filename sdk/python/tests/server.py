"""A real Tidegate for the tests: `TIDEGATE` names the program, or `target/debug/tidegate` is used."""

import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("TIDEGATE", str(ROOT / "target" / "debug" / "tidegate"))

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {name: per-user, algorithm: token_bucket, unit: hour, requests_per_unit: 2}
  - key: fast
    rate_limit: {name: fast, algorithm: token_bucket, unit: second, requests_per_unit: 10}
  - key: job
    rate_limit: {name: jobs, algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Serves `RULES` until it is stopped."""

    def __init__(self, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        rules = pathlib.Path(self._folder.name) / "rules.yaml"
        rules.write_text(RULES)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = [
            f"rules.paths={rules}",
            f"http.listen=127.0.0.1:{self.port}",
            "grpc.listen=127.0.0.1:0",
            "debug.listen=127.0.0.1:0",
            *arguments,
        ]
        command = [PROGRAM, "serve"]
        for setting in settings:
            command += ["--set", setting]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=1):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no Tidegate: {self._process.stderr.read().decode()}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._process.stderr.close()
        self._folder.cleanup()
