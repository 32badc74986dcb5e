"""The law of what idle partitions cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.partition.effects import BrokerStatus
from broker.replication.fetch_session import FetchSession
from broker.replication.types import FetchEntry
from chaos.sim.laws.idle_partitions import IdlePartitionsAreLeftAlone
from metadata.partitions import PartitionState
from tests.support.batches import make_batch
from tests.support.law_bench import PARTITION, LawBench, Replicas

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
REQUESTS = 12


class Leader:
    """Broker 1 leads two records, and broker 2 fetches in a session."""

    def __init__(self) -> None:
        self.bench, self.law = LawBench(), IdlePartitionsAreLeftAlone()
        self.leading = self.bench.replica(1, make_batch(2), state=STATE)
        hosted = Replicas(101)
        hosted.append(self.leading)
        self.session = FetchSession(7, 2)
        self.session.entries[PARTITION] = FetchEntry(PARTITION, 2, 1 << 20)
        self.session.stirred[PARTITION] = 0
        self.bench.brokers[1].node.broker = SimpleNamespace(
            has_begun=True,
            fetch_sessions=[self.session],
            replicas=hosted,
        )

    def fetches(self, offset: int) -> list[str]:
        """Of many requests for that offset."""
        reports = []
        for number in range(REQUESTS):
            status, session = BrokerStatus(102, True), self.session.attendance
            self.leading.machine.fetched(2, offset, status, float(number), session)
            session.last_fetch_ms = float(number)
            reports += self.bench.broken(self.law)
        return reports


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_who_has_everything_is_not_looked_at_all_the_time(leader: Leader) -> None:
    (report,) = leader.fetches(2)
    assert "its session looks at it all the time" in report


def test_who_lacks_something_is_looked_at(leader: Leader) -> None:
    assert not leader.fetches(1)
    assert leader.law.looked == 0


def test_who_is_left_alone_breaks_nothing(leader: Leader) -> None:
    leader.session.stirred.clear()
    assert not leader.fetches(2)
    assert leader.law.looked == REQUESTS


def test_a_partition_that_changes_is_looked_at(leader: Leader) -> None:
    machine = leader.leading.machine
    for end_offset in range(3, 8):
        machine.appended(machine.log._replace(end_offset=end_offset), 1.0)
        leader.session.attendance.last_fetch_ms += 1
        leader.leading.machine.fetched(
            2, end_offset, BrokerStatus(102, True), 1.0, leader.session.attendance
        )
        assert not leader.bench.broken(leader.law)
