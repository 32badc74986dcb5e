"""``stele explain``, ``stele whatif`` and ``stele cluster restart-check`` on a real cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chaos.process_cluster import ProcessCluster
from cli.main import run
from cli.options import EXIT_NOT_WELL
from stele import Admin

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
Stele = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stele(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Stele:
    """Run a command: exit status, output, errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--bootstrap-server", bootstrap])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def whole(bootstrap: str, topic: str) -> bool:
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
    return all(not each.is_under_replicated for each in described.partitions)


@pytest.fixture
def killed(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> Iterator[tuple[str, int]]:
    """A topic whose leader was killed, and that broker. It is started again."""
    topic = create_topic(1, 3)
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
        leader = described.partitions[0].leader
        assert leader is not None
        process_cluster.kill(leader)
        try:
            deadline = time.monotonic() + 30
            while leader in admin.describe_topics([topic])[0].partitions[0].isr:
                assert time.monotonic() < deadline, "the killed broker stays in the ISR"
                time.sleep(0.05)
            yield topic, leader
        finally:
            asyncio.run(process_cluster.restart(leader))
    deadline = time.monotonic() + 30
    while not whole(bootstrap, topic):
        assert time.monotonic() < deadline, "the broker does not catch up"
        time.sleep(0.05)


def test_a_killed_leader_is_explained(stele: Stele, killed: tuple[str, int]) -> None:
    topic, broker = killed
    code, out, _ = stele("explain", "partition", f"{topic}-0")
    assert code == EXIT_NOT_WELL
    lines = out.splitlines()
    assert lines[0] == f"{topic}-0: under-replicated: it works with fewer copies"
    assert f"because broker {broker}: it was fenced: its process ended or was silent" in out
    assert f"to mend it: start broker {broker}" in out
    assert "it was created" in lines[-2]
    assert f"broker {broker}: it was fenced" in lines[-1]

    code, out, _ = stele("explain", "broker", str(broker))
    assert code == EXIT_NOT_WELL
    assert out.startswith(f"broker {broker} is fenced: leads 0 partitions")
    assert "it was fenced: its process ended or was silent" in out.splitlines()[-1]

    code, out, _ = stele("explain", "topic", topic, "--json")
    assert code == EXIT_NOT_WELL
    (told,) = json.loads(out)
    assert told["health"] == "under_replicated"

    others = sorted({101, 102, 103} - {broker})
    code, out, _ = stele("cluster", "restart-check", str(others[0]))
    assert code == EXIT_NOT_WELL
    assert "below min.insync.replicas" in out


def test_what_would_happen(stele: Stele, create_topic: CreateTopic, bootstrap: str) -> None:
    topic = create_topic(1, 3)

    def consequence(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = stele("whatif", *arguments, "--json")
        told = json.loads(out)
        (found,) = [each for each in told["consequences"] if each["partition"][0] == topic]
        return code, {"quorum": told["quorum_survives"], **found}

    _, one = consequence("--kill", "101")
    assert (one["loses_reads"], one["loses_writes"], one["copies"]) == (False, False, 2)
    code, two = consequence("--kill", "101,102")
    assert code == EXIT_NOT_WELL
    assert (two["loses_reads"], two["loses_writes"], two["copies"]) == (False, True, 1)
    _, rack = consequence("--lose-rack", "rack-102")
    assert rack["copies"] == 2
    other = create_topic(1, 3)
    _, out, _ = stele("whatif", "--kill", "101", "--topic", topic, "--json")
    assert {each["partition"][0] for each in json.loads(out)["consequences"]} == {topic}
    code, _, said = stele("whatif", "--kill", "101", "--topic", f"{other}x")
    assert (code, "Did you mean" in said) == (1, True)
    code, out, _ = stele("whatif", "--stop-controller", "1")
    assert code == 0
    assert out.startswith("controllers: 2 of 3 are left, and go on")
    code, out, _ = stele("whatif", "--stop-controller", "1,2")
    assert code == EXIT_NOT_WELL
    assert "STOP" in out


def test_a_controller_may_be_restarted(stele: Stele) -> None:
    assert stele("cluster", "restart-check", "2") == (0, "node 2 may be restarted now\n", "")


def test_a_healthy_topic_and_its_past(stele: Stele, create_topic: CreateTopic) -> None:
    topic = create_topic(2, 3)
    code, out, _ = stele("explain", "topic", topic)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["healthy", "healthy"]
    _, _, said = stele("explain", "topic", topic, "--at", "2020-01-01")
    assert f"there was, at 2020-01-01, no topic {topic!r}" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain", "partition", "nothing"], "'nothing' is no partition: write TOPIC-NUMBER"),
        (["explain", "partition", "no-topic-1"], "there is no topic 'no-topic'"),
        (["explain", "broker", "999"], "there is no broker 999; there are 101, 102, 103"),
        (["explain", "topic", "x", "--at", "noon"], "--at 'noon' is no time"),
        (["whatif", "--kill", "x"], "--kill 'x' is no list of ids"),
        (["whatif", "--kill", "999"], "there is no node 999"),
        (["whatif", "--lose-rack", "z"], "the racks are: rack-101, rack-102, rack-103"),
        (["cluster", "restart-check", "999"], "there is no node 999"),
    ],
)
def test_the_error_names_what_is_not_there(stele: Stele, arguments: list[str], told: str) -> None:
    code, out, said = stele(*arguments)
    assert (code, out) == (1, "")
    assert told in said
    assert said.count("\n") == 1


def test_what_if_wants_a_loss(stele: Stele) -> None:
    code, out, said = stele("whatif")
    assert (code, out) == (2, "")
    assert "what if what? Give --kill, --lose-rack or --stop-controller" in said
    assert said.count("\n") == 1
