"""Names and passwords for the dashboard: the file, and who is let in."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from served_dashboard import BEARER, MadeUp, ask, served

from tailrace.cli.dashboard import DashboardOptions, dashboard
from tailrace.dashboard import passwords as module
from tailrace.dashboard.passwords import Passwords, set_password
from tailrace.errors import Mistake

PASSWORD = "correct horse: battery"


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "passwords"
    set_password(file, "ada", PASSWORD)
    set_password(file, "bob", "another password")
    return file


def test_the_file_holds_no_password(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [line.split(":")[0] for line in file.read_text().splitlines()] == ["ada", "bob"]
    assert "horse" not in file.read_text()
    before = file.read_text()
    set_password(file, "ada", PASSWORD)
    assert file.read_text() != before, "another salt"


def test_who_is_let_in(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    real = module._hash
    monkeypatch.setattr(module, "_hash", lambda password, salt: hashed.append(password) or real(password, salt))
    with served(MadeUp(), passwords=Passwords(file), control=True) as port:
        refused = ask(port)
        assert refused.status == 401 and refused.getheader("WWW-Authenticate").startswith("Basic ")
        for headers in (
            basic("ada", "another password"), basic("eve", PASSWORD), basic("ada", ""), basic("", ""),
            {"Authorization": "Basic !"}, {"Authorization": "Basic"}, {"Authorization": f"Digest {PASSWORD}"},
        ):  # fmt: skip
            assert ask(port, "/", headers).status == 401
        hashed.clear()
        for _ in range(5):
            assert ask(port, "/", basic("ada", PASSWORD)).status == 200
        assert len(hashed) == 1, "known from then on"
        assert ask(port, "/", BEARER).status == 200, "programs have the token"
        # A browser sends a password with whatever another page asks for: that alone changes nothing.
        assert ask(port, "/api/functions/nat/restart", basic("ada", PASSWORD), "POST").status == 403
        evil = {**basic("ada", PASSWORD), "Origin": "http://evil.example"}
        assert ask(port, "/api/functions/nat/restart", evil, "POST").status == 403


def test_without_a_file_nobody_is_asked() -> None:
    with served(MadeUp()) as port:
        answer = ask(port, "/", basic("ada", PASSWORD))
        assert answer.status == 401 and answer.getheader("WWW-Authenticate") is None


def test_what_is_no_file_of_passwords(file: Path, tmp_path: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(Mistake, match="chmod 600"):
        Passwords(file)
    file.chmod(0o600)
    file.write_text("ada:secret\n")
    with pytest.raises(Mistake, match="NAME:SALT:HASH"):
        Passwords(file)
    with pytest.raises(Mistake, match=r"No such file; .* --set-password NAME"):
        Passwords(tmp_path / "none")
    with pytest.raises(Mistake, match="at least 12"):
        set_password(tmp_path / "new", "ada", "short")
    with pytest.raises(Mistake, match="expected a name"):
        set_password(tmp_path / "new", "a:b", PASSWORD)
    with pytest.raises(Mistake, match="there is a folder; expected a file"):
        set_password(tmp_path, "ada", PASSWORD)
    with pytest.raises(Mistake, match="needs --password-file"):
        dashboard(DashboardOptions("127.0.0.1:0", None, set_password="ada"))
