"""A machine's moves to another node, as a table: beside what others publish."""

from __future__ import annotations

from tailrace.process.plain import plain
from tailrace.report.figures import chain_name, count, profile_name
from tailrace.report.lines import Chart, Line
from tailrace.report.rounds import figure, remark
from tailrace.report.section import Section
from tailrace.results.migration import PUBLISHED_MS, MigrationFinding
from tailrace.results.spread import by_case

PUBLISHED = (
    f"Published for comparison: at most {PUBLISHED_MS:g} ms of network outage in a live migration, with KVM (Wind "
    "River and Intel)."
)
_EMULATED = (
    "The machine is emulated here. What QEMU sends is made by the core that emulates the guest, so the emulator has a "
    "part in all of these times."
)


def milliseconds(number: float) -> str:
    """263, 14.2 or 0.31."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def within(found: list[MigrationFinding]) -> int:
    """In how many moves the outage was no longer than others publish."""
    return sum(each.outage_ms <= PUBLISHED_MS for each in found)


def moves(found: list[MigrationFinding]) -> Section:
    rows, lines = [], []
    for rounds in by_case(found):
        first = rounds[0]
        rows.append(
            (
                profile_name(first.profile) + ("" if all(each.valid for each in rounds) else " !"),
                str(len(rounds)),
                *(
                    figure([getattr(each, f"{name}_ms") for each in rounds], milliseconds)
                    for name in ("outage", "pause", "switch")
                ),
                count(sum(each.parked for each in rounds)),
            )
        )
        for stream in first.outages_ms:
            known = [(float(each.round), each.outages_ms.get(stream, 0.0)) for each in rounds]
            lines.append(Line(f"{profile_name(first.profile)}, {plain(stream)}", tuple(known)))
    first = found[0]
    longest, forwarded = max(each.total_ms for each in found), sum(each.forwarded for each in found)
    return Section(
        f"Moves of a machine to another node ({chain_name(first.functions)})",
        ("frames", "moves", "outage ms", "pause ms", "switch ms", "parked"),
        tuple(rows),
        (
            f"Outage: the longest time without a frame of a stream, of the stream where it was longest; known to "
            f"{milliseconds(max(each.frame_ms for each in found))} ms, the time between two frames of one. "
            f"It was at most {PUBLISHED_MS:g} ms in {within(found)} of {len(found)} moves. {PUBLISHED}",
            "Pause: the machine stood still, as QEMU has counted. Switch: from its end at the source until it "
            f"forwarded at the target. All together: up to {milliseconds(longest)} ms. Parked: frames that waited for "
            f"it and that it got at the target; {count(forwarded)} of them had come to the source.",
            *([_EMULATED] if any(each.acceleration == "emulated" for each in found) else []),
            *remark(max(each.round for each in found)),
        ),
        (Chart("Outage by move", "move", "ms without a frame", tuple(lines)),) if len(found) > 1 else (),
    )
