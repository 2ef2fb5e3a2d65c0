"""A stand-in for an engine as a process of its own: `python stub_server.py --port N`, told by a file.

It answers `/health`, `/v1/models`, `/metrics` and both kinds of request. While the file that STUB_ORDERS
names exists and holds `dead`, its worker is dead behind the open port, as one of transformers' is; `mute`:
health is well and no request is ever answered; `slow`: tokens take a tenth of a second. Else a token takes
as many seconds as STUB_PACE_S or the file `pace` of the artefact's folder says, the first one as many more as
`first` says, and it holds as many bytes as `ballast` says. As a real one it may die of a prompt: with
STUB_CACHE of one that is longer, in bytes and tokens of answer, and of one with POISON.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ORDERS = Path(os.environ.get("STUB_ORDERS", "/nonexistent"))
METRICS = os.environ.get("STUB_METRICS", "")
CACHE = int(os.environ.get("STUB_CACHE", "0"))
FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else "/nonexistent")


def told(name: str, otherwise: str = "0") -> str:
    """What a file of the artefact's folder says."""
    path = FOLDER / f"{name}.txt"
    return path.read_text() if path.is_file() else otherwise


PACE_S = float(told("pace", os.environ.get("STUB_PACE_S", "0")))  # of each token
FIRST_S = float(told("first"))  # more of the first
BALLAST = b"x" * int(told("ballast"))
SAID, KNOWN = told("said", "x"), told("known", "")
TOKEN_CHARACTERS = 4  # of what is known


def order() -> str:
    try:
        return ORDERS.read_text().strip()
    except OSError:
        return ""


def answer_to(asked: dict[str, Any], tokens: int) -> str:
    prompt = asked.get("prompt")
    goes_on = KNOWN.partition(prompt)[2] if isinstance(prompt, str) and prompt else ""
    return goes_on[: tokens * TOKEN_CHARACTERS] or SAID


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a token now and then waits 40 ms for a delayed acknowledgement

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health" and order() == "dead":
            self.answer(503, json.dumps({"status": "unhealthy", "reason": "cb_worker_dead"}))
        elif self.path == "/metrics" and METRICS:
            self.answer(200, METRICS.replace(";", "\n"), "text/plain")
        elif self.path in ("/health", "/v1/models"):
            self.answer(200, json.dumps({"status": "ok", "data": []}))
        else:
            self.answer(404, "{}")

    def maybe_die(self, asked: dict[str, Any]) -> None:
        said = asked.get("prompt") or "".join(each["content"] for each in asked.get("messages", ()))
        tokens = len(said.encode()) + asked.get("max_tokens", 4)
        if "POISON" in said or (CACHE and tokens > CACHE):
            os._exit(9)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if order() == "dead":
            self.answer(503, json.dumps({"error": "cb_worker_dead"}))
            return
        self.maybe_die(asked)
        while order() == "mute":
            time.sleep(0.05)
        count = min(asked.get("max_tokens", 4), 64)
        if not asked.get("stream"):
            time.sleep(PACE_S * count)
            usage = {"prompt_tokens": 3, "completion_tokens": count}
            self.answer(200, json.dumps({"choices": [{"text": answer_to(asked, count)}], "usage": usage}))
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(count):
            time.sleep((0.1 if order() == "slow" else PACE_S) + (0 if number else FIRST_S))
            last = number == count - 1
            choice = {"index": 0, "text": f"t{number} ", "finish_reason": "length" if last else None}
            event = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Engine)
    server.daemon_threads = True
    server.serve_forever()
