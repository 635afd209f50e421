"""Each test and fuzz target that docs/threat-model.md names exists, and each attack with a number is named there."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs/threat-model.md").read_text()


def existing() -> set[str]:
    """Tests of both languages, as they are defined."""
    python = (path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py"))
    c = (path.read_text() for path in (REPOSITORY / "dataplane/test").glob("test_*.c"))
    return {
        *(name for text in python for name in re.findall(r"^def (test_\w+)\(", text, re.M)),
        *(name for text in c for name in re.findall(r"^static void (test_\w+)\(", text, re.M)),
    }


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 40
    assert named <= existing(), named - existing()


def test_every_known_attack_is_named() -> None:
    numbered = {name for name in existing() if name.startswith("test_cve_")}
    assert numbered
    assert numbered <= set(re.findall(r"`(test_cve_\w+)`", TEXT))


def test_every_fuzz_target_is_named_and_has_a_corpus() -> None:
    targets = {path.stem.removeprefix("fuzz_") for path in (REPOSITORY / "dataplane/fuzz").glob("fuzz_*.c")}
    named = set(re.findall(r"fuzz target\s+`(\w+)`", TEXT))
    assert named == targets
    for target in targets:
        assert any((REPOSITORY / "dataplane/fuzz/corpus" / target).iterdir())
