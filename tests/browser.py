"""Debian's Chromium without a window, asked over its own protocol through a pair of pipes.

A dozen orders are all that the tests need, and the standard library sends them. A driver from the index
(Playwright) would bring 53 MB and a runtime of its own into every fresh checkout, and be made for another
release of the browser.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60.0  # a busy machine starts it slowly
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--hide-scrollbars", "--mute-audio",
)  # fmt: skip


def program() -> str | None:
    """Where a Chromium lies, if one does."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@dataclass(frozen=True, slots=True)
class Screen:
    """What a page is shown on."""

    width_px: int
    height_px: int = 800
    scheme: str = "light"
    medium: str = "screen"


@dataclass(slots=True)
class Browser:
    """A running browser: orders go in, answers and events come out; both end with a zero byte."""

    orders: int
    answers: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _count: int = 0
    _rest: bytes = b""

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """What the browser answers to an order; events that come before the answer are kept."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": params}
        _write(self.orders, json.dumps(order | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") != self._count:
                self.events.append(said)
                continue
            assert "error" not in said, f"{method}: {said['error']}"
            answer: dict[str, Any] = said["result"]
            return answer

    def wait(self, event: str, session: str) -> None:
        """Until an event has come."""
        while not any(e.get("method") == event and e.get("sessionId") == session for e in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        ends = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.answers], [], [], max(ends - time.monotonic(), 0.0))
            assert ready, f"the browser was silent for {PATIENCE_S:.0f} s"
            part = os.read(self.answers, 1 << 20)
            assert part, "the browser ended"
            self._rest += part
        said, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(said)
        return message


@dataclass(slots=True)
class Tab:
    """One page in a browser, with what it asked for and what it complained of."""

    browser: Browser
    session: str

    def show(self, path: Path, screen: Screen) -> None:
        """Opens a file on a screen, and waits until it is there."""
        self.browser.events.clear()
        self.resize(screen)
        self._ask("Page.navigate", url=path.resolve().as_uri())
        self.browser.wait("Page.loadEventFired", self.session)

    def resize(self, screen: Screen) -> None:
        """The same page on another screen."""
        sizes = {"width": screen.width_px, "height": screen.height_px, "deviceScaleFactor": 1}
        self._ask("Emulation.setDeviceMetricsOverride", mobile=screen.width_px < 500, **sizes)
        scheme = [{"name": "prefers-color-scheme", "value": screen.scheme}]
        self._ask("Emulation.setEmulatedMedia", media=screen.medium, features=scheme)

    def value(self, script: str) -> Any:
        """What an expression of JavaScript is worth in the page, which itself runs none."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def pdf(self) -> bytes:
        """The page on A4, as it prints."""
        sheet = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
        return base64.b64decode(self._ask("Page.printToPDF", **sheet)["data"])

    def picture(self) -> bytes:
        """What the screen shows, as PNG: for eyes, no test compares it."""
        return base64.b64decode(self._ask("Page.captureScreenshot")["data"])

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        sent = [e for e in self.browser.events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    @property
    def complaints(self) -> list[str]:
        """What stands in the console, and what went wrong unseen."""
        kinds = (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Network.loadingFailed",
        )
        return [json.dumps(e["params"]) for e in self.browser.events if e.get("method") in kinds]

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **params)


KEYS = {"Tab": 9}


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """A browser with one tab, which keeps what it writes in `folder`; it ends with the block."""
    found = program()
    assert found is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Chromium listens on descriptor 3 and speaks on 4; it refuses its sandbox to root.
    words = [found, *FLAGS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    bound = ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', *words]
    with (folder / "stderr.txt").open("wb") as log:
        running = subprocess.Popen(bound, pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        browser = Browser(ours_out, ours_in)
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(browser, browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Network", "Log", "Runtime"):
            browser.ask(f"{domain}.enable", tab.session)
        yield tab
        browser.ask("Browser.close")
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
