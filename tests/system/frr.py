"""FRR's daemons, as other ends of protocols."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from routed_hosts import run
from running_node import wait_until


@contextmanager
def frr(namespace: str, folder: Path, **configurations: str) -> Iterator[dict[str, int]]:
    """FRR's daemons in a network namespace, each with its own configuration; their process ids by name."""
    folder.mkdir()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, text in {"zebra": "", **configurations}.items():
            path = folder / f"{name}.conf"
            path.write_text(text)
            words = ["-f", str(path), "-i", str(folder / f"{name}.pid"), "-z", str(folder / "zebra.api")]
            words += ["--vty_socket", str(folder), "-P", "0", "-u", "root", "-g", "frrvty", "--log", "stdout"]
            words += ["--bfdctl", str(folder / "bfdd.control")] if name == "bfdd" else []
            words = ["ip", "netns", "exec", namespace, f"/usr/lib/frr/{name}", *words]
            with (folder / f"{name}.log").open("w") as log:
                processes[name] = subprocess.Popen(words, stdout=log, stderr=log)
            wait_until((folder / f"{name}.vty").exists)
        yield {name: process.pid for name, process in processes.items()}
    finally:
        for process in reversed(processes.values()):
            process.terminate()
        for process in processes.values():
            process.wait(60)


def asked(folder: Path, *commands: str) -> Any:
    """What the daemons with this folder answer to the last of these commands, which prints JSON, or nothing."""
    words = ["vtysh", "--vty_socket", str(folder), *[word for each in commands for word in ("-c", each)]]
    said = run(*words)
    return json.loads(said) if said.strip() else None
