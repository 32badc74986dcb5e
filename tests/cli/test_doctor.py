"""``stele doctor`` and ``stele server`` on the configuration of a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main
from cli.options import EXIT_NOT_WELL
from tests.node.test_peers_doctor import AUTHORITY, OTHER, Files


@pytest.fixture
def config(tmp_path: Path) -> Path:
    files = Files(tmp_path)
    files.store()
    files.write("ca.pem", AUTHORITY.certificate)
    file = tmp_path / "server.properties"
    settings = files.settings({"log.dirs": str(tmp_path / "data")})
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return file


def test_a_good_configuration(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor", "-c", str(config)]) == 0
    assert "nothing unsafe was found" in capsys.readouterr().err


def test_what_keeps_a_node_from_starting(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Files(config.parent).store(authority=OTHER)
    assert main.run(["doctor", "-c", str(config), "--json"]) == EXIT_NOT_WELL
    found = json.loads(capsys.readouterr().out)
    assert {(each["level"], each["where"]) for each in found} == {
        ("fatal", "node 1, listener NODES"),
        ("fatal", "node 1, listener CONTROLLER"),
    }
    assert main.run(["format", "--config", str(config)]) == 0
    capsys.readouterr()
    assert main.run(["server", str(config)]) == main.EXIT_FAILED
    said = capsys.readouterr().err
    assert said.startswith("stele: listener NODES and CONTROLLER: a node with the same settings")
    assert found[0]["what"] in said
    assert found[0]["advice"] in said
    assert store in said
