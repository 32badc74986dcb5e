"""The first steps of docs/security.md, as they stand there, on a secure cluster of processes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from chaos.cluster_security import ADMIN
from chaos.process_cluster import ProcessCluster
from cli import main
from stele import Consumer, security_options

pytestmark = pytest.mark.processes

DOCS = Path(__file__).resolve().parents[2] / "docs"


async def test_the_first_steps_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "security.md").read_text()
    (block,) = re.findall(r"^```sh first-steps\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    cluster = ProcessCluster(tmp_path / "cluster", controllers=1, brokers=1, is_secure=True)
    await cluster.start()
    try:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "docs").symlink_to(DOCS)
        monkeypatch.setenv("STELE_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
        monkeypatch.setenv("STELE_COMMAND_CONFIG", str(cluster.security.client_file(ADMIN)))
        for line in block.splitlines():
            assert main.run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
        assert "United Kingdom" in capsys.readouterr().out  # of the ten lines that were consumed
        reader = security_options(tmp_path / "reader.properties")
        with Consumer(cluster.bootstrap_servers, group_id="billing", **reader) as consumer:
            places = [("orders", partition) for partition in range(3)]
            committed = consumer.committed(places)
            assert sum(each.offset for each in committed.values() if each is not None) == 10
    finally:
        await cluster.stop()
