"""docs/first-hour.md as it stands: its commands, its program, the death of a leader."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from cli import main
from stele.aio import Admin

pytestmark = pytest.mark.processes

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "first-hour.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("stele ") and line != "stele dev"
]
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXPLAIN = "stele explain partition orders-0"
STATUS = {"stele whatif --kill 102,103": 3}  # where the page shows a cluster that lacks something
ADDRESSES = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


class Run:
    """The commands of the page, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, command: str, expected: int = 0) -> str:
        code = await asyncio.to_thread(main.run, shlex.split(command)[1:])
        said = self._capsys.readouterr()
        assert code == expected, (command, said.err)
        return said.out


async def test_the_first_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ProcessCluster(tmp_path / "cluster", controllers=3, brokers=3)
    await cluster.start()
    try:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "docs").symlink_to(DOCS)
        monkeypatch.setenv("STELE_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
        run = Run(capsys)
        outputs = {each: await run(each, STATUS.get(each, 0)) for each in COMMANDS}
        assert "3 of 3 are left" in outputs["stele whatif --kill 102"]
        assert outputs["stele consume orders --max 3"].count("\n") == 3
        await _survives_its_leader(cluster)
        assert "it was fenced" in await run(EXPLAIN, expected=3)
    finally:
        await cluster.stop()


async def _survives_its_leader(cluster: ProcessCluster) -> None:
    """The program sends on after the death of the leader, and no offset is missing or doubled."""
    program = PROGRAM.replace(ADDRESSES, cluster.bootstrap_servers)
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert sender.stdout is not None
    lines: list[str] = []
    try:
        async with Admin(cluster.bootstrap_servers) as admin:
            (topic,) = await admin.describe_topics(["orders"])
        leader = topic.partitions[0].leader
        assert leader is not None
        for number in range(30):
            if number == 10:
                cluster.kill(leader)
            lines.append((await asyncio.wait_for(sender.stdout.readline(), 30)).decode())
    finally:
        sender.kill()
        await sender.wait()
    offsets = [int(line.split()[-1]) for line in lines]
    assert offsets == list(range(offsets[0], offsets[0] + len(lines)))
