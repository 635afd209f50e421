"""Whose folder is looked in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.errors import Mistake
from tailrace.functions.images import images_folder
from tailrace.node import client
from tailrace.state import folder


@pytest.mark.parametrize("below", ["", "state"])
def test_a_file_in_the_folders_place_is_named(tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    chosen = tmp_path / "file" / below
    monkeypatch.setenv(folder.ENVIRONMENT, str(chosen))
    with pytest.raises(Mistake, match=rf"^{chosen}: a file is in its place; set TAILRACE_STATE"):
        folder.default_folder()


def test_a_folder_by_two_names_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /var/run/tailrace is /run/tailrace."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.setenv(folder.ENVIRONMENT, str(tmp_path / "link" / "node"))
    assert folder.default_folder() == tmp_path.resolve() / "run" / "node"


@pytest.mark.parametrize(
    ("user", "up", "chosen", "said"),
    [(1000, True, None, True), (0, True, None, False), (1000, False, None, False), (1000, True, "/elsewhere", False)],
)
def test_a_user_is_told_of_the_nodes_that_root_has_up(
    user: int, up: bool, chosen: str | None, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_ROOTS", tmp_path if up else tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.delenv(folder.ENVIRONMENT, raising=False)
    if chosen is not None:
        monkeypatch.setenv(folder.ENVIRONMENT, chosen)
    assert (folder.not_yours(folder.default_folder()) is not None) is said


def test_the_service_has_the_images_where_the_command_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in another folder."""
    given: dict[str, str] = {}

    def begun(words: list[str], *, env: dict[str, str], **rest: object) -> None:
        del words, rest
        given.update(env)
        raise OSError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(folder.IMAGES, "images")
    monkeypatch.setattr(client.subprocess, "Popen", begun)
    with pytest.raises(OSError):
        client.start_service(tmp_path)
    assert given[folder.IMAGES] == str(images_folder()) == str(tmp_path / "images")
