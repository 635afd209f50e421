"""The matrix without I/O: which cells there are, on which stands, and which are left after a run that was cut short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.errors import Mistake
from tailrace.host.place import Cpu
from tailrace.measure import matrix as the_matrix
from tailrace.measure import stand as the_stand
from tailrace.measure.matrix import cells, done, left, pattern, stands
from tailrace.results.run import RunFolder
from tailrace.spec.tests import Matrix


def matrix(**words: Any) -> Matrix:
    return Matrix.model_validate(words)


def test_patterns_are_written_as_rfc_8204_does() -> None:
    assert [pattern("north/south", functions) for functions in range(4)] == ["P2P", "PVP", "PVVP", "PVVVP"]
    assert [pattern("east/west", functions) for functions in range(3)] == ["VV", "VVV", "VVVV"]


def test_a_matrix_is_the_product_of_all() -> None:
    found = cells(
        matrix(
            fabrics=["tailrace", "linux-bridge"],
            interfaces=["vhost-user", "tap"],
            patterns=["VV", "PVP"],
            frames=[64, 1518],
        )
    )
    assert [cell.name for cell in found] == [
        f"{fabric}-{name}-{size}"
        for name_of in ("VV", "PVP")
        for interface in ("vhost-user", "tap")
        for fabric in ("tailrace", "linux-bridge")
        for name in (f"{interface}-{name_of}",)
        for size in (64, 1518)
    ]


def test_a_cell_that_two_patterns_name_is_measured_once() -> None:
    found = cells(
        matrix(
            fabrics=["tailrace"],
            interfaces=["vhost-user", "memif"],
            patterns=["P2P", "PVP", "PVVP", "north/south"],
            functions=[1, 2, 3],
            frames=[64],
        )
    )
    names = [cell.name for cell in found]
    assert len(names) == len(set(names)) == 7
    # Without functions it does not matter what their ports would be.
    assert names[0] == "tailrace-veth-P2P-64"
    assert [cell.functions for cell in found] == [0, 1, 1, 2, 2, 3, 3]


def test_without_a_switch_a_link_to_the_outside_is_of_the_outsides_kind() -> None:
    found = cells(
        matrix(fabrics=["direct"], interfaces=["vhost-user", "memif"], patterns=["PVP", "PVVP", "VV"], frames=[64])
    )
    assert [cell.name for cell in found] == [
        "direct-veth-PVP-64",
        "direct-vhost-user-PVVP-64",
        "direct-memif-PVVP-64",
        "direct-vhost-user-VV-64",
        "direct-memif-VV-64",
    ]


def test_what_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_stand, "allowed_cpus", lambda: [Cpu(number, core=number) for number in range(2)])

    def missing() -> None:
        raise Mistake("it is not installed; install it with `sudo apt-get install it`")

    changed = dict(the_matrix.KINDS)
    changed["tailrace"] = replace(changed["tailrace"], installed=missing)
    changed["direct"] = replace(changed["direct"], installed=lambda: None)
    monkeypatch.setattr(the_matrix, "KINDS", changed)
    test = matrix(fabrics=["tailrace", "direct"], interfaces=["memif", "tap"], patterns=["VV"], frames=[64, 1518])
    wanted, refused = left(test, known={"direct-memif-VV-64"})
    assert [cell.name for cell in wanted] == ["direct-memif-VV-1518"]
    reasons = {cell.name: reason for cell, reason in refused}
    assert reasons["tailrace-memif-VV-64"] == "it is not installed; install it with `sudo apt-get install it`"
    assert reasons["direct-tap-VV-64"] == "direct has no tap ports; it has vhost-user, memif, veth"
    assert len(reasons) == 6


def test_functions_are_one_to_eight() -> None:
    found = cells(matrix(fabrics=["direct"], interfaces=["vhost-user"], patterns=["east/west"], frames=[64]))
    assert [cell.functions for cell in found] == list(range(1, 9))
    for wrong in (0, 9):
        with pytest.raises(ValidationError):
            matrix(functions=[wrong])


def test_cells_that_differ_in_traffic_alone_share_a_stand() -> None:
    found = cells(
        matrix(fabrics=["tailrace", "direct"], interfaces=["vhost-user"], patterns=["VV"], frames=[64, "imix"])
    )
    assert [[cell.profile.name for cell in group] for group in stands(found)] == [["64", "imix"]] * 2


def test_what_is_done_is_known_from_the_run_folder(tmp_path: Path) -> None:
    found = cells(matrix(fabrics=["tailrace"], interfaces=["vhost-user"], patterns=["VV", "PVP"], frames=[64, 1518]))
    measured, refused, failed, _ = found
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={})
    folder.put_finding(measured.finding().model_copy(update={"p99_us": 3.5}))
    folder.put_finding(refused.finding().model_copy(update={"not_here": "too few cores"}))
    folder.put_finding(failed.finding().model_copy(update={"valid": False, "reason": "it died"}))
    folder.finish()
    again = RunFolder.reopen(folder.path, without=())
    assert not again.run.valid
    assert again.run.finished is None
    # What failed is tried again, and takes the place of what was kept of it.
    # And what could not be had is looked at again: it may have been installed meanwhile.
    assert done(again) == {measured.name}
    again.put_finding(failed.finding())
    assert done(again) == {measured.name, failed.name}
    assert len(again.run.findings) == 3
    assert again.finish().valid
