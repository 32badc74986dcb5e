"""A group coordinator's machine with a log, a clock and members to play with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.types import NOTHING_KNOWN, Metadata
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.types import (
    DeleteAnswer,
    DeletedTopic,
    DeleteRequest,
    DescribeAnswer,
    DescribeRequest,
    FetchedOffset,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    ListRequest,
    MemberProtocol,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    OffsetDeleteAnswer,
    OffsetDeleteRequest,
    OffsetFetchAnswer,
    OffsetFetchRequest,
    OffsetToCommit,
    OffsetToDelete,
    SyncAnswer,
    SyncRequest,
    TopicsDeleted,
    TopicToFetch,
)
from broker.coordinator.step import KeyValue, Now, Producer, Reply, Request, Step, Waiter
from stele.errors import ErrorCode
from tests.support.coordinators import Heard

T = TypeVar("T")

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (MemberProtocol("range", b"\0\0\0\0\0\1\0\1t\0\0\0\0"),)
"""What a consumer says that subscribes to the topic ``t``."""
OTHER_RANGE = (MemberProtocol("range", b"\0\0\0\0\0\1\0\1u\0\0\0\0"),)
"""Likewise to the topic ``u``."""
START_MS = 1_700_000_000_000
MARKER = KeyValue(b"", None)
"""What ``GroupBench.log`` has for the end of a transaction."""


def join_request(
    group_id: str = "g",
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Sequence[MemberProtocol] = RANGE,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    client_id: str = "client",
    known_id: bool = True,
    skips: bool = True,
) -> JoinRequest:
    return JoinRequest(
        group_id,
        session_ms,
        rebalance_ms,
        member_id,
        instance,
        protocol_type,
        tuple(protocols),
        client_id,
        "/10.0.0.1",
        reason="a test",
        requires_known_member_id=known_id,
        supports_skipping_assignment=skips,
    )


class GroupBench:
    """Hosts a machine as a shard does: appends the records of its steps and has it replay them,
    and gives its answers when they are committed."""

    def __init__(self, metadata: Metadata = NOTHING_KNOWN, **config: Any) -> None:
        self.metadata = metadata
        self.config = GroupConfig(**config)
        self.log: list[KeyValue] = []
        self.producers: dict[int, int] = {}
        """The producer id of each record that is part of a transaction, or its end, by offset."""
        self.commits: dict[int, bool] = {}
        """Whether each end of a transaction commits it, by offset."""
        self.high_watermark = 0
        self.now = Now(0.0, START_MS)
        self.refusal = ErrorCode.NONE
        """Why the log takes no records, if it takes none."""
        self.batch_bytes_max = 1 << 30
        self.on_answered: Callable[[], None] = lambda: None
        """Called whenever answers may have been given, at the time when they are."""
        self.topic_ids: dict[str, bytes] | None = None
        """The topics that there are; None: they are not known."""
        self.commits_at_once = True
        self.batches = 0
        self.largest_batch_bytes = 0
        self.counters = GroupCounters()
        self._numbers = itertools.count(1)
        self._waiting: list[Reply] = []
        self.machine = self.fresh()

    def fresh(self) -> GroupMachine:
        topic_id_of = None if self.topic_ids is None else self.topic_ids.get
        return GroupMachine(
            self.config,
            lambda: f"u{next(self._numbers)}",
            self.counters,
            topic_id_of,
            self.metadata,
        )

    # ------------------------------------------------------------------ hosting

    def take(self, step: Step, waiter: Waiter | None = None) -> None:
        size = sum(len(key) + len(value or b"") for key, value in step.records)
        if size > self.batch_bytes_max:
            assert step.instead is not None
            step = step.instead()
        if step.records and self.refusal is not ErrorCode.NONE:
            if waiter is not None:
                waiter.refuse(self.refusal)
            return
        if step.records:
            self.batches += 1
            self.largest_batch_bytes = max(self.largest_batch_bytes, size)
        for record in step.records:
            if step.producer is not None:
                self.producers[len(self.log)] = step.producer.id
            self.log.append(record)
            self._replay(self.machine, len(self.log) - 1)
        for reply in step.replies:
            after = len(self.log) if step.records else reply.after
            self._waiting.append(reply._replace(after=after))
        self.answer()
        if self.commits_at_once:
            self.commit()

    def commit(self, high_watermark: int | None = None) -> None:
        self.high_watermark = len(self.log) if high_watermark is None else high_watermark
        self.machine.committed(self.high_watermark)
        self.answer()

    def answer(self) -> None:
        told = [each for each in self._waiting if each.after <= self.high_watermark]
        self._waiting = [each for each in self._waiting if each.after > self.high_watermark]
        for each in told:
            each.waiter.answer(each.answer)
        self.on_answered()

    def pass_time(self, ms: float) -> None:
        """Time goes by, and what falls due is done when it does."""
        end_ms = self.now.monotonic_ms + ms
        while (due_ms := self.machine.deadline_ms) is not None and due_ms <= end_ms:
            self._set_clock(max(due_ms, self.now.monotonic_ms))
            step = self.machine.tick(self.now)
            self.take(step)
            if step.records and self.refusal is not ErrorCode.NONE:
                break
        self._set_clock(end_ms)

    def _set_clock(self, monotonic_ms: float) -> None:
        self.now = Now(monotonic_ms, START_MS + int(monotonic_ms))

    def reload(self) -> list[Waiter]:
        """Another coordinator takes over. Returns who was waiting, having been refused."""
        waiters = [each.waiter for each in self._waiting] + self.machine.unloaded()
        self._waiting = []
        for waiter in waiters:
            waiter.refuse(ErrorCode.NOT_COORDINATOR)
        self.machine = self.rebuilt()
        self.commit()
        self.take(self.machine.loaded(self.now))
        return waiters

    def rebuilt(self) -> GroupMachine:
        """A machine that knows what the log says. The log has no notes."""
        machine = self.fresh()
        self.log = [each if each is MARKER else KeyValue(*each) for each in self.log]
        for offset in range(len(self.log)):
            self._replay(machine, offset)
        return machine

    def _replay(self, machine: GroupMachine, offset: int) -> None:
        record, producer_id = self.log[offset], self.producers.get(offset)
        if producer_id is None:
            machine.replay(offset, record, self.now)
        elif record is MARKER:
            commits = self.commits[offset]
            machine.end_transaction(offset, producer_id, commits=commits, now=self.now)
        else:
            machine.replay_pending(offset, record, producer_id, self.now)

    def end_transaction(self, producer_id: int = 1, *, commits: bool = True) -> None:
        """A marker is appended, whether the log takes records of steps or not."""
        self.producers[len(self.log)], self.commits[len(self.log)] = producer_id, commits
        self.log.append(MARKER)
        self._replay(self.machine, len(self.log) - 1)
        if self.commits_at_once:
            self.commit()

    def ask(self, request: Request[Any]) -> Heard:
        heard = Heard()
        self.take(self.machine.take(request, heard, self.now), heard)
        return heard

    # ------------------------------------------------------------------ members

    def join(self, group_id: str = "g", member_id: str = "", **options: Any) -> Heard:
        request = join_request(group_id, member_id, **options)
        return self.ask(request)

    def joined(self, group_id: str = "g", **options: Any) -> tuple[str, Heard]:
        """Join in the two steps of a new member; its id, and what waits for the generation."""
        asked = told(self.join(group_id, **options), JoinAnswer)
        assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
        return asked.member_id, self.join(group_id, asked.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Heard:
        request = SyncRequest(
            group_id, generation, member_id, instance, protocol_type, protocol, assignments or {}
        )
        return self.ask(request)

    def ask_heartbeat(
        self, member_id: str, generation: int, *, group_id: str = "g", instance: str | None = None
    ) -> Heard:
        request = HeartbeatRequest(group_id, generation, member_id, instance)
        return self.ask(request)

    def heartbeat(self, member_id: str, generation: int, **options: Any) -> ErrorCode:
        return told(self.ask_heartbeat(member_id, generation, **options), ErrorCode)

    def leave(self, *members: LeavingMember | str, group_id: str = "g") -> Heard:
        leaving = tuple(
            LeavingMember(each, None, "done") if isinstance(each, str) else each for each in members
        )
        request = LeaveRequest(group_id, leaving)
        return self.ask(request)

    def left(self, *members: LeavingMember | str, group_id: str = "g") -> tuple[ErrorCode, ...]:
        answer = told(self.leave(*members, group_id=group_id), LeaveAnswer)
        assert answer.error is ErrorCode.NONE
        return answer.members

    def described(self, group_id: str = "g") -> DescribeAnswer:
        heard = self.ask(DescribeRequest(group_id))
        return told(heard, DescribeAnswer)

    # ------------------------------------------------------------------ offsets

    def ask_commit(
        self,
        *offsets: OffsetToCommit,
        group_id: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        retention_ms: int | None = None,
        knows_not_found: bool = True,
        producer_id: int | None = None,
    ) -> Heard:
        """With a producer id, in its transaction."""
        producer = None if producer_id is None else Producer(producer_id, 0)
        request = OffsetCommitRequest(
            group_id,
            generation,
            member_id,
            instance,
            offsets,
            retention_ms,
            knows_not_found,
            producer,
        )
        return self.ask(request)

    def commit_offset(
        self, offset: int, *, topic: str = "t", partition: int = 0, **options: Any
    ) -> ErrorCode:
        heard = self.ask_commit(OffsetToCommit(topic, partition, offset), **options)
        (error,) = told(heard, OffsetCommitAnswer).errors
        return error

    def ask_offsets(
        self, *topics: TopicToFetch, group_id: str = "g", require_stable: bool = False
    ) -> Heard:
        request = OffsetFetchRequest(group_id, topics or None, require_stable)
        return self.ask(request)

    def offsets(self, *topics: TopicToFetch, **options: Any) -> tuple[FetchedOffset, ...]:
        """All of the group's, unless topics are named."""
        return told(self.ask_offsets(*topics, **options), OffsetFetchAnswer).offsets

    def offset(self, topic: str = "t", partition: int = 0, **options: Any) -> int:
        (fetched,) = self.offsets(TopicToFetch(topic, (partition,)), **options)
        return fetched.offset

    def ask_deletion(self, *offsets: OffsetToDelete, group_id: str = "g") -> Heard:
        request = OffsetDeleteRequest(group_id, offsets)
        return self.ask(request)

    def delete_offsets(self, *offsets: OffsetToDelete) -> OffsetDeleteAnswer:
        return told(self.ask_deletion(*offsets), OffsetDeleteAnswer)

    def delete_topics(self, *topics: DeletedTopic) -> None:
        self.machine.note(TopicsDeleted(topics), self.now)
        self.pass_time(0)

    def delete(self, group_id: str = "g") -> ErrorCode:
        """Delete a group as the service does, in as many requests as it takes."""
        while True:
            answer = told(self.ask_deletion_of_group(group_id), DeleteAnswer)
            if answer.is_over:
                return answer.error

    def ask_deletion_of_group(self, group_id: str = "g") -> Heard:
        return self.ask(DeleteRequest(group_id))

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        request = ListRequest(states, types)
        heard = self.ask(request)
        return [each.group_id for each in told(heard, tuple)]

    # ------------------------------------------------------------------ settled groups

    def stable(self, size: int = 1, group_id: str = "g", **options: Any) -> list[str]:
        """A stable group in generation 1; its members' ids, the leader's first. Each is assigned
        its own id."""
        joins = [self.joined(group_id, **options) for _ in range(size)]
        self.pass_time(min(size, 2) * self.config.group_initial_rebalance_delay_ms)
        ids = [member_id for member_id, _ in joins]
        self.settle(ids, told(joins[0][1], JoinAnswer).generation, group_id)
        return ids

    def settle(self, ids: Sequence[str], generation: int, group_id: str = "g") -> None:
        """The members fetch their assignments, the leader last, which is the first of them."""
        assignments = {each: each.encode() for each in ids}
        syncs = [self.sync(each, generation, group_id=group_id) for each in ids[1:]]
        syncs.append(self.sync(ids[0], generation, assignments, group_id=group_id))
        for member_id, heard in zip([*ids[1:], ids[0]], syncs, strict=True):
            assert told(heard, SyncAnswer).assignment == member_id.encode()


def told(heard: Heard, kind: type[T]) -> T:
    """The one answer that was given."""
    assert len(heard.told) == 1, heard.told
    answer = heard.told[0]
    assert isinstance(answer, kind)
    return answer
