"""scripts/tests-short, which `make test-short` runs: what it names is there, and each has a reason."""

from __future__ import annotations

from pathlib import Path


def test_every_test_that_it_names_exists_and_says_why(repository: Path) -> None:
    lines = (repository / "scripts/tests-short").read_text().splitlines()
    named = [line for line in lines if line and not line.startswith("#")]
    assert named
    for line in named:
        test, _, why = line.partition("#")
        file, _, function = test.strip().partition("::")
        assert (repository / file).is_file(), line
        assert not function or f"def {function}(" in (repository / file).read_text(), line
        assert why.strip(), line
