"""What out of sequence means where a function has replicas: that flows overtook each other, of a flow nothing."""

from __future__ import annotations

from collections import Counter

from tailrace.plan.planned import Plan
from tailrace.results import Run


def shared_out(plan: Plan) -> list[str]:
    """The functions of several replicas that a chain from one end of the tester to the other passes, in its order."""
    replicas = Counter(each.function for each in plan.functions)
    passed = dict.fromkeys(name for chain in plan.chains if chain.tested for name in chain.through)
    return [name for name in passed if replicas[name] > 1]


def overtaking_note(plan: Plan, run: Run) -> str | None:
    """What a reader must know of frames that were out of sequence; None where none was, or none had another way.

    Nor is it said of the method that looks at just that, flow by flow.
    """
    functions = shared_out(plan)
    disturbed = any(trial.flows != 1 and trial.total("out_of_sequence") for trial in run.trials)
    if not functions or not disturbed or run.method == "reorder":
        return None
    names = " and ".join(repr(name) for name in functions)
    return (
        "Out of sequence: overtaken by other flows, or by the frame's own. Order is counted over all flows of a "
        f"direction together, and the replicas of {names} keep frames for unequal times. `tailrace measure reorder` "
        "looks at each flow by itself."
    )
