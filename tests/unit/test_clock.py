"""Which machines may measure latency, by copies of their /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import Mistake
from tailrace.kernel.tree import Tree
from tailrace.measure.clock import check_clock, clock_refusal

GOOD = "fpu tsc constant_tsc nonstop_tsc"


def machine(folder: Path, *flags: str, key: str = "flags") -> Tree:
    """A machine of as many CPUs as there are lists of flags."""
    (folder / "proc").mkdir()
    blocks = [f"processor\t: {number}\n{key}\t\t: {each}\n" for number, each in enumerate(flags)]
    (folder / "proc/cpuinfo").write_text("\n".join(blocks))
    return Tree(folder)


def test_an_invariant_counter_is_a_clock(tmp_path: Path) -> None:
    assert clock_refusal(machine(tmp_path, GOOD, GOOD)) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("fpu tsc nonstop_tsc",), "CPU 0's .* changes its rate .* lacks constant_tsc.* another processor"),
        ((GOOD, "fpu tsc constant_tsc"), "CPU 1's .* stops in deep sleep.* lacks nonstop_tsc.* another processor"),
        (("fpu tsc hypervisor",), "lacks constant_tsc.*invtsc"),
    ],
)
def test_any_other_is_refused_with_the_reason_and_what_to_do(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(Mistake, match=said):
        check_clock(machine(tmp_path, *flags))


def test_what_is_no_such_machine_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in (clock_refusal(Tree(tmp_path)) or "")
    assert "no x86" in (clock_refusal(machine(tmp_path, "fp asimd", key="Features")) or "")
