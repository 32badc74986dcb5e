"""The windows of share partitions (KIP-932): which records are not done, and why."""

from __future__ import annotations

from dataclasses import dataclass

from stele.admin.grpc_calls import call, unknown_at
from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import groups_pb2 as pb
from stele.world import RpcError


@dataclass(frozen=True, slots=True)
class VainDelivery:
    """A delivery of a record that has ended, and the record is not done."""

    end: str
    """``released``: by the member. ``lock_ended``: the member said nothing in time.
    ``session_ended``: the member left or its connection broke, and the delivery does not count."""
    member_id: str
    ended_ms: int  # since 1970, by the clock of the leader


@dataclass(frozen=True, slots=True)
class WindowRange:
    """Records in a row that have one state."""

    first_offset: int
    last_offset: int
    state: str
    """``available``, ``acquired``, ``acknowledged`` or ``archived``. ``archiving`` and
    ``archiving_rejected``: given up after its last delivery, or because a member has rejected it,
    and its dead letter is not written yet."""
    delivery_count: int
    member_id: str | None  # which has them; None: they are not acquired
    acquired_ms: int | None
    lock_until_ms: int | None
    is_being_persisted: bool  # the member has decided, and its decision is not persisted yet
    last_vain_delivery: VainDelivery | None
    """The last one of the first record. None: there was none, or the leader does not know it. It
    knows nothing of the time before it led, and not everything of records that were delivered
    together."""
    due_ms: int | None = None
    """They rest until then, before they are delivered again (share.redelivery.backoff.ms)."""


@dataclass(frozen=True, slots=True)
class WindowHolder:
    """A member that has records."""

    member_id: str
    records: int
    lock_until_ms: int  # the first of its locks ends then


@dataclass(frozen=True, slots=True)
class ShareWindow:
    """The records of a share partition from the first that is not done to the last delivered.

    Times are in milliseconds since 1970, by the clock of the leader, whose present time is
    ``time_ms``.
    """

    leader_id: int
    readers: int  # members that read the partition now
    time_ms: int
    start_offset: int  # everything before it is done
    end_offset: int  # the first offset that was never delivered
    start_since_ms: int | None  # since when it is the start offset; None: the window is empty
    done_records: int  # in the window
    acquired_records: int
    redelivered_records: int  # not done, and delivered in vain at least once
    archiving_records: int  # given up, and their dead letters are not written yet
    letter_trouble: str | None  # why dead letters cannot be written now; None: they can
    max_record_locks: int
    delivery_count_limit: int
    record_lock_duration_ms: int
    holders: tuple[WindowHolder, ...]
    ranges: tuple[WindowRange, ...]
    next_offset: int | None  # ``from_offset`` of the ranges that are left out; None: none are

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end_offset - self.start_offset

    @property
    def is_full(self) -> bool:
        """Whether nothing new is delivered before the first record is done."""
        return self.size >= self.max_record_locks


class ShareWindowAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for the windows of share partitions."""

    async def describe_share_window(
        self,
        group: str,
        partition: tuple[str, int],
        *,
        from_offset: int = 0,
        max_ranges: int = 1000,
    ) -> ShareWindow | None:
        """What the leader of a partition knows of a share group's records: at most 1000 ranges,
        from the one with ``from_offset`` on.

        None: no member of the group reads the partition from its leader, so that nobody has a
        record. Raises ApiError.

        >>> window = await admin.describe_share_window("mails", ("orders", 0))
        >>> if window and window.ranges:
        ...     print(window.ranges[0].first_offset, window.ranges[0].member_id)
        """
        place = TopicPartition(*partition)
        request = pb.DescribeShareWindowRequest(
            group=group,
            topic=place.topic,
            partition=place.partition,
            from_offset=from_offset,
            max_ranges=max_ranges,
        )

        async def attempt() -> ShareWindow | None:
            leader_id = await self._share_leader(place)
            try:
                answer = await self._view.ask(
                    leader_id,
                    call(
                        "/stele.v1.Groups/DescribeShareWindow",
                        request,
                        pb.DescribeShareWindowResponse.FromString,
                    ),
                    timeout_s=self._view.attempt_s,
                )
            except RpcError as error:
                refused = unknown_at(leader_id, "DescribeShareWindow", error)
                if refused is not None:
                    raise refused from error
                raise
            if answer.error:
                code = error_code(answer.error)
                raise ApiError(code, f"{place}: {answer.message or explain(code)}")
            return _window(leader_id, answer) if answer.known else None

        timeout_s = self._view.config.default_api_timeout_ms / 1000
        return await self._view.keep_asking(attempt, "DescribeShareWindow", timeout_s)

    async def _share_leader(self, place: TopicPartition) -> int:
        """Raises ApiError UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, UnreachableError."""
        self._view.want(place.topic)
        await self._view.refresh()
        topic = self._view.topic(place.topic)
        if topic is None or place.partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
        leader = self._view.leader(place)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader")
        return leader.broker_id


def _window(leader_id: int, told: pb.DescribeShareWindowResponse) -> ShareWindow:
    return ShareWindow(
        leader_id=leader_id,
        readers=told.readers,
        time_ms=told.time_ms,
        start_offset=told.start_offset,
        end_offset=told.end_offset,
        start_since_ms=_known(told.start_since_ms),
        done_records=told.done_records,
        acquired_records=told.acquired_records,
        redelivered_records=told.redelivered_records,
        archiving_records=told.archiving_records,
        letter_trouble=told.letter_trouble or None,
        max_record_locks=told.max_record_locks,
        delivery_count_limit=told.delivery_count_limit,
        record_lock_duration_ms=told.record_lock_duration_ms,
        holders=tuple(
            WindowHolder(each.member_id, each.records, each.lock_until_ms) for each in told.holders
        ),
        ranges=tuple(_range(each) for each in told.ranges),
        next_offset=_known(told.next_offset),
    )


def _range(told: pb.DescribeShareWindowResponse.Range) -> WindowRange:
    vain = told.last_vain_delivery
    return WindowRange(
        first_offset=told.first_offset,
        last_offset=told.last_offset,
        state=told.state,
        delivery_count=told.delivery_count,
        member_id=told.member_id or None,
        acquired_ms=_known(told.acquired_ms),
        lock_until_ms=_known(told.lock_until_ms),
        is_being_persisted=told.being_persisted,
        last_vain_delivery=VainDelivery(vain.end, vain.member_id, vain.ended_ms)
        if told.HasField("last_vain_delivery")
        else None,
        due_ms=told.due_ms if told.due_ms > 0 else None,
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
