"""What was measured: the model of results.json, run folders, latency histograms.

For those who measure (tailrace.measure, tailrace.cli), in the order of use:

    with RunFolder.create(runs: Path, name: str, *, spec: str, host: dict, command: Sequence[str],
                          versions: dict[str, str], method: str | None = None, spec_name: str | None = None,
                          fabric: str | None = None, oversubscribed: bool = False,
                          notes: Sequence[str] = ()) -> RunFolder as folder:
        folder.path, folder.logs         # Path of the folder, and of its logs/ for the daemons' stderr
        folder.add_trial(result: dict,   # the tester's trial.result as it came
                         *, name: str, profile: str, functions: int | None, offered_pps: float,
                         searched: NoLossRate | None = None, confirmed: bool = False,
                         rate_fraction: float | None = None, attempt: int | None = None) -> Trial
        folder.note(text)                # one sentence that a reader must know
        folder.invalidate(reason)        # a VNF died, ...: valid becomes false; the first reason stands
    # leaving the block finishes the run; an exception (Ctrl-C too) first marks it invalid with the reason
    folder.run                           # the Run so far, frozen

    load_run(folder: Path) -> Run        # of an older format too; raises Unreadable (a Mistake)
    run.to_json() -> str                 # what --json prints

    tailrace.report.table.print_run(run: Run, console: rich.console.Console | None = None) -> None
    tailrace.report.html.write_report(folder: Path) -> Path     # report.html in the run folder, and where it is

results.json is on disk and whole after every call; until the run has finished it says that it has not. A trial with
functions=0 is the floor; trials of the same profile that follow it get their share (chain less floor) by themselves.
"""

from tailrace.results.model import FORMAT, Direction, ResultError, Run, Trial, Unreadable, parse_run
from tailrace.results.run import RunFolder, load_run

__all__ = ["FORMAT", "Direction", "ResultError", "Run", "RunFolder", "Trial", "Unreadable", "load_run", "parse_run"]
