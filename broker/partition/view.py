"""What one replica knows of its partition, and what may be asked of that. Pure.

``broker.partition.machine`` changes it, by events. Nothing else does.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator

from broker.partition.effects import BrokerStatus, LogPosition, Proposed
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


class PartitionView:
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
        # The newest state of the metadata. Its `isr` is the committed ISR.
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
        """The log start offset that readers get."""
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
        if current_leader_epoch != self._state.leader_epoch or self.role is not Role.LEADER:
            return self.fence(current_leader_epoch)
        if broker_id not in self._followers:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if broker_epoch == status.epoch else ErrorCode.STALE_BROKER_EPOCH

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

    @property
    def low_watermark(self) -> int:
        """The least log start of all replicas that may lead (the maximal ISR and the ELR) and of
        the living replicas that may join them."""
        may_lead = {*self._isr.members, *self._state.elr}
        return min((self._log.start_offset, *self._followers.start_offsets(may_lead)))

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

    @property
    def is_settled(self) -> bool:
        """Whether time alone changes nothing: every replica is in the ISR and has everything."""
        if not self.is_leader:
            return True
        if self._state.leader_recovery_state == RECOVERING:
            return False
        return self._followers.have_all(self._log.end_offset, self._state.isr)
