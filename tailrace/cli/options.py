"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and no progress bar.")]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where run folders are made.")]
HugeOption = Annotated[
    bool,
    typer.Option("--huge/--no-huge", help="Memory of functions and tester in 2 MiB pages, or in ordinary pages."),
]
RepeatOption = Annotated[
    int, typer.Option("--repeat", min=1, max=1000, metavar="N", help="Repeat everything N times, and show the spread.")
]
ConnectionsOption = Annotated[
    int | None,
    typer.Option(
        "--connections",
        min=1,
        max=64,
        metavar="N",
        help="By how many connections memory is sent, side by side. With QEMU 7.2, a move by several that fails or is "
        "cancelled can leave the machine unable to move again until it is started anew.",
        show_default="as the spec says, or 1",
    ),
]
DEFAULT_METRICS = "127.0.0.1:9752"
DEFAULT_DASHBOARD = "127.0.0.1:9753"
DEFAULT_RUNS = Path("runs")
