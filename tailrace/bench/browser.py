"""A real browser for pages that we make: Chromium without a window, driven by its DevTools protocol over two pipes.

Pages are files, or those of a server of ours. What a page complains of (exceptions, console, refused resources) is
collected from its first line on.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tailrace.errors import Failure
from tailrace.process.process import descendants, end, identify

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--hide-scrollbars",
)  # fmt: skip
LIMIT = 60.0
"""Seconds that a method or a page may take, on a machine that has much else to do."""


class Browser:
    """One tab. The protocol is JSON, a NUL after each message (https://chromedevtools.github.io/devtools-protocol/)."""

    def __init__(self, to: int, out: int, *, limit: float = LIMIT) -> None:
        """The descriptors are pipes. Whatever takes longer than `limit` seconds raises TimeoutError."""
        os.set_blocking(to, False)
        self._to, self._out, self._limit = to, out, limit
        self._heard = bytearray()
        self._last = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self._loaded = False
        self._traced: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method; what happens meanwhile is noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        until = time.monotonic() + self._limit
        data = json.dumps(message).encode() + b"\0"
        while data:
            self._wait(until, method, writing=True)
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read(until, method)
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]

    def _wait(self, until: float, what: str, *, writing: bool = False) -> None:
        """Until the browser takes something, or has said something."""
        left = max(until - time.monotonic(), 0.0)
        ready = select.select([] if writing else [self._out], [self._to] if writing else [], [], left)
        if not any(ready):
            raise TimeoutError(f"the browser has not done {what} within {self._limit:g} s")

    def _read(self, until: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._heard:
            self._wait(until, what)
            data = os.read(self._out, 1 << 16)
            assert data, "the browser has ended"
            self._heard += data
        said, _, self._heard = self._heard.partition(b"\0")
        message: dict[str, Any] = json.loads(said)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(" ".join(str(each.get("value")) for each in params["args"]))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Page.loadEventFired":
                self._loaded = True
            case "Tracing.tracingComplete":
                self._traced = params["stream"]
                if params.get("dataLossOccurred"):
                    raise Failure("the browser could not keep all events of a trace; measure for a shorter time")
        return message

    def open(self, page: Path | str, width: int, *, height: int = 900, dark: bool = False) -> None:
        """Loads a page, a file or a URL, in a view of `width` pixels, and returns when its scripts have run."""
        self.view(width, height=height, dark=dark)
        self._loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        until = time.monotonic() + self._limit
        while not self._loaded:
            self._read(until, f"loading {page}")

    def view(self, width: int, *, height: int = 900, dark: bool = False) -> None:
        """Shows what is open in a view of `width` pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def begin_trace(self, *categories: str) -> None:
        """Of what the browser does, events of these categories are noted (chrome://tracing names them)."""
        self._traced = None
        config = {"includedCategories": list(categories), "excludedCategories": ["*"]}
        self.call("Tracing.start", transferMode="ReturnAsStream", traceConfig=config)

    def end_trace(self) -> list[dict[str, Any]]:
        """The events since, in the Trace Event Format: times are in µs."""
        self.call("Tracing.end")
        until, text = time.monotonic() + self._limit, ""
        while self._traced is None:
            self._read(until, "ending a trace")
        while True:
            part = self.call("IO.read", handle=self._traced)
            text += base64.b64decode(part["data"]).decode() if part.get("base64Encoded") else part["data"]
            if part["eof"]:
                break
        self.call("IO.close", handle=self._traced)
        found = json.loads(text)
        events: list[dict[str, Any]] = found["traceEvents"] if isinstance(found, dict) else found
        return events

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print(self, path: Path) -> None:
        """The page on paper, as a PDF."""
        answer = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def browser(profile: Path, within: Sequence[str] = ()) -> Iterator[Browser]:
    """A browser with a profile of its own, ended with the block. `within` stands before its command, as `nice`."""
    # It leaves a folder for temporary files behind; the profile's path may be too long for its socket there.
    with TemporaryDirectory() as temporary:
        yield from _browser(profile, temporary, within)


def _browser(profile: Path, temporary: str, within: Sequence[str]) -> Iterator[Browser]:
    assert CHROMIUM is not None
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    # The protocol is spoken on descriptors 3 and 4.
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "chromium", *within, CHROMIUM,
         *OPTIONS,
         f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": temporary},
    )  # fmt: skip
    os.close(their_in)
    os.close(their_out)
    try:
        yield Browser(our_out, our_in)
    finally:
        helpers = [found for pid in descendants(process.pid) if (found := identify(pid))]
        process.terminate()
        process.wait(20)
        for helper in helpers:  # it may outlive the browser, and write to the profile while that is removed
            end(helper)
        os.close(our_out)
        os.close(our_in)
