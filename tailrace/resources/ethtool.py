"""What ethtool(8) shows and sets of an interface: the one place that reads its text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tailrace.errors import Failure, Mistake
from tailrace.process.programs import run_system

#: What `ethtool -k` calls the features that -K has short names for.
_LONG = {"gro": "generic-receive-offload", "lro": "large-receive-offload"}
#: Single settings: the option that shows, the one that sets, the word that sets, and how the value is shown.
_SETTINGS = {
    "queues": ("-l", "-L", "combined", re.compile(r"Current hardware settings:.*?Combined:\s+(\d+)", re.DOTALL)),
    "adaptive-rx": ("-c", "-C", "adaptive-rx", re.compile(r"Adaptive RX:\s+(on|off)")),
    "rx-usecs": ("-c", "-C", "rx-usecs", re.compile(r"^rx-usecs:\s+(\d+)", re.MULTILINE)),
}


def enabled_offloads(name: str, wanted: Collection[str], namespace: str | None = None) -> dict[str, bool]:
    """Those of the wanted offloads that are on and can be switched. Raises Failure."""
    states: dict[str, str] = {}
    for line in run_system("ethtool", "-k", name, namespace=namespace).splitlines():
        key, _, value = line.strip().partition(":")
        states[key] = value.strip()
    shown = {feature: states.get(_LONG.get(feature, feature), "off") for feature in wanted}
    return {feature: True for feature, state in shown.items() if state.split()[0] == "on" and "[fixed]" not in state}


def set_offloads(name: str, namespace: str | None, features: Mapping[str, bool]) -> None:
    """Switches offloads. Raises Failure."""
    # tx first when switching on: segmentation needs checksums.
    for short in sorted(features, key=lambda each: (each != "tx", each)):
        run_system("ethtool", "-K", name, short, "on" if features[short] else "off", namespace=namespace)


def read_setting(name: str, what: str) -> str | None:
    """`queues`, `adaptive-rx` or `rx-usecs` of an interface; None where ethtool does not show it. Raises Failure."""
    show, _, _, shown = _SETTINGS[what]
    found = shown.search(run_system("ethtool", show, name))
    return found[1] if found else None


def read_firmware(name: str) -> str | None:
    """The version of a card's firmware; None where its driver does not tell."""
    try:
        shown = re.search(r"^firmware-version: *(\S.*)$", run_system("ethtool", "-i", name), re.MULTILINE)
    except (Failure, Mistake, OSError):
        return None
    return shown[1].strip() if shown and shown[1].strip() != "N/A" else None


def write_setting(name: str, what: str, value: str) -> None:
    """Raises Failure."""
    _, option, word, _ = _SETTINGS[what]
    run_system("ethtool", option, name, word, value)
