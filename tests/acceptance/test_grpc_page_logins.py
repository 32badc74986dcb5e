"""The programs of docs/grpc.md that log in over TLS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stele import Admin, NewTopic
from stele.admin.users import ScramUpsertion
from tests.support.page_programs import (
    ROOT,
    build_for_go,
    compile_for_python,
    install_for_node,
    program,
    run,
    with_compiled_stubs,
)
from tests.support.sasl_node import SaslNode, sasl_node

pytestmark = pytest.mark.processes

USER = "ann, =é"
PASSWORD = {"PASSWORD": "ann-secret"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    with sasl_node(tmp_path_factory.mktemp("logins")) as running:
        with Admin(running.server("INTERNAL")) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
            admin.alter_user_scram_credentials([ScramUpsertion(USER, PASSWORD["PASSWORD"])])
        yield running


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("python")
    compile_for_python(directory)
    (directory / "secure.py").write_text(with_compiled_stubs(program("python secure")))
    return directory


def test_python(node: SaslNode, python: Path) -> None:
    command = [sys.executable, "secure.py", node.server("grpc-TLS"), "orders", node.ca_file]
    by_password = run(*command, USER, directory=python, environment=PASSWORD)
    by_token = run(*command, directory=python, environment={"TOKEN": node.token()})
    assert [each.split()[0] for each in (by_password, by_token)] == ["written", "written"]
    with pytest.raises(AssertionError, match="SCRAM-SHA-512"):
        run(*command, USER, directory=python, environment={"PASSWORD": "wrong"})


def test_node(node: SaslNode, tmp_path: Path) -> None:
    install_for_node(tmp_path)
    (tmp_path / "secure.js").write_text(program("js secure"))
    proto = str(ROOT / "proto")
    command = ["node", "secure.js", node.server("grpc-TLS"), "orders", proto, node.ca_file]
    by_password = run(*command, USER, directory=tmp_path, environment=PASSWORD)
    by_token = run(*command, directory=tmp_path, environment={"TOKEN": node.token()})
    assert [each.split()[0] for each in (by_password, by_token)] == ["written", "written"]
    with pytest.raises(AssertionError, match="SCRAM-SHA-512"):
        run(*command, USER, directory=tmp_path, environment={"PASSWORD": "wrong"})


def test_go(node: SaslNode, tmp_path: Path) -> None:
    build_for_go(program("go secure"), tmp_path)
    command = [str(tmp_path / "thin"), node.server("grpc-TLS"), "orders", node.ca_file]
    by_token = run(*command, directory=tmp_path, environment={"TOKEN": node.token()})
    assert by_token.split()[0] == "written"
