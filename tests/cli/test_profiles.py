"""Profiles: one file of the user, and which cluster a command asks."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main
from cli.client_properties import VARIABLE, choose, command_security
from cli.output import CommandError
from cli.profiles import Profile, Profiles, profiles_file, read_profiles, write_profiles
from tests.cli.test_commands import COMMANDS

ASKED = "127.0.0.1:9"
"""An address of the profile ``prod``; nobody answers there."""


@pytest.fixture(autouse=True)
def of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("STELE_PROFILE", "STELE_BOOTSTRAP_SERVER", VARIABLE):
        monkeypatch.delenv(name, raising=False)
    yield
    choose(None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The servers that ``topic list`` has asked, in place of asking them."""
    servers: list[str] = []

    def connect(bootstrap: str, timeout_s: float) -> Any:
        servers.append(bootstrap)
        raise CommandError("asked")

    monkeypatch.setattr("cli.topics.connect", connect)
    return servers


def properties(tmp_path: Path, name: str = "prod.properties") -> str:
    file = tmp_path / name
    file.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username={name}\n")
    return str(file)


def add(name: str, servers: str, *options: str) -> int:
    return main.run(["profile", "add", name, "-b", servers, *options])


def user() -> object:
    return command_security().get("sasl_username")


def test_a_profile_is_added_shown_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties(tmp_path)
    assert add("prod", ASKED, "--client-properties", file) == 0
    assert add("test", "h:2") == 0
    capsys.readouterr()
    assert main.run(["profile", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "prod", "current": True, "bootstrap_servers": ASKED, "client_properties": file},
        {"name": "test", "current": False, "bootstrap_servers": "h:2", "client_properties": None},
    ]
    assert main.run(["profile", "use", "test"]) == 0
    assert read_profiles().current == "test"
    assert main.run(["profile", "remove", "test"]) == 0
    assert read_profiles() == Profiles({"prod": Profile(ASKED, file)}, None)


def test_only_its_owner_can_read_the_file() -> None:
    assert add("prod", ASKED) == 0
    assert stat.S_IMODE(profiles_file().stat().st_mode) == 0o600
    profiles_file().chmod(0o644)
    assert add("test", ASKED) == 0
    assert stat.S_IMODE(profiles_file().stat().st_mode) == 0o600
    assert [each.name for each in profiles_file().parent.iterdir()] == ["profiles.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["profile", "show", "prd"], "there is no profile 'prd'"),
        (["profile", "use", "prd"], "Did you mean 'prod'?"),
        (["profile", "remove", "prd"], "Did you mean 'prod'?"),
        (["topic", "list", "--profile", "prd"], "Did you mean 'prod'?"),
        (["profile", "add", "prod", "-b", "h:1"], "--replace replaces it"),
        (["profile", "add", "new", "-b", "h"], "host:port"),
        (["profile", "add", "new", "-b", "h:1", "--client-properties", "/no"], "cannot be read"),
        (["topic", "list", "--profile", "prod", "-b", "h:1"], "exclude each other"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add("prod", ASKED) == 0
    before = profiles_file().read_text()
    capsys.readouterr()
    assert main.run(arguments) in (main.EXIT_FAILED, main.EXIT_USAGE)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert profiles_file().read_text() == before


@pytest.mark.parametrize("content", ["{", "[]", '{"profiles": {"a": 1}, "current": null}', "{}"])
def test_a_file_that_makes_no_sense_is_named(
    content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles_file().parent.mkdir(parents=True)
    profiles_file().write_text(content)
    assert main.run(["profile", "list"]) == main.EXIT_FAILED
    assert f"{profiles_file()} has no profiles that can be read" in capsys.readouterr().err


LIST = ["topic", "list"]


@pytest.mark.parametrize(
    ("arguments", "environment", "servers", "of_the_file"),
    [
        (LIST, {}, "current:1", "current.properties"),
        (LIST, {"STELE_PROFILE": "prod"}, ASKED, "prod.properties"),
        ([*LIST, "--profile", "prod"], {}, ASKED, "prod.properties"),
        ([*LIST, "--profile", "prod"], {"STELE_PROFILE": "current"}, ASKED, "prod.properties"),
        # The login of a profile is not sent to other servers.
        ([*LIST, "-b", "other:1"], {}, "other:1", None),
        ([*LIST, "-b", "other:1"], {"STELE_PROFILE": "prod"}, "other:1", None),
        (LIST, {"STELE_BOOTSTRAP_SERVER": "other:1"}, "other:1", None),
        # What was typed for this command wins over variables.
        (
            [*LIST, "--profile", "prod"],
            {"STELE_BOOTSTRAP_SERVER": "other:1", VARIABLE: "other.properties"},
            *(ASKED, "prod.properties"),
        ),
        ([*LIST, "--command-config", "other.properties"], {}, "current:1", "other.properties"),
    ],
)
def test_the_cluster_is_the_one_that_is_named_most_directly(
    arguments: list[str],
    environment: dict[str, str],
    servers: str,
    of_the_file: str | None,
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    properties(tmp_path, "other.properties")
    known = {
        "current": Profile("current:1", properties(tmp_path, "current.properties")),
        "prod": Profile(ASKED, properties(tmp_path)),
    }
    write_profiles(Profiles(known, "current"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main.run(arguments) == main.EXIT_FAILED
    assert asked == [servers]
    assert user() == of_the_file


def test_without_profiles_the_default_counts(asked: list[str]) -> None:
    assert main.run(LIST) == main.EXIT_FAILED
    assert asked == ["127.0.0.1:9092"]


def test_a_profile_has_no_option_for_a_password() -> None:
    options = {name for each in COMMANDS["profile add"].params for name in each.opts}
    assert not [each for each in options if "password" in each or "sasl" in each]


def test_commands_that_read_the_file_themselves_have_profiles_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def read(file: object, given: object, option: str) -> dict[str, str]:
        seen.append(str(file))
        raise CommandError("read")

    monkeypatch.setattr("cli.kafka_properties.read_properties", read)
    path = properties(tmp_path)
    write_profiles(Profiles({"prod": Profile(ASKED, path)}, "prod"))
    assert main.run(["perf", "consume", "--topic", "t", "--messages", "1"]) == main.EXIT_FAILED
    assert seen == [path]


def test_a_node_that_is_examined_is_not_asked_for_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_profiles(Profiles({"prod": Profile(ASKED)}, "prod"))
    monkeypatch.setattr("cli.doctor.load_config", lambda *_: None)
    monkeypatch.setattr("node.node_facts.read_facts", lambda *_: None)
    monkeypatch.setattr("node.doctor.examine", lambda _: [])
    assert main.run(["doctor", "--config", "server.properties"]) == 0
