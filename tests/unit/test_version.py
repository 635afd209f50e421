"""The version stands in four places, which say the same; the changelog keeps its form."""

import re
import tomllib
from pathlib import Path

from tailrace import __version__

TOP = Path(__file__).parents[2]
CHANGELOG = (TOP / "CHANGELOG.md").read_text()


def test_the_version_is_the_same_everywhere() -> None:
    meson = re.search(r"^ *version: '(.+)',$", (TOP / "dataplane/meson.build").read_text(), re.MULTILINE)
    released = re.search(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)
    assert meson is not None
    assert released is not None
    assert tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert meson[1] == __version__
    assert released[1] == __version__


def test_an_entry_of_the_changelog_is_one_line() -> None:
    _, _, entries = CHANGELOG.partition("\n## ")
    lines = [line for line in entries.splitlines()[1:] if line and not line.startswith("#")]
    assert [line for line in lines if not line.startswith("- ") or len(line) > 130] == []
