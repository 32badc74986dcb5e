"""``stele users …``: what it asks the cluster for, and what it says."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

from cli import main, users
from stele.admin.users import ScramCredentialInfo, ScramDeletion, ScramUpsertion
from stele.security.jaas import parse_jaas
from stele.security.properties import security_options

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


class _Admin:
    def __init__(self) -> None:
        self.users = {
            "ann": [ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 8192)]
        }
        self.upsertions: list[ScramUpsertion] = []
        self.deletions: list[ScramDeletion] = []

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def describe_user_scram_credentials(
        self, *, linearizable: bool = True
    ) -> dict[str, list[ScramCredentialInfo]]:
        return self.users

    def alter_user_scram_credentials(
        self,
        upsertions: Sequence[ScramUpsertion] = (),
        deletions: Sequence[ScramDeletion] = (),
    ) -> None:
        self.upsertions += upsertions
        self.deletions += deletions


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    monkeypatch.setattr(users, "connect", lambda bootstrap, timeout: admin)
    return admin


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text("hidden word\nanother line\n")
    return str(file)


def test_a_user_is_made(
    admin: _Admin, password_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["users", "add", "bob", "--password-file", password_file]) == 0
    assert admin.upsertions == [ScramUpsertion("bob", "hidden word", SHA_512, 4096)]
    told = capsys.readouterr()
    assert "stele acls add User:bob" in told.err
    assert "hidden" not in told.err + told.out
    assert "hidden" not in repr(admin.upsertions)


def test_a_password_from_standard_input(admin: _Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\r\n"))
    arguments = ["--mechanism", "scram-sha-256", "--mechanism", SHA_512, "--iterations", "5000"]
    assert main.run(["users", "add", "bob", "--password-file", "-", *arguments]) == 0
    assert admin.upsertions == [
        ScramUpsertion("bob", "secret", SHA_256, 5000),
        ScramUpsertion("bob", "secret", SHA_512, 5000),
    ]


@pytest.fixture
def administrators_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "admin.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.location=ca.pem\n"
        "ssl.keystore.location=admin.pem\nssl.key.password=x\n"
        "ssl.truststore.type=PEM\n"
    )
    monkeypatch.chdir(tmp_path)
    return file


def test_a_user_with_a_file_of_its_own(
    admin: _Admin, administrators_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["users", "add", "bob", "--properties", "bob.properties"]
    assert main.run([*arguments, "--command-config", str(administrators_file)]) == 0
    file = administrators_file.with_name("bob.properties")
    assert file.stat().st_mode & 0o777 == 0o600
    (made,) = admin.upsertions
    assert len(made.password) >= 32
    options = security_options(file)
    assert options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": SHA_512,
        "sasl_username": "bob",
        "sasl_password": made.password,
        "sasl_jaas_config": options["sasl_jaas_config"],
        "ssl_truststore_location": str(administrators_file.with_name("ca.pem")),
        "ssl_truststore_type": "PEM",
    }
    jaas = parse_jaas(str(options["sasl_jaas_config"]), "sasl.jaas.config")
    assert jaas == {"username": "bob", "password": made.password}
    told = capsys.readouterr()
    assert made.password not in told.err + told.out


def test_the_file_of_a_user_has_the_password_that_was_given(
    admin: _Admin, administrators_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = 'a "quoted\\n" \\ word'
    monkeypatch.setattr("sys.stdin", io.StringIO(password))
    arguments = ["users", "add", "bob", "--properties", "bob.properties", "--password-file", "-"]
    assert main.run([*arguments, "--command-config", str(administrators_file)]) == 0
    options = security_options("bob.properties")
    assert options["sasl_password"] == admin.upsertions[0].password == password
    jaas = parse_jaas(str(options["sasl_jaas_config"]), "sasl.jaas.config")
    assert jaas["password"] == password


def test_the_file_of_a_user_is_never_another_ones_and_goes_with_a_refusal(
    admin: _Admin, administrators_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = administrators_file.read_text()
    as_admin = ["--command-config", str(administrators_file)]
    add = ["users", "add", "bob", "--properties"]
    assert main.run([*add, str(administrators_file), *as_admin]) == 1
    assert "exists: name another file" in capsys.readouterr().err
    assert administrators_file.read_text() == before
    assert main.run([*add, "no/such/folder", *as_admin]) == 1
    assert "no/such/folder cannot be written: No such file" in capsys.readouterr().err
    assert main.run(["users", "add", "ann", "--properties", "ann.properties", *as_admin]) == 1
    assert "user ann exists" in capsys.readouterr().err
    assert not Path("ann.properties").exists()
    assert main.run([*add, "bob.properties"]) == 2
    assert "give one whose security.protocol is" in capsys.readouterr().err
    assert not Path("bob.properties").exists()
    assert admin.upsertions == []


def test_a_password_is_changed_for_all_mechanisms_of_the_user(
    admin: _Admin, password_file: str
) -> None:
    assert main.run(["users", "password", "ann", "--password-file", password_file]) == 0
    assert [each.mechanism for each in admin.upsertions] == [SHA_256, SHA_512]


def test_a_user_is_removed(admin: _Admin) -> None:
    assert main.run(["users", "remove", "ann", "--mechanism", SHA_256]) == 0
    assert admin.deletions == [ScramDeletion("ann", SHA_256)]
    assert main.run(["users", "remove", "ann"]) == 0
    assert admin.deletions[1:] == [ScramDeletion("ann", SHA_256), ScramDeletion("ann", SHA_512)]


def test_users_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["users", "list", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ann"][1] == {"mechanism": SHA_512, "iterations": 8192}
    assert main.run(["users", "list"]) == 0
    assert "SCRAM-SHA-512" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["add", "ann"], 1, "user ann exists: stele users password ann changes it"),
        (["password", "anne"], 1, "there is no user 'anne'. Did you mean"),
        (["add", "bob", "--mechanism", "PLAIN"], 2, "--mechanism PLAIN: give one of SCRAM"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    said: str,
    admin: _Admin,
    password_file: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["users", *arguments, "--password-file", password_file]) == code
    assert said in capsys.readouterr().err
    assert admin.upsertions == []


def test_a_user_who_is_not_there_cannot_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["users", "remove", "an"]) == 1
    assert "there is no user 'an'" in capsys.readouterr().err


def test_a_password_is_never_an_argument(
    admin: _Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret"))
    assert main.run(["users", "add", "bob"]) == 2
    assert "--password-file" in capsys.readouterr().err


def test_an_empty_password(
    tmp_path: Path, admin: _Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    assert main.run(["users", "add", "bob", "--password-file", str(tmp_path / "empty")]) == 1
    assert "its first line is empty" in capsys.readouterr().err
    assert admin.upsertions == []
