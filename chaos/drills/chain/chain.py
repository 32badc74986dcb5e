"""The processes of the chain, as a drill has them: started, killed, heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from chaos.drills.chain.hop import group_of
from chaos.drills.chain.records import HOPS, TOPICS, UNKNOWN, Run
from chaos.drills.child import Child
from chaos.drills.history import Chained, Hop
from chaos.drills.recorder import Recorder
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, coordinating_partition
from stele.admin.descriptions import NewTopic
from stele.aio import Admin
from stele.errors import SteleError

PARTITIONS: Final = 6
CLIENTS: Final = ("stele", "confluent")
_SOURCE_STOP_S: Final = 60.0

_HOP_MODULES: Final = {
    "stele": "chaos.drills.chain.hop",
    "confluent": "chaos.drills.chain.confluent_hop",
}


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """``seconds``: how long processes are killed. ``per_s``: records per second of the source.
    ``clients``: the client of the hops."""

    seconds: float = 60.0
    per_s: float = 1_000.0
    clients: str = "stele"


class Chain:
    """One source at a time, ``HOPS`` hops, and a sink that is never killed."""

    def __init__(
        self,
        bootstrap: str,
        options: ChainOptions,
        recorder: Recorder,
        offsets: Literal["inside", "outside"],
    ) -> None:
        self.options = options
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._offsets = offsets
        self._sources = 0
        self._began_ms: float | None = None  # when the first source did
        self._source = Child("chaos.drills.chain.source", self._take_source)
        self._hops = {
            hop: Child(_HOP_MODULES[options.clients], partial(self._take_hop, hop))
            for hop in range(1, HOPS + 1)
        }
        self._sink = Child("chaos.drills.chain.sink", self._take_sink)
        # Per source and partition: how many were acknowledged, and how many came out.
        self._acked: Counter[tuple[str, int]] = Counter()
        self._out: Counter[tuple[str, int]] = Counter()
        self._last_out_ms = 0.0

    async def start(self, admin: Admin) -> None:
        """Make the topics and start everything. Raises SteleError."""
        if self.options.clients == "confluent":
            try:
                import confluent_kafka  # noqa: F401
            except ImportError:
                raise SteleError("confluent-kafka is not installed: leave --clients out") from None
        configs = {"min.insync.replicas": "2"}
        await admin.create_topics([NewTopic(each, PARTITIONS, 3, configs) for each in TOPICS])
        await self._sink.start(self._bootstrap, str(PARTITIONS))
        for hop in self._hops:
            await self.start_hop(hop)
        await self.start_source()

    async def start_source(self) -> None:
        """A source goes on under another name. The unacknowledged records of its predecessor are
        not sent again. It writes as many other records for them, and for the time without a source.
        """
        self._sources += 1
        if self._began_ms is None:
            self._began_ms = self._recorder.now_ms
        elapsed_s = (self._recorder.now_ms - self._began_ms) / 1000
        behind = max(0, int(elapsed_s * self.options.per_s) - self._acked.total())
        await self._source.start(
            self._bootstrap,
            f"source-{self._sources}",
            str(PARTITIONS),
            str(self.options.per_s),
            str(behind),
        )

    async def start_hop(self, hop: int) -> None:
        await self._hops[hop].start(self._bootstrap, str(hop), self._offsets)

    async def kill_source(self) -> None:
        await self._source.kill()

    async def kill_hop(self, hop: int) -> None:
        await self._hops[hop].kill()

    async def stop_source(self) -> None:
        """Write no more. When this returns, every sent record is acknowledged or has failed."""
        await self._source.stop(_SOURCE_STOP_S)

    async def stop(self) -> None:
        children = (self._source, *self._hops.values(), self._sink)
        await asyncio.gather(*(child.stop() for child in children))

    @property
    def came_out(self) -> int:
        return self._out.total()

    @property
    def quiet_s(self) -> float:
        """How long nothing has come out."""
        return (self._recorder.now_ms - self._last_out_ms) / 1000

    @property
    def is_drained(self) -> bool:
        """Whether as many came out of each source and partition as were acknowledged."""
        return all(self._out[each] >= count for each, count in self._acked.items())

    # ----------------------------------------------------------------------------- places

    async def leader(self, admin: Admin, number: int) -> int:
        """The leader of a partition of the chain's topics. ``number`` chooses the partition."""
        topic = TOPICS[number % len(TOPICS)]
        return await _leader(admin, topic, lambda count: number // len(TOPICS) % count)

    async def transaction_coordinator(self, admin: Admin, hop: int) -> int:
        key = group_of(hop)
        return await _leader(admin, TRANSACTION_TOPIC, partial(coordinating_partition, key))

    async def group_coordinator(self, admin: Admin, hop: int) -> int:
        key = group_of(hop)
        return await _leader(admin, GROUP_TOPIC, partial(coordinating_partition, key))

    async def is_replicated(self, admin: Admin) -> bool:
        """Whether all replicas of everything that the chain needs are in sync."""
        described = await admin.describe_topics([*TOPICS, TRANSACTION_TOPIC, GROUP_TOPIC])
        return all(
            each.leader is not None and not each.is_under_replicated
            for topic in described
            for each in topic.partitions
        )

    # ------------------------------------------------------------------------------ lines

    def _take_source(self, told: Any) -> None:
        for stage in ("sent", "acked", "failed"):
            for run in map(Run._make, told.get(stage, ())):
                self._add(stage, run)
                if stage == "acked":
                    self._acked[run.source, run.partition] += run.length

    def _take_sink(self, told: Any) -> None:
        self._last_out_ms = self._recorder.now_ms
        for run in map(Run._make, told["out"]):
            self._add("out", run)
            if run.source != UNKNOWN:
                self._out[run.source, run.partition] += run.length

    def _add(self, stage: str, run: Run) -> None:
        source, partition, first, length, latency_ms = run
        at_ms = self._recorder.now_ms
        self._recorder.add(
            Chained(at_ms, stage, source, partition, first, length, float(latency_ms))
        )

    def _take_hop(self, hop: int, told: Any) -> None:
        at_ms = self._recorder.now_ms
        for outcome in ("committed", "aborted"):
            if outcome in told:
                took_ms, why = float(told.get("took_ms", 0)), told.get("why", "")
                self._recorder.add(Hop(at_ms, hop, outcome, told[outcome], took_ms, why))
        if "again" in told:
            self._recorder.add(Hop(at_ms, hop, "again", 0, 0.0, told["again"]))


async def _leader(admin: Admin, topic: str, choose: Callable[[int], int]) -> int:
    """Raises SteleError if the topic does not exist."""
    (described,) = await admin.describe_topics([topic])
    found = described.partitions[choose(len(described.partitions))].leader
    if found is None:
        raise SteleError(f"a partition of {topic} has no leader")
    return found
