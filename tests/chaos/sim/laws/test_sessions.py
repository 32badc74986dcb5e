"""The law that nothing goes unnoticed finds what it looks for."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.replica import Replica
from chaos.sim.laws.sessions import unnoticed
from tests.support.batches import make_batch
from tests.support.replica_cluster import ReplicaCluster
from tests.support.replication import settled, with_brokers
from tests.support.timing import until


def seen(monkeypatch: pytest.MonkeyPatch, broken: str) -> list[str]:
    """What the law reports about a leader that part of its code no longer informs."""
    found: list[str] = []

    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.create_topic((1, 2, 3))
        await settled(cluster)
        await cluster[1].produce(make_batch())
        await asyncio.sleep(2)
        leader = cluster[1]
        assert not list(unnoticed(leader.manager.hosted, leader.sessions))
        if broken == "time":
            leader.manager.hosted.unsettled = Unheard()
        elif broken:
            monkeypatch.setattr(Replica, broken, lambda _: None)
        # One follower acknowledges long before the other, so the high watermark rises under a
        # resting session.
        cluster.simulation.fabric.cut(leader.name, cluster[3].name)
        await leader.produce(make_batch(), acks=1, timeout_ms=10)
        found.extend(unnoticed(leader.manager.hosted, leader.sessions))
        await asyncio.sleep(2)
        cluster.simulation.fabric.heal()
        await until(lambda: leader.replica().machine.high_watermark == 2)
        found.extend(unnoticed(leader.manager.hosted, leader.sessions))
        cluster[2].kill()
        await asyncio.sleep(0.2)
        await leader.produce(make_batch(), acks=1, timeout_ms=10)
        found.extend(unnoticed(leader.manager.hosted, leader.sessions))

    with_brokers.run(scenario)
    monkeypatch.undo()
    return found


class Unheard(dict):  # type: ignore[type-arg]
    """Remembers nothing."""

    def __setitem__(self, key: object, value: object) -> None:
        pass


def test_a_sound_session_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, "") == []


@pytest.mark.parametrize(
    ("broken", "report"),
    [
        ("wake_followers", "rests at"),
        ("tell_followers_of_advance", "high watermark"),
        ("time", "nobody tells it the time"),
    ],
)
def test_what_is_not_told_is_reported(
    monkeypatch: pytest.MonkeyPatch, broken: str, report: str
) -> None:
    assert any(report in fault for fault in seen(monkeypatch, broken))
