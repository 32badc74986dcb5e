"""The replication logic of one partition on one broker: pure, events in, effects out.

Events are changes of the log, fetches of followers, news of the metadata or the controller, and
time. Effects (``broker.partition.effects``) are the work that the driver carries out, in order.
Nothing here reads a clock, a log or a socket.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence

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
from broker.partition.followers import Followers
from broker.partition.maximal_isr import MaximalIsr
from broker.partition.progress import Attendance, FollowerProgress
from broker.partition.stability import Undecided
from broker.partition.waiters import OffsetWaiters
from metadata.partitions import RECOVERING, PartitionState
from stele.errors import ApiError, ErrorCode


class Role(enum.Enum):
    """This broker's role in the partition."""

    IDLE = "idle"  # no metadata yet
    FOLLOWER = "follower"  # also while there is no leader
    LEADER = "leader"


class PartitionMachine:
    """One replica's view of its partition. All times are monotonic milliseconds."""

    def __init__(
        self,
        broker_id: int,
        *,
        log: LogPosition,
        high_watermark: int,
        lag_max_ms: float,
    ) -> None:
        """``high_watermark`` is the checkpointed one; a log cut below it lowers it."""
        self.broker_id = broker_id
        self.role = Role.IDLE
        self.lag_max_ms = lag_max_ms
        # The newest state that the metadata told. Its `isr` is the committed ISR.
        self._state = PartitionState(replicas=(), isr=(), leader_epoch=-1, partition_epoch=-1)
        # The ISR size that acks=all needs: min.insync.replicas of the same image, at most the
        # replication factor. The controller decides by both which replicas are eligible.
        self.min_insync = 0
        # The newest known state. durable_offset never counts bytes of an earlier truncation
        # generation.
        self._log = log
        # Never goes back while leading; log start <= high watermark <= log end. When it was
        # reached, everything below was durable on every member of the maximal ISR of that moment.
        # Only a truncation to a diverging epoch takes it back.
        self.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        # Transactions whose marker is appended but not committed. They and the oldest open
        # transaction hold the last stable offset back.
        self._undecided = Undecided()
        # The log end offset at the start of the present leader epoch; meaningful while leading.
        self.epoch_start_offset = 0
        # Exactly the assigned replicas but this one, while leading; empty otherwise.
        self._followers = Followers()
        # What the leader reckons with; empty while not leading.
        self._isr = MaximalIsr()
        # acks=all requests, by the high watermark they need; empty while under min ISR.
        self._replicated = OffsetWaiters()
        # acks=1 requests, by the durable offset they need.
        self._durable = OffsetWaiters()
        # Deletions of records, by the start that every log has to have reached; empty while not
        # leading.
        self._deleted = OffsetWaiters()

    # ------------------------------------------------------------------------ questions

    @property
    def state(self) -> PartitionState:
        return self._state

    @property
    def leader(self) -> int:
        return self._state.leader

    @property
    def leader_epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def log(self) -> LogPosition:
        """As told last."""
        return self._log

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The committed ISR, and the members of a proposal whose outcome is not known."""
        return self._isr.members

    @property
    def proposal(self) -> Proposed | None:
        return self._isr.proposal

    @property
    def is_under_min_isr(self) -> bool:
        return len(self._state.isr) < self.min_insync

    @property
    def is_at_min_isr(self) -> bool:
        """One replica less, and acks=all is refused."""
        return len(self._state.isr) == self.min_insync

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self._state.isr) < self._state.replication_factor

    @property
    def tells_latest(self) -> bool:
        """Whether ListOffsets may answer with the last offset.

        It may not (OFFSET_NOT_AVAILABLE) until the high watermark reaches the epoch's start.
        Before, it may be lower than an offset that an earlier leader has answered.
        """
        return self.high_watermark >= self.epoch_start_offset

    @property
    def start_offset(self) -> int:
        """The log start that readers are told."""
        return self._log.start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first record whose transaction is not decided, or the high watermark if all are.

        A transaction is decided when its marker is committed. It never goes back in a leader epoch,
        because transactions begin at the log's end.
        """
        high_watermark = self.high_watermark
        first = self._log.first_open_offset
        if self._undecided.ended:
            first = self._undecided.first_offset(high_watermark, first)
        # Of an open transaction, records may have been deleted.
        return high_watermark if first >= high_watermark else max(first, self._log.start_offset)

    def consumable_end(self, *, read_committed: bool) -> int:
        """The offset up to which consumers may read."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def readable_end(
        self, offset: int, *, is_follower: bool = False, read_committed: bool = False
    ) -> int:
        """The offset up to which a reader at ``offset`` may read.

        A consumer reads committed records only: others can still vanish. With ``read_committed`` it
        also waits until their transactions are decided. A follower reads the whole
        log. Raises ApiError OFFSET_OUT_OF_RANGE outside of the log; a consumer between high
        watermark and log end waits. Past the end of a follower's log the error is
        OFFSET_NOT_AVAILABLE: the leader may have the offset (KIP-392).
        """
        log = self._log
        if not log.start_offset <= offset <= log.end_offset:
            if offset > log.end_offset and self.role is Role.FOLLOWER:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if read_committed and not is_follower:
            return self.last_stable_offset
        return log.end_offset if is_follower else self.high_watermark

    def knows_history(self, offset: int) -> bool:
        """Whether this log can show where the history of a reader at ``offset`` diverges.

        The leader's log can. Of a follower's log only the committed part can: the rest may have to
        be truncated.
        """
        return self.role is Role.LEADER or offset <= self.high_watermark

    def preferred_replica(self, offset: int, nearby: Collection[int]) -> int:
        """The replica among the brokers ``nearby`` that a consumer at ``offset`` should read from
        instead of this leader (KIP-392); -1: none."""
        if self.broker_id in nearby:
            return -1
        return self._followers.preferred(offset, nearby, self._state.isr)

    def follower_lags(self) -> Iterator[tuple[int, int]]:
        """(broker id, records that it lacks on disk) of each follower, while this leads."""
        return self._followers.lags(self._log.start_offset, self._log.end_offset)

    def progress_of(self, broker_id: int) -> FollowerProgress | None:
        return self._followers.get(broker_id)

    def fence(self, current_leader_epoch: int, *, any_replica: bool = False) -> ErrorCode:
        """Whether a request that believes in this epoch (-1: does not say) may be served here.

        ``any_replica``: by a follower as well. One outside of the ISR sends its readers back to the
        leader: it may be far behind, and they would not come back by themselves for long.
        """
        if current_leader_epoch >= 0:
            if current_leader_epoch < self._state.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self._state.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.role is Role.LEADER:
            return ErrorCode.NONE
        if any_replica and self.broker_id in self._state.isr:  # empty before metadata came
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def check_follower(
        self, broker_id: int, broker_epoch: int, current_leader_epoch: int, status: BrokerStatus
    ) -> ErrorCode:
        """Whether a fetch comes from an assigned replica's present incarnation (KIP-903).

        Other senders are refused: records above the high watermark are not for them. A replica
        always names the leader epoch that it follows.
        """
        if current_leader_epoch < 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        error = self.fence(current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        if broker_id not in self._followers:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if broker_epoch == status.epoch else ErrorCode.STALE_BROKER_EPOCH

    # ------------------------------------------------------------------- metadata's events

    def updated(
        self, state: PartitionState, min_insync_replicas: int, log: LogPosition, now_ms: float
    ) -> list[Effect]:
        """The metadata says ``state``, and ``min.insync.replicas`` in the same image. A state older
        than what is known already: nothing happens."""
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
        """A marker was appended that ends the transaction which began at ``first_offset``. It is
        told before ``appended`` or ``copied``, and after a start for each marker that is not below
        the high watermark."""
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
        self._acknowledge_durable(effects)
        return number, effects

    def deletable(self, offset: int) -> int:
        """The start of the log once the records below ``offset`` (-1: all committed ones) are
        deleted. Only committed records can be deleted: others could come back from a replica.

        Raises ApiError NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE.
        """
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}: {self._log.start_offset} to {self.high_watermark} is committed",
            )
        return max(wanted, self._log.start_offset)

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

    @property
    def low_watermark(self) -> int:
        """The least log start of all replicas that may lead (the maximal ISR and the ELR) and of
        the living replicas that may join them."""
        may_lead = {*self._isr.members, *self._state.elr}
        return min((self._log.start_offset, *self._followers.start_offsets(may_lead)))

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

    def _is_empty_at(self, offset: int, start_offset: int) -> bool:
        """Whether a log from ``start_offset`` to ``offset`` has no record that this one has not
        deleted."""
        return offset <= max(start_offset, self._log.start_offset)

    def may_lead(self, broker_id: int) -> bool:
        """Whether the replica is in the ISR or the ELR. Then its log below the high watermark is
        the same as this one."""
        return broker_id in self._state.isr or broker_id in self._state.elr

    def must_begin_anew(
        self, broker_id: int, broker_epoch: int, offset: int, start_offset: int, dropped_end: int
    ) -> bool:
        """Whether a follower's log from ``start_offset`` to ``offset`` may hold a record whose
        tombstone, or part of a transaction whose marker, this log has dropped.

        Tombstones are dropped below the high watermark. So a replica that may lead has read them
        all.
        """
        progress = self._followers.get(broker_id)
        return (
            progress is not None
            and not self.may_lead(broker_id)
            and not self._is_empty_at(offset, start_offset)
            and progress.may_lack_tombstones(broker_epoch, offset, dropped_end)
        )

    def tombstones_dropped(self, dropped_end: int, time_ms: int, retention_ms: int) -> None:
        """This log is about to drop tombstones or markers below ``dropped_end``."""
        for progress in self._followers.values():
            progress.tombstones_dropped(dropped_end, time_ms, retention_ms)

    def rests(self, broker_id: int, attendance: Attendance) -> bool:
        """Whether another fetch of a follower's session would change nothing but its time.

        A follower outside of the ISR never rests: each of its fetches may have it proposed.
        """
        progress = self._followers.get(broker_id)
        return (
            progress is not None
            and progress.rests_in is attendance
            and broker_id in self._state.isr
        )

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

    @property
    def is_settled(self) -> bool:
        """Whether time alone changes nothing: every replica is in the ISR and has everything."""
        if not self.is_leader:
            return True
        if self._state.leader_recovery_state == RECOVERING:
            return False
        return self._followers.have_all(self._log.end_offset, self._state.isr)

    def ticked(self, now_ms: float) -> list[Effect]:
        """Time passed: members that lag for too long are to leave the ISR.

        While the machine ``is_settled`` it need not be told.
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
