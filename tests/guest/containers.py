"""Podman, and which of its containers are of these tests."""

from __future__ import annotations

import json
import subprocess
import time

_BEGAN = time.time()


def podman(*words: str) -> str:
    """What it prints."""
    done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def containers() -> list[str]:
    """The names of ours that podman has, without those that a killed run of the tests has left before this one."""
    found = json.loads(podman("ps", "--all", "--format", "json"))
    recent = [name for each in found if each["Created"] >= int(_BEGAN) for name in each["Names"]]
    return [each for each in recent if each.startswith("tailrace-")]
