"""What the page asks for beside the stream, view by view; each is a JSON document, made in a thread.

What cannot be answered is `{"error": …}`, in the words that the command line has for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tailrace.dashboard import functions, runs
from tailrace.dashboard.host import Host
from tailrace.dashboard.measurement import Measurement
from tailrace.dashboard.record import Record
from tailrace.errors import Mistake, TailraceError

_THREADS = 4
"""For all that is asked for here: pictures have threads of their own, and never wait for a report."""
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'"
)
"""A report is a page of no origin: whatever is in a run, it cannot reach the dashboard."""


@dataclass(frozen=True)
class Places:
    """Where what is shown lies."""

    state: Path
    """The node's state folder."""
    runs: Path
    """The folder of runs."""
    record: Record | None = None
    """What can be replayed."""


def routes(places: Places, host: Host, measurement: Measurement, *, control: bool) -> list[Route]:
    """Those of one node; with `control` it may be changed too."""
    threads = ThreadPoolExecutor(_THREADS)

    def answered(make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                made = await asyncio.get_running_loop().run_in_executor(threads, make, request)
            except TailraceError as error:
                return JSONResponse({"error": str(error)}, 404 if isinstance(error, Mistake) else 503)
            return made if isinstance(made, Response) else JSONResponse(made)

        return answer

    asked: dict[str, Callable[[Request], Any]] = {
        "functions": lambda _: {"control": control, "functions": functions.functions(places.state)},
        "functions/{name}/log": lambda request: {"lines": functions.log(places.state, request.path_params["name"])},
        "host": lambda _: host.document(),
        "measurement": lambda _: measurement.document(),
        "record": lambda _: places.record.document() if places.record else {"parts": []},
        "record/{at:float}": lambda request: _part(places.record, request.path_params["at"]),
        "runs": lambda _: {"folder": str(places.runs), "runs": runs.listed(places.runs)},
        "diff": lambda request: runs.difference(places.runs, *(request.query_params.get(each, "") for each in "ab")),
    }
    found = [Route(f"/api/{path}", answered(make), methods=["GET"]) for path, make in asked.items()]
    found.append(Route("/api/runs/{name}/report", answered(lambda request: _report(places.runs, request))))
    if control:
        restart = answered(lambda request: functions.restart(places.state, request.path_params["name"]))
        found.append(Route("/api/functions/{name}/restart", restart, methods=["POST"]))
    return found


def _report(folder: Path, request: Request) -> Response:
    text = runs.report(folder, request.path_params["name"])
    return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})


def _part(record: Record | None, at: float) -> Response:
    if record is None:
        raise Mistake("nothing is recorded; see `tailrace dashboard --help`")
    return Response(record.part(at), media_type="application/x-ndjson")
