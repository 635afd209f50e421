"""`make install`: what root runs is root's, and nothing of it lies in the checkout."""

from __future__ import annotations

import os
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.requires_root, pytest.mark.unsanitized]
REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534


def install(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPOSITORY / "scripts/install", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_command_is_roots_and_leaves_the_checkout_alone(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    done = install(prefix)
    assert done.returncode == 0, done.stderr
    command = prefix / "bin/tailrace"
    for path in (prefix, *prefix.rglob("*")):
        status = path.lstat()
        assert status.st_uid == 0, path
        assert stat.S_ISLNK(status.st_mode) or not status.st_mode & 0o022, path
        assert not (path.is_symlink() and path.resolve().is_relative_to(REPOSITORY)), path
    assert str(REPOSITORY) not in command.read_text()
    unit = prefix / "lib/systemd/system/tailraced.service"
    assert f"ExecStart={prefix}/bin/tailraced\n" in unit.read_text()
    checked = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert "tailraced.service" not in checked.stderr, checked.stderr
    # Where the checkout is not to be seen, it runs as well.
    runs = f"'{command}' version && '{command}' host knobs && '{command}d' --help"
    hidden = f"mount -t tmpfs none '{REPOSITORY}' && cd / && {runs}"
    seen = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", hidden], capture_output=True, text=True, check=False, timeout=60, cwd="/"
    )
    assert seen.returncode == 0, seen.stderr
    assert "isolcpus" in seen.stdout and "The service that runs a node" in seen.stdout
    for program in ("switch", "vnf", "tester", "recorder"):
        assert os.access(prefix / f"libexec/tailrace/tailrace-{program}", os.X_OK)
    # What machines need comes along where the checkout has it.
    installed = prefix / "libexec/tailrace"
    if find_spec("libvirt") is not None:
        subprocess.run([installed / "python/bin/python", "-I", "-c", "import libvirt"], check=True, timeout=60)
    built = any(REPOSITORY.glob("build-guest/*/tailrace-vnf"))
    assert os.access(installed / "portable/tailrace-vnf", os.X_OK) == built
    assert install("--remove", prefix).returncode == 0
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []


@pytest.mark.parametrize("loose", ["owner", "mode"])
def test_a_place_that_others_may_write_to_is_refused(tmp_path: Path, loose: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if loose == "owner":
        os.chown(folder, NOBODY, NOBODY)
    else:
        folder.chmod(0o777)
    done = install(folder / "prefix")
    assert done.returncode == 1
    assert f"{folder} can be changed by others than root" in done.stderr
    assert list(folder.iterdir()) == []
