"""The replication logic of one partition on one broker: pure, events in, effects out.

Events are changes of the log, fetches of followers, news of the metadata or the controller, and
time. Effects (``broker.partition.effects``) are the work that the driver carries out, in order.
Nothing here reads a clock, a log or a socket.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    Appended,
    BrokerStatus,
    Effect,
    Followed,
    IsrAnswer,
    Led,
    LogPosition,
    Proposed,
    Refused,
    Token,
)
from broker.partition.progress import Attendance, FollowerProgress
from broker.partition.view import PartitionView, Role
from metadata.partitions import RECOVERING, PartitionState
from stele.errors import ErrorCode


class PartitionMachine(PartitionView):
    """Takes the events. All times are monotonic milliseconds."""

    # ------------------------------------------------------------------- metadata's events

    def updated(
        self, state: PartitionState, min_insync_replicas: int, log: LogPosition, now_ms: float
    ) -> list[Effect]:
        """The metadata have ``state``, and ``min.insync.replicas`` in the same image. An older
        state than the known one is ignored."""
        known = self._state
        if state.partition_epoch < known.partition_epoch or state.leader_epoch < known.leader_epoch:
            return []
        effects: list[Effect] = []
        self._move_to(log)
        self._state = state
        self._count_needed(min_insync_replicas)
        if state.leader == self.broker_id:
            if not self.is_leader or state.leader_epoch > known.leader_epoch:
                self._lead(effects, now_ms)
            self._followers.track(state, self.broker_id, now_ms)
            self._isr.committed(known, state, now_ms)
            self._settle(effects, now_ms)
        elif self.role is not Role.FOLLOWER or state.leader_epoch > known.leader_epoch:
            self._follow(effects)
        return effects

    def _count_needed(self, min_insync_replicas: int) -> None:
        self.min_insync = min(min_insync_replicas, self._state.replication_factor)

    def _lead(self, effects: list[Effect], now_ms: float) -> None:
        self.role = Role.LEADER
        self.epoch_start_offset = self._log.end_offset
        # The log of an ISR member reaches the high watermark on disk. A leader that was elected
        # uncleanly may know a higher one than it has synced: it must not show records that it could
        # still lose.
        committed = min(self.high_watermark, self._log.durable_offset)
        self.high_watermark = max(committed, self._log.start_offset)
        # Positions of an earlier epoch prove nothing in this one.
        self._followers.clear()
        self._isr.begin()
        effects.append(Led(self._state.leader_epoch, self.epoch_start_offset))
        if self._state.leader_recovery_state == RECOVERING:
            self._propose(effects, self._state.isr)

    def _follow(self, effects: list[Effect]) -> None:
        self.role = Role.FOLLOWER
        self._followers.clear()
        self._isr.end()
        tokens = self._replicated.drain() + self._durable.drain() + self._deleted.drain()
        if tokens:
            effects.append(Refused(tokens, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        effects.append(Followed(self._state.leader, self._state.leader_epoch))

    def configured(self, min_insync_replicas: int, now_ms: float) -> list[Effect]:
        """``min.insync.replicas`` changed, and nothing else of the partition."""
        self._count_needed(min_insync_replicas)
        effects: list[Effect] = []
        self._settle(effects, now_ms)
        return effects

    def broker_changed(self, broker_id: int, status: BrokerStatus, now_ms: float) -> list[Effect]:
        """A broker was registered, fenced, unfenced, or shuts down."""
        progress = self._followers.get(broker_id)
        if progress is None:
            return []
        progress.eligible = status.eligible and progress.broker_epoch == status.epoch
        effects: list[Effect] = []
        self._settle(effects, now_ms)
        return effects

    # ------------------------------------------------------------------------ log's events

    def _move_to(self, log: LogPosition) -> None:
        if log.end_offset != self._log.end_offset:
            self._followers.roused()
        self._log = log

    def appended(self, log: LogPosition, now_ms: float) -> list[Effect]:
        """The leader's log grew."""
        durable_before = self._log.durable_offset
        self._move_to(log)
        effects: list[Effect] = [Appended(log.end_offset)]
        if log.durable_offset > durable_before:  # flushing is relaxed
            self._settle(effects, now_ms)
        return effects

    def made_durable(self, log: LogPosition, now_ms: float) -> list[Effect]:
        """A group reached the disk. Bytes of a generation since truncated count for nothing."""
        if log.generation != self._log.generation:
            return []
        if log.durable_offset > self._log.durable_offset:
            self._log = self._log._replace(durable_offset=log.durable_offset)
        effects: list[Effect] = []
        self._settle(effects, now_ms)
        return effects

    def transaction_ended(self, first_offset: int, marker_offset: int) -> None:
        """A marker was appended that ends the transaction which began at ``first_offset``. Call it
        before ``appended`` or ``copied``, and after a start for each marker that is not below the
        high watermark."""
        self._undecided.add(first_offset, marker_offset)

    def started_at(self, log: LogPosition) -> None:
        """The log's start rose, by retention or by a request. Deleted records were committed."""
        self._move_to(log)
        self.high_watermark = max(self.high_watermark, log.start_offset)

    def copied(self, log: LogPosition, leader_high_watermark: int) -> bool:
        """A follower's log grew by an answer that carried the leader's high watermark. Returns
        whether more is known to be committed."""
        self._log = log
        before = self.high_watermark
        known = min(leader_high_watermark, log.end_offset)
        self.high_watermark = max(before, known, log.start_offset)
        return self.high_watermark > before

    def truncated(self, log: LogPosition) -> None:
        """A follower cut its log where it diverged from the leader's, or began it anew."""
        self._log = log
        self.high_watermark = max(log.start_offset, min(self.high_watermark, log.end_offset))
        self._undecided.truncated(log.end_offset)

    # ------------------------------------------------------------------- produce requests

    def await_replicated(
        self, offset: int, token: Token, now_ms: float
    ) -> tuple[int, list[Effect]]:
        """``token`` wants everything below ``offset`` committed (acks=all).

        A retried duplicate names its original's end and so waits for the same. The number
        withdraws the wait.
        """
        number = self._replicated.add(offset, token)
        effects: list[Effect] = []
        if offset <= self.high_watermark or self.is_under_min_isr:
            self._settle(effects, now_ms)
        return number, effects

    def await_durable(self, offset: int, token: Token) -> tuple[int, list[Effect]]:
        """``token`` wants everything below ``offset`` on this broker's disk (acks=1)."""
        number = self._durable.add(offset, token)
        effects: list[Effect] = []
        if offset <= self._log.durable_offset:
            self._acknowledge_durable(effects)
        return number, effects

    def await_deleted(self, offset: int, token: Token) -> tuple[int, list[Effect]]:
        """``token`` wants every replica that may lead to begin at ``offset`` or later, on disk;
        this one does. The number withdraws the wait."""
        number = self._deleted.add(offset, token)
        effects: list[Effect] = []
        self._acknowledge_deleted(effects)
        return number, effects

    def withdraw_deleted(self, number: int) -> None:
        """A deletion stopped waiting, by its time-out."""
        self._deleted.withdraw(number)

    def withdraw(self, number: int, *, replicated: bool) -> None:
        """A request stopped waiting, by its time-out."""
        (self._replicated if replicated else self._durable).withdraw(number)

    def fail_waiters(self, error: ErrorCode) -> list[Effect]:
        """Refuse everything from now on: the log failed or the broker stops."""
        tokens = self._replicated.drain() + self._durable.drain() + self._deleted.drain()
        return [Refused(tokens, error)] if tokens else []

    # ------------------------------------------------------------------ followers' fetches

    def fetched(
        self,
        broker_id: int,
        offset: int,
        status: BrokerStatus,
        now_ms: float,
        attendance: Attendance | None = None,
        *,
        start_offset: int = 0,
        time_ms: int = 0,
    ) -> list[Effect]:
        """A follower fetches from ``offset``, and so has all records below it on disk.

        Before, the caller has called ``check_follower`` and ``must_begin_anew``, and compared
        epochs: the follower's log does not diverge below ``offset``. ``time_ms`` is the wall clock.
        An offset past the log's end is ignored. While the follower then ``rests`` here, later
        requests of its session only change ``attendance``, and this is not called for them.
        """
        progress = self._followers[broker_id]
        if offset > self._log.end_offset:
            return []
        is_member = broker_id in self._state.isr
        # A member binds the high watermark by its end alone, whatever its incarnation.
        is_news = offset != progress.end_offset
        progress.fetched(
            broker_epoch=status.epoch,
            offset=offset,
            leader_end=self._log.end_offset,
            now_ms=now_ms,
            start_offset=start_offset,
            attendance=attendance,
            emptied_at_ms=time_ms if self._is_empty_at(offset, start_offset) else None,
        )
        progress.eligible = status.eligible
        effects: list[Effect] = []
        if not is_member:
            self._grow(effects, broker_id, progress, now_ms)
        if is_news or not is_member:
            self._settle(effects, now_ms)
        elif self._deleted.live:
            self._acknowledge_deleted(effects)
        return effects

    def tombstones_dropped(self, dropped_end: int, time_ms: int, retention_ms: int) -> None:
        """This log is about to drop tombstones or markers below ``dropped_end``."""
        for progress in self._followers.values():
            progress.tombstones_dropped(dropped_end, time_ms, retention_ms)

    def left(self, broker_id: int, attendance: Attendance) -> None:
        """A follower's session no longer covers this partition, or cannot be served from it."""
        progress = self._followers.get(broker_id)
        if progress is not None and progress.rests_in is attendance:
            progress.roused()

    def _grow(
        self, effects: list[Effect], broker_id: int, progress: FollowerProgress, now_ms: float
    ) -> None:
        """Propose to add a follower to the ISR if it may join. At or past both high watermark and
        epoch start it has every committed record; if it begins no earlier than this log, it has no
        deleted one."""
        if (
            self._isr.may_propose(now_ms)
            and progress.eligible
            and progress.start_offset >= self._log.start_offset
            and progress.end_offset >= max(self.high_watermark, self.epoch_start_offset)
        ):
            self._propose(effects, (*self._state.isr, broker_id))

    # ---------------------------------------------------------------------------- the ISR

    def _propose(self, effects: list[Effect], isr: Sequence[int]) -> None:
        effects.append(self._isr.propose(self._state, self._followers.members(isr)))

    def answered(self, proposal: Proposed, answer: IsrAnswer, now_ms: float) -> list[Effect]:
        """The controller answered ``proposal``; an answer to one given up is dropped.

        A proposal that was taken takes effect with the metadata, never with the answer: earlier
        decisions of the controller (min.insync.replicas, replicas, a leader) come first. Example: a
        leader that acted on the answer alone could commit with an ISR that is too small by a raised
        min.insync.replicas, while the controller keeps the replicas that left eligible (KIP-966).
        The proposal stays in the maximal ISR until the metadata tell its outcome. This includes a
        refusal that names newer epochs, which leaves open what the controller has committed.
        """
        effects: list[Effect] = []
        if self._isr.answered(proposal, answer, self._state, now_ms):
            self._settle(effects, now_ms)
        return effects

    def ticked(self, now_ms: float) -> list[Effect]:
        """Time passed: members that lag for too long must leave the ISR.

        While the machine ``is_settled`` it needs no such call.
        """
        effects: list[Effect] = []
        if not self.is_leader:
            return effects
        lagging = {
            broker_id
            for broker_id in self._state.isr
            if broker_id != self.broker_id and not self._is_caught_up(broker_id, now_ms)
        }
        is_recovering = self._state.leader_recovery_state == RECOVERING
        if (lagging or is_recovering) and self._isr.may_propose(now_ms):
            self._propose(effects, [b for b in self._state.isr if b not in lagging])
        self._settle(effects, now_ms)
        return effects

    def _is_caught_up(self, broker_id: int, now_ms: float) -> bool:
        return self._followers[broker_id].is_caught_up(
            leader_end=self._log.end_offset, now_ms=now_ms, lag_max_ms=self.lag_max_ms
        )

    # --------------------------------------------------------------------- high watermark

    def _settle(self, effects: list[Effect], now_ms: float) -> None:
        """Apply the consequences of a change: advance the high watermark, and wake waiting
        requests."""
        if self.role is not Role.LEADER:
            return
        if len(self._state.isr) < self.min_insync:
            tokens = self._replicated.drain()
            if tokens:
                effects.append(Refused(tokens, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        else:
            reached = self._committable(now_ms)
            if reached > self.high_watermark:
                self.high_watermark = reached
                effects.append(Advanced(reached))
            if self._replicated.live:
                tokens = self._replicated.reach(self.high_watermark)
                if tokens:
                    effects.append(Acknowledged(tokens))
        if self._durable.live:
            self._acknowledge_durable(effects)
        if self._deleted.live:
            self._acknowledge_deleted(effects)

    def _committable(self, now_ms: float) -> int:
        """The least durable end offset over the maximal ISR, this broker's included.

        The leader also waits for an eligible replica outside of it that has just caught up: it
        joins with its next fetch. Under steady load it never could if the high watermark ran ahead.
        """
        least = self._log.durable_offset
        for broker_id, progress in self._followers.items():
            if progress.end_offset < least and (
                broker_id in self._isr.members
                or (progress.eligible and self._is_caught_up(broker_id, now_ms))
            ):
                least = progress.end_offset
        return least

    def _acknowledge_durable(self, effects: list[Effect]) -> None:
        tokens = self._durable.reach(self._log.durable_offset)
        if tokens:
            effects.append(Acknowledged(tokens))

    def _acknowledge_deleted(self, effects: list[Effect]) -> None:
        tokens = self._deleted.reach(self.low_watermark)
        if tokens:
            effects.append(Acknowledged(tokens))
