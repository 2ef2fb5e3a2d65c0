"""Files of text that come slowly: over HTTP on loopback, the same few lines each, after a while."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class SlowFiles(BaseHTTPRequestHandler):
    """Answers every file with the same few lines, after its server's `delay_s`."""

    never = threading.Event()

    def do_GET(self) -> None:
        self.never.wait(self.server.delay_s)  # type: ignore[attr-defined]
        body = "".join(json.dumps({"text": f"{self.path} {at} " * 12}) + "\n" for at in range(12)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def slow_files(count: int, delay_s: float) -> Iterator[str]:
    """Their addresses, with commas between."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowFiles) as server:
        server.delay_s = delay_s  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        port = server.server_address[1]
        yield ",".join(f"http://127.0.0.1:{port}/{number}.jsonl" for number in range(count))
        server.shutdown()
        thread.join()
