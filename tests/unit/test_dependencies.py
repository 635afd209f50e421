"""The lower bounds of pyproject.toml are versions that `scripts/test oldest` can install, and none is above its pin."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_every_dependency_has_a_lower_bound_that_is_a_version() -> None:
    needed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = dict(line.split("==") for line in (REPOSITORY / "requirements.txt").read_text().splitlines() if "==" in line)
    pins = {re.sub("[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    assert needed
    for each in needed:
        found = re.fullmatch(r"([A-Za-z0-9-]+)>=([0-9]+\.[0-9]+\.[0-9]+)(,<[0-9.]+)?", each)
        assert found is not None, f"{each}: scripts/setup reads NAME>=X.Y.Z"
        assert number(found[2]) <= number(pins[found[1].lower()]), each
