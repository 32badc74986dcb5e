"""The work of a run on transactions: its clients, and the checks at its end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from broker.replication.metadata import LOGS_AT_ONCE
from chaos.sim.cluster.connections import Connections
from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.atomic_transactions import RISKY, TransactionsAreAtomic
from chaos.sim.laws.committed_offsets import CommittedOffsetsStay
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing
from chaos.sim.laws.generations import PartitionsHaveOneOwner
from chaos.sim.laws.log_transactions import LogsKnowTheirTransactions
from chaos.sim.laws.markers import MarkersFollowDecisions
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.committed_reader import CommittedRead, CommittedReader
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.load import Part
from chaos.sim.work.passer import Passer
from chaos.sim.work.seat import Seat
from chaos.sim.work.site import Site
from chaos.sim.work.transaction_client import TransactionClient
from chaos.sim.work.transactor import Bench, Step, Transactor
from chaos.sim.work.transfers import (
    COPIED,
    COPIERS,
    COPIES,
    TRANSFERS,
    CommittedWatcher,
    Copying,
    Transfer,
)
from chaos.sim.work.work import Work
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from stele.errors import ApiError
from stele.ids import PartitionId

_GROUP_PARTITIONS: Final = 3
_COORDINATORS: Final = "transaction.state.log.num.partitions"
_FEW_COORDINATORS: Final = 2
_MANY_COORDINATORS: Final = LOGS_AT_ONCE + 5
SETTINGS: Final = (
    ("offsets.topic.num.partitions", str(_GROUP_PARTITIONS)),
    (_COORDINATORS, str(_FEW_COORDINATORS)),
    # The first client may come before all brokers are registered.
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.two.phase.commit.enable", "true"),
    ("group.min.session.timeout.ms", "500"),
    ("group.initial.rebalance.delay.ms", "0"),
)
"""What the brokers of a run with transactions are configured with."""
_ATTEMPTS, _ATTEMPT_S = 100, 0.2  # to read in the end
_PASS_S = 5.0  # between two transactions that are left open
_STABLE_S = 40.0  # behind the time-out of a transaction, in a cluster that is whole


@dataclass(frozen=True, slots=True)
class TransactionLoad(Part):
    """How much work there is with transactions."""

    label: ClassVar = "transactions"

    tellers: int = 0  # producers that make transfers
    old_tellers: int = 0  # so many of them are clients of the old kind
    two_phase_tellers: int = 0  # so many of the others
    copiers: int = 0  # in one group, which owns what is copied
    passers: int = 0  # producers that leave each of their transactions open
    watchers: int = 1
    accounts: int = 3  # partitions
    pause_s: float = 0.2
    timeout_ms: int = 3000
    segment_bytes: int = 4000
    risks: bool = False
    """There is a partition that allows unclean elections."""
    coordinators: int = _FEW_COORDINATORS
    """The partitions of ``__transaction_state``. A broker cannot make many in one turn of its
    event loop."""
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> TransactionLoad:
        """A third of the runs have transactions."""
        if rng.random() >= 0.35:
            return cls()
        tellers = rng.randint(1, 3)
        old = rng.randint(0, tellers)
        load = cls(
            tellers=tellers,
            old_tellers=old,
            two_phase_tellers=rng.randint(0, tellers - old),
            copiers=rng.choice([0, 1, 2, 2]),
            watchers=rng.randint(1, 2),
            accounts=rng.randint(2, 3),
            pause_s=rng.choice([0.1, 0.3]),
            timeout_ms=rng.choice([1500, 4000]),
            segment_bytes=rng.choice([1500, 6000, 1 << 20]),
            passers=rng.choice([0, 1]),
            risks=rng.random() > 0.76,
            coordinators=_MANY_COORDINATORS if rng.random() < 0.1 else _FEW_COORDINATORS,
        )
        return replace(load, settings=(*SETTINGS, (_COORDINATORS, str(load.coordinators))))

    @property
    def is_there(self) -> bool:
        return self.tellers > 0


class TransactionWork(Work):
    name = "transactions"
    load = TransactionLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._cluster = site.cluster
        load = self._load = site.load.part(TransactionLoad)
        law = site.law
        self._atomic = law(TransactionsAreAtomic)
        self._offsets = law(CommittedOffsetsStay)
        for topics in (law(LogsKnowTheirTransactions).topics, law(MarkersFollowDecisions).topics):
            topics |= {TRANSFERS, COPIES[0]}
        self._bench = Bench(
            law(FencedProducersWriteNothing),
            self._atomic,
            site.report,
            self.counts,
            site.is_calm,
            site.is_done,
        )
        self._labels = (f"copies {number}" for number in itertools.count(1))
        self.accounts = [(TRANSFERS, number) for number in range(load.accounts)]
        self.places: list[PartitionName] = [*self.accounts, COPIES]
        self._risky: list[PartitionName] = []
        if load.risks:
            self._risky.append(RISKY)
            law(LogsKnowTheirTransactions).topics.add(RISKY[0])
        self._transactors = [self._teller(number) for number in range(load.tellers)]
        self._transactors += [self._copier(number) for number in range(load.copiers)]
        self._watchers = [self._watcher(number) for number in range(load.watchers)]

    def _rng(self, name: str) -> random.Random:
        return self._cluster.simulation.rngs.of(f"transactions {name}")

    def _teller(self, number: int) -> Transactor:
        load, name = self._load, f"teller {number}"
        is_old = number < load.old_tellers
        two_phase = not is_old and number < load.old_tellers + load.two_phase_tellers
        stall_s, risks = 2 * load.timeout_ms / 1000, load.risks and not is_old
        transfer = Transfer(self.accounts, self._rng(name), stall_s, risks)
        return self._transactor(name, transfer.step, is_old=is_old, two_phase=two_phase)

    def _copier(self, number: int) -> Transactor:
        name = f"copier {number}"
        rng = self._rng(name)
        connections = Connections.of(self._cluster, name)
        owners = self._cluster.invariants.law(PartitionsHaveOneOwner)
        seat = Seat(GroupClient(COPIERS, connections, rng), COPIED, owners, rng)
        reader = CommittedReader(connections, rng)
        copying = Copying(seat, reader, rng, self._offsets, self._labels)
        return self._transactor(name, copying.step, is_old=self._load.old_tellers > 1)

    def _transactor(
        self, name: str, step: Step, *, is_old: bool, two_phase: bool = False
    ) -> Transactor:
        rng = self._rng(name)
        transactional_id = name.replace(" ", "-")

        def new_client() -> TransactionClient:
            connections = Connections.of(self._cluster, name)
            return TransactionClient(transactional_id, connections, rng, is_old)

        return Transactor(
            self._bench,
            new_client,
            rng,
            step,
            self.places,
            self._load.timeout_ms,
            self._rng(f"haste of {name}"),
            two_phase,
        )

    def _passer(self, number: int) -> Passer:
        name = f"passer {number}"

        def new_client(transactional_id: str) -> TransactionClient:
            return TransactionClient(
                transactional_id, Connections.of(self._cluster, name), self._rng(name)
            )

        return Passer(
            name, self._bench, new_client, self._rng(name), self.places, self._load.timeout_ms
        )

    def _watcher(self, number: int) -> CommittedWatcher:
        name = f"watcher {number}"
        rng = self._rng(name)
        reader = CommittedReader(
            Connections.of(self._cluster, name), rng, any_replica=number % 2 == 1
        )
        places = [*self.places, *self._risky]
        return CommittedWatcher(reader, places, self._atomic, self.site.report, self.counts, rng)

    @property
    def _coordinated(self) -> dict[str, int]:
        """The topics of coordinators, and the number of their partitions."""
        return {GROUP_TOPIC: _GROUP_PARTITIONS, TRANSACTION_TOPIC: self._load.coordinators}

    @property
    def partitions(self) -> list[PartitionName]:
        """The partitions that the work writes to."""
        return [
            *self.places,
            *((topic, n) for topic, count in self._coordinated.items() for n in range(count)),
        ]

    async def prepare(self) -> None:
        """Make the topics. Those of coordinators have small segments, which are soon compacted, and
        may be there already."""
        client = self._cluster.client
        configs = {
            "min.insync.replicas": str(self.site.load.min_insync),
            "segment.bytes": str(self._load.segment_bytes),
            "retention.ms": "-1",
        }
        await client.create_topic(TRANSFERS, partitions=self._load.accounts, configs=configs)
        await client.create_topic(COPIES[0], partitions=1, configs=configs)
        compacted = {
            **configs,
            "cleanup.policy": "compact",
            "min.insync.replicas": "2",
            "min.cleanable.dirty.ratio": "0.1",
        }
        for topic, count in self._coordinated.items():
            if self._cluster.image.topic(topic) is None:
                await client.create_topic(topic, partitions=count, configs=compacted)
        for topic, number in self.partitions:
            await self._cluster.until_isr(topic, 3, number)
        for topic, number in self._risky:
            unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
            await client.create_topic(topic, replication_factor=2, configs=configs | unclean)
            await self._cluster.until_isr(topic, 2, number)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        work = [each.run(self._load.pause_s) for each in self._transactors]
        work += [self._passer(number).run(_PASS_S) for number in range(self._load.passers)]
        return work + [each.run(0.1, self.site.is_done) for each in self._watchers]

    async def finish(self) -> None:
        """Wait until no transaction is open and every coordinator serves. Raises AssertionError
        after the timeout: one hangs."""
        await self._cluster.until(
            self._is_settled,
            "all transactions end, and the coordinators of transactions and groups are loaded",
            timeout_s=_STABLE_S + self._load.timeout_ms / 1000,
        )

    def _is_settled(self) -> bool:
        return all(self._is_stable_at(*place) for place in self.places) and all(
            self._is_coordinated(topic, number)
            for topic, count in self._coordinated.items()
            for number in range(count)
        )

    def _is_coordinated(self, topic: str, number: int) -> bool:
        """Whether the leader of a coordinator's partition has loaded its coordinator."""
        found = self._cluster.image.topic(topic)
        assert found is not None
        state = found.partitions[number]
        node = self._cluster.brokers.get(state.leader)
        if node is None or node.broker is None:
            return False
        broker = node.broker
        if topic == GROUP_TOPIC:
            return broker.groups.is_active(number, state.leader_epoch)
        return broker.transactions.is_active(number, state.leader_epoch)

    def _is_stable_at(self, topic: str, number: int) -> bool:
        found = self._cluster.image.topic(topic)
        assert found is not None
        leader = self._cluster.brokers.get(found.partitions[number].leader)
        if leader is None:
            return False
        replica = replica_of(leader, PartitionId(found.topic_id, number))
        if replica is None or not replica.machine.is_leader:
            return False
        machine = replica.machine
        return machine.last_stable_offset == machine.high_watermark == replica.log.end_offset

    async def read_back(self) -> None:
        """Read all committed records and compare."""
        found = {place: await self._read_back(place) for place in [*self.places, *self._risky]}
        committed = self._atomic.judge(found)
        self.counts["transactions in the end"] = committed
        total = sum(int(value.split()[1]) for place in self.accounts for _, value in found[place])
        if total:
            self.site.report(f"the sum of all transfers is {total}")
        await self._judge_copies(found)

    async def _read_back(self, place: PartitionName) -> list[tuple[int, bytes]]:
        rng = self._rng("judge")
        reader = CommittedReader(Connections.of(self._cluster, "judge"), rng)
        records: list[tuple[int, bytes]] = []
        position = 0
        while True:
            read = await self._read_on(reader, place, position)
            records += read.records
            if read.next_offset == position:
                return records
            position = read.next_offset

    async def _read_on(
        self, reader: CommittedReader, place: PartitionName, position: int
    ) -> CommittedRead:
        """The first read may find a sector that cannot be read. Then another replica has to lead.
        An answer may also be empty because the device took longer than the reader waits. Raises
        what the last attempt raised."""
        for _ in range(_ATTEMPTS - 1):
            try:
                read = await reader.read(place, position)
            except (ApiError, OSError):
                await asyncio.sleep(_ATTEMPT_S)
            else:
                if read.next_offset > position or position >= read.last_stable_offset:
                    return read
        return await reader.read(place, position)

    async def _judge_copies(self, found: dict[PartitionName, list[tuple[int, bytes]]]) -> None:
        """Up to the last copy, each record was copied once, in order, and the offset behind it is
        committed."""
        copies = [value.split()[2:] for _, value in found[COPIES] if value.split()[1] == b"of"]
        committed = await self._committed()
        for source in COPIED:
            copied = [int(offset) for number, offset, *_ in copies if int(number) == source[1]]
            originals = [offset for offset, _ in found[source]]
            if copied != originals[: len(copied)]:
                self.site.report(
                    f"of {source} were copied {copied}, and committed {originals[: len(copied)]}"
                )
            position = committed.get(source)
            if copied and position != copied[-1] + 1:
                self.site.report(
                    f"{source} {copied[-1]} was copied last, and the offset is {position}"
                )

    async def _committed(self) -> dict[PartitionName, int]:
        """How far the copiers say that they have copied, as far as it is told."""
        rng = self._rng("judge")
        group = GroupClient(COPIERS, Connections.of(self._cluster, "judge"), rng)
        told: dict[PartitionName, tuple[int, str] | None] = {}
        for _ in range(_ATTEMPTS):
            try:
                told = await group.fetch(COPIED, require_stable=True)
            except (ApiError, OSError):
                told = {}
            if len(told) == len(COPIED):
                break
            await asyncio.sleep(_ATTEMPT_S)
        return {each: offset[0] for each, offset in told.items() if offset is not None}
