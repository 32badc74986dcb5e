"""The work of a run on a share group that reads committed records only, of the transactions that
other work makes."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.cluster.view import online
from chaos.sim.laws.atomic_transactions import TransactionsAreAtomic
from chaos.sim.laws.shared_records import RecordName
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.load import Part
from chaos.sim.work.share_crew import LEAST_SETTINGS, ShareCrew, Shared, make_coordinators
from chaos.sim.work.site import Site
from chaos.sim.work.transaction_work import TransactionLoad
from chaos.sim.work.transfers import TRANSFERS
from chaos.sim.work.work import Work

AUDITORS: Final = "auditors"


@dataclass(frozen=True, slots=True)
class AuditLoad(Part):
    """How many members read the transfers of a run that has transactions."""

    label: ClassVar = "audits"

    members: int = 0
    delivery_limit: int = 5
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> AuditLoad:
        """A third of the runs may have it, if they have transactions."""
        if rng.random() >= 0.35:
            return cls()
        return cls(rng.choice([1, 2]), rng.choice([2, 5]), tuple(LEAST_SETTINGS.items()))

    @property
    def is_there(self) -> bool:
        return self.members > 0


class AuditWork(Work):
    """Members get no record of a transaction that is open or was aborted, and in the end they have
    got each committed record."""

    name = "audits"
    load = AuditLoad
    outlasts = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        load, transactions = site.load.part(AuditLoad), site.load.part(TransactionLoad)
        self._atomic = site.law(TransactionsAreAtomic)
        self._crew: ShareCrew | None = None
        if transactions.is_there:
            shared = Shared(AUDITORS, TRANSFERS, transactions.accounts, load.delivery_limit)
            self._crew = ShareCrew(
                site, shared, load.members, "auditor", self.counts, self._deliver
            )

    def _deliver(self, place: PartitionName, offset: int, value: bytes) -> None:
        self.counts["shared records of transactions"] += 1
        self._atomic.seen(place, offset, value)

    async def prepare(self) -> None:
        """The topic is there."""
        if self._crew is None:
            return
        await make_coordinators(self.site, 1 << 20)
        self._crew.records.have_gaps.add(AUDITORS)
        await self._crew.configure(
            share_isolation_level="read_committed",
            share_record_lock_duration_ms="1000",
            share_session_timeout_ms="3000",
            share_heartbeat_interval_ms="400",
            share_delivery_count_limit=str(self.site.load.part(AuditLoad).delivery_limit),
        )

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [] if self._crew is None else self._crew.start()

    async def finish(self) -> None:
        """No transaction is open any more."""
        if self._crew is not None:
            await self._crew.finish(self._ends)

    def _ends(self) -> Mapping[PartitionName, int]:
        assert self._crew is not None
        ends: dict[PartitionName, int] = {}
        for _, replica in online(self.site.cluster):
            place = replica.topic, replica.id.partition
            if place in self._crew.places:
                ends[place] = max(ends.get(place, 0), replica.machine.high_watermark)
        return ends

    def judge(self) -> int:
        """Each committed record was delivered, or may have been."""
        if self._crew is None:
            return 0
        records, places = self._crew.records, set(self._crew.places)
        judged = 0
        for value, (place, offset) in self._atomic.committed():
            if place not in places:
                continue
            judged += 1
            name = RecordName(AUDITORS, place, offset)
            if not records.of(name).deliveries and not records.may_be_done(name):
                self.site.report(f"{name} is {value!r}, was committed, and no member has got it")
        return judged
