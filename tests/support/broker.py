"""Small makers for tests of the broker."""

from __future__ import annotations

from dataclasses import replace

from broker.partition.effects import BrokerStatus, Effect, IsrAnswer, LogPosition, Proposed
from broker.partition.machine import PartitionMachine
from metadata.partitions import RECOVERED, PartitionState
from stele.errors import ErrorCode


def position(
    end: int, durable: int | None = None, *, start: int = 0, generation: int = 0
) -> LogPosition:
    """A log's position. By default everything is durable."""
    return LogPosition(start, end, end if durable is None else durable, generation)


def state(
    leader: int = 1,
    *,
    epoch: int = 5,
    partition_epoch: int = 10,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    **more: object,
) -> PartitionState:
    return PartitionState(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        **more,  # type: ignore[arg-type]
    )


class MachineBench:
    """A machine of broker 1 that keeps time and log and collects its effects."""

    LAG_MS = 30_000.0

    def __init__(self, *, min_insync: int = 1, end: int = 0, high_watermark: int = 0) -> None:
        self.now_ms = 1_000_000.0
        self.log = position(end)
        self.epochs = {2: 102, 3: 103, 4: 104}
        self.eligible = {2: True, 3: True, 4: True}
        self.min_insync = min_insync
        self.machine = PartitionMachine(
            1,
            log=self.log,
            high_watermark=high_watermark,
            lag_max_ms=self.LAG_MS,
        )

    def update(self, new: PartitionState, *, min_insync: int | None = None) -> list[Effect]:
        self.min_insync = self.min_insync if min_insync is None else min_insync
        return self.machine.updated(new, self.min_insync, self.log, self.now_ms)

    def configure(self, min_insync: int) -> list[Effect]:
        self.min_insync = min_insync
        return self.machine.configured(min_insync, self.now_ms)

    def append(self, count: int, *, durable: bool = False) -> list[Effect]:
        self.log = self.log._replace(end_offset=self.log.end_offset + count)
        effects = self.machine.appended(self.log, self.now_ms)
        return effects + self.sync() if durable else effects

    def sync(self, upto: int | None = None) -> list[Effect]:
        upto = self.log.end_offset if upto is None else upto
        self.log = self.log._replace(durable_offset=upto)
        return self.machine.made_durable(self.log, self.now_ms)

    def status(self, broker_id: int) -> BrokerStatus:
        return BrokerStatus(self.epochs[broker_id], self.eligible[broker_id])

    def fetch(self, broker_id: int, offset: int, *, start: int = 0) -> list[Effect]:
        return self.machine.fetched(
            broker_id, offset, self.status(broker_id), self.now_ms, start_offset=start
        )

    def delete(self, offset: int, token: str) -> list[Effect]:
        """Delete records on this broker, durably. ``token`` waits for the others."""
        start = self.machine.deletable(offset)
        self.begin_at(start)
        return self.machine.await_deleted(start, token)[1]

    def begin_at(self, start: int) -> None:
        """The log now begins at ``start``."""
        self.log = self.log._replace(start_offset=start)
        self.machine.started_at(self.log)

    def wait(self, token: str, offset: int | None = None) -> list[Effect]:
        offset = self.log.end_offset if offset is None else offset
        return self.machine.await_replicated(offset, token, self.now_ms)[1]

    def tick(self, elapsed_ms: float = 0.0) -> list[Effect]:
        self.now_ms += elapsed_ms
        return self.machine.ticked(self.now_ms)


def leading(*, min_insync: int = 2, end: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> MachineBench:
    bench = MachineBench(min_insync=min_insync, end=end)
    bench.update(state(isr=isr))
    return bench


def of(kind: type[Effect], effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def proposal(effects: list[Effect]) -> Proposed:
    (effect,) = of(Proposed, effects)
    assert isinstance(effect, Proposed)
    return effect


def taken(bench: MachineBench, proposed: Proposed) -> list[Effect]:
    """The controller accepts the proposal: it answers, and the metadata change."""
    answer = IsrAnswer(ErrorCode.NONE, proposed.partition_epoch + 1)
    assert bench.machine.answered(proposed, answer, bench.now_ms) == []
    return bench.update(decided(bench, proposed))


def decided(bench: MachineBench, proposed: Proposed) -> PartitionState:
    """The partition in the metadata after the proposal was accepted."""
    return replace(
        bench.machine.state,
        isr=tuple(member.broker_id for member in proposed.isr),
        partition_epoch=proposed.partition_epoch + 1,
        leader_recovery_state=RECOVERED,
    )


def refused(bench: MachineBench, proposed: Proposed, error: ErrorCode) -> list[Effect]:
    return bench.machine.answered(proposed, IsrAnswer(error), bench.now_ms)
