"""``stele format`` of controllers and ``stele quorum``: messages about options that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main

D1 = "AAAAAAAAAAAAAAAAAAAAAQ"


def properties(directory: Path, **changes: str) -> str:
    settings = {
        "node.id": "1",
        "process.roles": "controller",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "controller.listener": "127.0.0.1:19093",
        "log.dirs": f"{directory}/data",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(file)


def refusal(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = main.EXIT_FAILED
) -> str:
    assert main.run(arguments) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_controller_must_be_told_how_its_quorum_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = properties(tmp_path)
    said = refusal(capsys, "format", "-c", config, code=main.EXIT_USAGE)
    for option in ("--standalone", "--initial-controllers", "--no-initial-controllers"):
        assert option in said
    both = ("--standalone", "--no-initial-controllers")
    said = refusal(capsys, "format", "-c", config, *both, code=main.EXIT_USAGE)
    assert "exclude each other" in said
    assert "not among" in refusal(
        capsys, "format", "-c", config, "--initial-controllers", "2@h:9093"
    )
    assert not (tmp_path / "data").exists()


def test_configured_voters_begin_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = properties(tmp_path, controller_quorum_voters="1@127.0.0.1:19093")
    for option in ("--standalone", "--no-initial-controllers"):
        said = refusal(capsys, "format", "-c", config, option)
        assert "controller.quorum.voters says already who begins" in said
    assert main.run(["format", "-c", config]) == 0


def test_a_broker_needs_no_option_and_begins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = properties(tmp_path, process_roles="broker")
    assert "no controller" in refusal(capsys, "format", "-c", config, "--standalone")
    assert main.run(["format", "-c", config]) == 0
    assert "no controller" in refusal(capsys, "quorum", "add-voter", "--config", config)


def test_who_begins_is_on_the_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = properties(tmp_path)
    line = f"1@127.0.0.1:19093:{D1},2@[::1]:9094:{D1}"
    arguments = ["format", "-c", config, "--initial-controllers", line, "--json"]
    assert main.run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["metadata_directory_id"] == D1
    assert main.run(["quorum", "voters", "-c", config]) == 0
    assert capsys.readouterr().out == f"{line}\n"
    assert main.run(["quorum", "voters", "-c", config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "node_id": 2,
        "directory_id": D1,
        "endpoint": "[::1]:9094",
    }


def test_a_disk_that_does_not_say_who_votes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = properties(tmp_path)
    assert "not formatted" in refusal(capsys, "quorum", "voters", "-c", config)
    assert main.run(["format", "-c", config, "--no-initial-controllers"]) == 0
    capsys.readouterr()
    assert "does not say who votes" in refusal(capsys, "quorum", "voters", "-c", config)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["add-voter"], "which controller? Give --id and --directory-id", main.EXIT_USAGE),
        (["remove-voter", "--id", "1"], "which controller?", main.EXIT_USAGE),
        (["add-voter", "--id", "4", "--directory-id", D1], "Give --endpoint", main.EXIT_USAGE),
        (["remove-voter", "--config", "x", "--id", "1"], "names the controller", main.EXIT_USAGE),
        (["add-voter", "--config", "/does/not/exist"], "cannot read", main.EXIT_FAILED),
    ],
)
def test_a_controller_that_is_not_named(
    arguments: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, "quorum", *arguments, code=code)
