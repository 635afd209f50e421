"""What the machine itself takes, with nothing around: small programs with a thread on the switch's core and one on the
load's, to hold the switch against."""

from __future__ import annotations

import json

from tailrace.bench.setting import Setting
from tailrace.errors import Failure
from tailrace.process.process import Limits
from tailrace.process.programs import own_program
from tailrace.resources.place import POLLER_NICE

END_SECONDS = 30.0


def bare(setting: Setting, program: str, seconds: float, *options: str) -> dict[str, float]:
    """Runs one of them for so many seconds and returns the numbers that it prints.

    Raises Failure, with its last words, if it fails or does not come to an end.
    """
    cores = (setting.cores.switch, setting.cores.load)
    argv = [str(own_program(program)), "--cores", f"{cores[0]},{cores[1]}", "--seconds", f"{seconds:g}"]
    setting.launcher.log(program).unlink(missing_ok=True)
    process = setting.launcher.start(program, [*argv, *options, "--json"], Limits(cpus=cores, nice=POLLER_NICE))
    ended = process.id.wait(seconds + END_SECONDS)
    setting.launcher.state.undo(process)
    if not ended:
        raise Failure(f"{program} did not come to an end")
    try:
        found = json.loads(setting.launcher.last_words(program))
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    except ValueError:
        raise setting.launcher.failure(program, f"{program} failed") from None
