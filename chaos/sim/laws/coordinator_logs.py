"""Compares the memory of transaction coordinators with their logs."""

from __future__ import annotations

from typing import Self

from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import (
    DescribedTransaction,
    DescribeRequest,
    ListAnswer,
    ListedTransaction,
    ListRequest,
)
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.replayed_logs import START, replays
from chaos.sim.laws.scene import Report
from metadata.internal_topics import TRANSACTION_TOPIC
from stele.errors import ErrorCode


class _Asker:
    """A waiter that ignores its answer."""

    def answer(self, answer: object) -> None: ...

    def refuse(self, error: ErrorCode) -> None: ...


class CoordinatorsReplayTheirLogs(Law):
    """A transaction coordinator's transactional ids are those of a machine that replays its log, at
    any moment between two turns of its broker."""

    name = "transaction coordinators replay their logs"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._compared: dict[str, int] = {}  # the end of each log at the last comparison

    @classmethod
    def of(cls, scene: object) -> Self:
        return cls()

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in online(cluster):
            if replica.topic != TRANSACTION_TOPIC or not replica.machine.is_leader:
                continue
            assert node.broker is not None
            for number, epoch, machine in node.broker.transactions.each_active():
                if (number, epoch) == (replica.id.partition, replica.machine.leader_epoch):
                    self._compare(node, replica, machine, report)

    def _compare(
        self, node: SimNode, replica: Replica, machine: TransactionMachine, report: Report
    ) -> None:
        end_offset, key = replica.log.end_offset, f"{node.incarnation} {replica!r}"
        if self._compared.get(key) == end_offset:
            return
        twin = TransactionMachine(TransactionConfig(), lambda: 2, lambda: None)
        if not replays(twin, node, replica):
            return
        self._compared[key] = end_offset
        told, expected = _described(machine), _described(twin)
        self.looked += bool(expected)
        if told != expected:
            report(
                f"{replica!r} on broker {node.id} ends at {end_offset}: its coordinator has "
                f"{sorted(told - expected)}, and its log {sorted(expected - told)}"
            )


def values_of(machine: TransactionMachine) -> list[RecordedTransaction]:
    """The transactional ids of a coordinator."""
    found = (machine.value_of(each.transactional_id) for each in _listed(machine))
    return [value for value in found if value is not None]


def _listed(machine: TransactionMachine) -> tuple[ListedTransaction, ...]:
    (reply,) = machine.take(ListRequest(), _Asker(), START).replies
    assert isinstance(reply.answer, ListAnswer)
    return reply.answer.transactions


def _described(machine: TransactionMachine) -> set[tuple[str, int, int, str, str]]:
    """Transactional id, producer id and epoch, state and partitions of each transactional id."""
    found = set()
    for listed in _listed(machine):
        (reply,) = machine.take(DescribeRequest(listed.transactional_id), _Asker(), START).replies
        told = reply.answer
        assert isinstance(told, DescribedTransaction)
        partitions = ",".join(f"{topic}-{number}" for topic, number in sorted(told.partitions))
        identity = told.transactional_id, told.producer_id, told.producer_epoch
        found.add((*identity, told.state.label, partitions))
    return found
