"""What several modules start from; a module with a fixture of the same name has its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sriov_kernel import SriovKernel, add_card

from tailrace.state.record import Record, State


@pytest.fixture
def kernel(tmp_path: Path) -> SriovKernel:
    """One whose machine has a network card with virtual functions."""
    add_card(tmp_path / "root")
    return SriovKernel(tmp_path / "root")


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A state folder with nothing on record."""
    (tmp_path / "state").mkdir()
    return State(tmp_path / "state", Record(boot=""))
