"""The commands in docs/quorum.md do what the page says. The test reads them from the page."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.process_cluster import NodeProcess
from tests.support.quorum_processes import QuorumProcesses

pytestmark = pytest.mark.processes

PAGE = Path(__file__).parents[2] / "docs" / "quorum.md"
_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def commands(heading: str) -> list[str]:
    """Every line of the shell blocks below a heading of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip() for block in _BLOCK.findall(section) for line in block[1].splitlines()]
    assert lines
    return lines


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorumProcesses]:
    processes = QuorumProcesses(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


async def follow(
    cluster: QuorumProcesses, node: NodeProcess, line: str, **variables: object
) -> str:
    """Run a line on a node's machine. A server is started and left running."""
    if line.startswith("stele server"):
        node.spawn()
        return ""
    shell = f'stele() {{ {shlex.join([sys.executable, "-m", "cli.main"])} "$@"; }}; {line}'
    environment = {
        "CLUSTER_ID": cluster.cluster_id,
        "STELE_BOOTSTRAP_SERVER": cluster.bootstrap_servers,
        "PYTHONPATH": str(PAGE.parents[1]),
        **{name: str(value) for name, value in variables.items()},
    }
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        shell,
        cwd=node.directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, f"{line}: {errors.decode()}"
    return out.decode()


async def begin(cluster: QuorumProcesses, controllers: int) -> list[NodeProcess]:
    """A quorum that has grown from one, and a broker."""
    first = cluster.controller(1)
    for line in commands("Beginning"):
        await follow(cluster, first, line)
    first.spawn()
    await cluster.start(cluster.broker(101), "--no-initial-controllers")
    await cluster.until_serving(1)
    nodes = [first]
    for node_id in range(2, controllers + 1):
        node = cluster.controller(node_id)
        for line in commands("Growing"):
            await follow(cluster, node, line)
        nodes.append(node)
    assert await cluster.voters() == [node.node_id for node in nodes]
    return nodes


async def test_shrinking_and_a_lost_disk(cluster: QuorumProcesses) -> None:
    nodes = await begin(cluster, 3)
    (looking,) = commands("Looking at it")
    shown = await follow(cluster, nodes[0], looking)
    for node in nodes:
        assert await cluster.directory_id(node.node_id) in shown
        assert node.settings["controller.listener"] in shown

    lost = nodes[2]
    cluster.kill(lost)
    named = {"NODE": 3, "DIRECTORY_ID": await cluster.directory_id(3)}
    cluster.wipe(lost)
    for line in commands("A dead controller, or a lost disk"):
        await follow(cluster, lost, line, **named)
    assert await cluster.voters() == [1, 2, 3]
    assert await cluster.directory_id(3) != named["DIRECTORY_ID"]

    named["DIRECTORY_ID"] = await cluster.directory_id(3)
    (shrink,) = commands("Shrinking")
    assert "votes no more" in await follow(cluster, nodes[0], shrink, **named)
    assert await cluster.voters() == [1, 2]
    assert await cluster.stop(lost) == 0


async def test_a_lost_majority(cluster: QuorumProcesses) -> None:
    nodes = await begin(cluster, 3)
    await cluster.stele("topic", "create", "kept", "--replication-factor", "1")
    leader = await cluster.leader()
    survivor = next(node for node in nodes if node is not leader)
    lost = [node for node in nodes if node is not survivor]
    for node in lost:
        cluster.kill(node)
        cluster.wipe(node)

    voters, format_again, serve = commands("A majority has lost its disks")
    said = (await follow(cluster, survivor, voters)).strip()
    assert [each.partition("@")[0] for each in said.split(",")] == ["1", "2", "3"]
    helper, rest = lost
    for line in (format_again, serve):
        await follow(cluster, helper, line, VOTERS=said)
    described = json.loads(await cluster.stele("quorum", "describe", "--json", "--timeout", "60"))
    assert described["leader_id"] == survivor.node_id
    assert "kept" in await cluster.stele("topic", "list")

    directory_id = await cluster.directory_id(rest.node_id)
    for line in commands("A dead controller, or a lost disk"):
        await follow(cluster, rest, line, NODE=rest.node_id, DIRECTORY_ID=directory_id)
    assert await cluster.voters() == [1, 2, 3]
    await cluster.stele("topic", "create", "decided-again", "--replication-factor", "1")
