"""A share partition at its leader, with a log and a share coordinator of the test."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.coordinator.share.machine import changed
from broker.coordinator.share.records import StateUpdate
from broker.coordinator.share.types import (
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    WriteRequest,
)
from broker.replication.deadlines import DeadlineWheel
from broker.share.values import AcknowledgementBatch, AcknowledgeType, Limits
from broker.sharing.fetching import Delivery, ShareFetch, Wanted
from broker.sharing.partition import LedSharePartition
from broker.sharing.sessions import SessionKey, ShareSession
from broker.sharing.settings import SharePartitionSettings
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.letters import DEAD_LETTER_TOPIC, LetterBench
from tests.support.shared_logs import FakeSharedLog
from tests.support.timing import LoopClock, until

KEY = StateKey("g", b"t" * 16, 3)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
GAP, RENEW = AcknowledgeType.GAP, AcknowledgeType.RENEW
STATE_EPOCH = 7


class FakeStates:
    """Answers requests about states, and can be made to wait."""

    def __init__(self) -> None:
        self.asked: list[StateRequest] = []
        self.state = ShareState(0, STATE_EPOCH, start_offset=0)
        self.refusal: StateAnswer | None = None
        self.gate: asyncio.Event | None = None  # answers wait for it
        self.keeps = False
        """Whether writes change the state, as at a coordinator."""

    async def ask(self, request: StateRequest, timeout_s: float) -> StateAnswer:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.refusal is not None:
            return self.refusal
        if self.keeps and isinstance(request, WriteRequest):
            update = StateUpdate(
                0,
                request.leader_epoch,
                request.start_offset,
                request.complete_count,
                request.batches,
                request.letters,
            )
            self.state = changed(self.state, update)
        state = self.state if isinstance(request, ReadRequest) else None
        return StateAnswer(ErrorCode.NONE, None, state)

    @property
    def writes(self) -> list[WriteRequest]:
        return [each for each in self.asked if isinstance(each, WriteRequest)]


class SharingBench:
    """One share partition, with lives of its leader."""

    def __init__(self, *, makes_letter_topics: bool = False, **limits: Any) -> None:
        self.clock = LoopClock()
        self.deadlines = DeadlineWheel(self.clock)
        self.letters = LetterBench(self.clock, makes_topics=makes_letter_topics)
        self.measures = self.letters.office.measures
        self.states = FakeStates()
        self.log = FakeSharedLog(PartitionId(KEY.topic_id, KEY.partition))
        self.limits = Limits(record_lock_duration_ms=1_000)._replace(**limits)
        self.dropped: list[LedSharePartition] = []

    def lead(self, reset: str = "earliest", *, read_committed: bool = False) -> LedSharePartition:
        return LedSharePartition(
            KEY,
            self.log,
            self.settings(reset, read_committed=read_committed),
            states=self.states,
            clock=self.clock,
            deadlines=self.deadlines,
            office=self.letters.office,
            on_dropped=self.dropped.append,
        )

    def settings(
        self, reset: str = "earliest", *, read_committed: bool = False
    ) -> SharePartitionSettings:
        topic = DEAD_LETTER_TOPIC if self.limits.has_dead_letters else ""
        return SharePartitionSettings(self.limits, reset, read_committed, topic)

    async def led(self, reset: str = "earliest", **settings: bool) -> LedSharePartition:
        """One that is loaded."""
        led = self.lead(reset, **settings)
        await until(lambda: led.machine is not None or led.failure is not None)
        return led

    def session(self, member: str = "m") -> ShareSession:
        return ShareSession(SessionKey("g", member), object())

    async def fetch(
        self,
        led: LedSharePartition,
        member: str | ShareSession = "m",
        *,
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        is_strict: bool = False,
    ) -> Delivery:
        session = self.session(member) if isinstance(member, str) else member
        wanted = Wanted(wait_ms, max_bytes, max_records, is_strict)
        found = await ShareFetch(session, [led], wanted, self.clock, lambda: 1 << 20).run()
        return found.get(self.log.id, Delivery())

    async def offsets(self, led: LedSharePartition, member: str = "m") -> list[int]:
        """The offsets that a member gets now."""
        delivery = await self.fetch(led, member)
        return [n for each in delivery.acquired for n in range(each.first, each.last + 1)]


def batch(first: int, last: int, *types: AcknowledgeType) -> AcknowledgementBatch:
    return AcknowledgementBatch(first, last, types)
