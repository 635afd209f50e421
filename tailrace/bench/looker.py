"""Somebody who looks at the dashboard: its server as a user starts it, and its page in Chromium, which notes what its
pictures cost it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.bench.browser import Browser, browser
from tailrace.errors import Failure
from tailrace.state.folder import ENVIRONMENT

_SETTLE = 3.0
_WIDTH, _HEIGHT = 1440, 900
_LIMIT = 30.0
#: Counts each picture's work in the page: what is done when it comes, and from the frame's begin to after its effects.
#: Notes when a value was painted that an element had not before.
_WATCH = """(() => {
  const kept = window.bench = {frames: [], painted: null, pictures: 0};
  const add = EventSource.prototype.addEventListener;
  EventSource.prototype.addEventListener = function (name, listener, ...more) {
    const timed = event => {
      const begin = performance.now();
      performance.mark("picture"); // for who traces
      performance.clearMarks();
      listener(event);
      Promise.resolve().then(() => Promise.resolve()).then(() => {
        const busy = performance.now() - begin;
        kept.pictures++;
        requestAnimationFrame(() => {
          const frame = performance.now();
          setTimeout(() => kept.frames.push(busy + performance.now() - frame));
        });
      });
    };
    return add.call(this, name, name === "change" ? SPEED(timed) : listener, ...more);
  };
})()"""
#: The stream at so many times its speed: each change is heard so often, its time running as fast.
_FASTER = """(listener => {
  let first = null, open = 0;
  return event => {
    if (open > 2 * TIMES) return;  // a machine that is too slow for it
    const said = JSON.parse(event.data), time = said.time;
    first ??= time;
    open += TIMES;
    for (let i = 0; i < TIMES; i++) {
      const at = first + (time - first) * TIMES + i * 0.1;
      setTimeout(() => {
        open--;
        listener({data: JSON.stringify({...said, time: at})});
      }, i * 100 / TIMES);
    }
  };
})"""


@contextmanager
def dashboard_of(
    folder: Path, *options: str, within: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tailrace dashboard` of a state folder, and its link. `within`: what is put before the command, as `nice`."""
    isolated = ["-I"] if sys.flags.isolated else []
    command = [*within, sys.executable, *isolated, "-m", "tailrace.cli.main", "dashboard"]
    words = [*command, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, ENVIRONMENT: str(folder)},
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http\S+", process.stdout.readline())
            if found is None:
                raise Failure("tailrace dashboard has not started")
            yield process, found[0]
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def looked_at(link: str, speed: int = 1, *, within: Sequence[str] = (), state: str = "live") -> Iterator[Browser]:
    """The page in a browser of its own, once it says its state and has settled; it takes pictures at so many times
    their speed."""
    with tempfile.TemporaryDirectory() as profile_folder, browser(Path(profile_folder), within) as page:
        faster = _FASTER.replace("TIMES", str(speed)) if speed > 1 else ""
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH.replace("SPEED", faster))
        page.open(link, _WIDTH, height=_HEIGHT)
        wait_for(page, f"document.querySelector('.pill')?.textContent === '{state}'")
        time.sleep(_SETTLE)
        yield page


def wait_for(page: Browser, what: str, named: str = "") -> None:
    """Until an expression is true in the page. Raises Failure, which names what the page did not do."""
    deadline = time.monotonic() + _LIMIT
    while not page.evaluate(what):
        if time.monotonic() > deadline:
            raise Failure(f"the page does not {named or f'come to: {what}'}, within {_LIMIT:g} s")
        time.sleep(0.05)
