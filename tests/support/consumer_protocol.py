"""Groups of the consumer protocol to play with: topics, and members that obey their answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.types import (
    ConsumerDescribeAnswer,
    ConsumerDescribeRequest,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
    ConsumerSettings,
)
from broker.coordinator.group.share.types import ShareSettings
from broker.coordinator.group.types import (
    OffsetCommitAnswer,
    OffsetCommitRequest,
    OffsetToCommit,
)
from metadata.partitions import PartitionState
from metadata.topics import Topic, Topics
from stele.errors import ErrorCode
from tests.support.coordinators import Heard
from tests.support.groups import GroupBench, told

SESSION_MS = 45_000
INTERVAL_MS = 5_000
REBALANCE_MS = 60_000
_JOIN_AGAIN = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,  # the group has expired meanwhile
    }
)
Pairs = frozenset[tuple[bytes, int]]


def topic_id(name: str, incarnation: int = 0) -> bytes:
    return name.encode().ljust(15, b".") + bytes([incarnation])


def pairs(assigned: Partitions) -> Pairs:
    return frozenset((each, n) for each, numbers in assigned.items() for n in numbers)


def by_topic(owned: Pairs) -> Partitions:
    return {each: frozenset(n for t, n in owned if t == each) for each, _ in owned}


class Cluster:
    """The metadata of coordinators: topics that come, grow and go."""

    def __init__(self, **partitions: int) -> None:
        self.counts = dict(partitions)
        self.incarnations: dict[str, int] = {}
        self.names_version = 0
        self.topics = Topics()
        self.assignment_interval_ms = 0
        self._make()

    def _make(self) -> None:
        state = PartitionState((1,), (1,), 1, 0, 0)
        self.topics = Topics.of(
            Topic(name, self.id_of(name), (state,) * count) for name, count in self.counts.items()
        )

    def id_of(self, name: str) -> bytes:
        return topic_id(name, self.incarnations.get(name, 0))

    def put(self, name: str, count: int) -> None:
        """Make a topic, or make it larger."""
        self.names_version += name not in self.counts
        self.counts[name] = count
        self._make()

    def delete(self, name: str) -> None:
        del self.counts[name]
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self.names_version += 1
        self._make()

    def pairs_of(self, names: Collection[str]) -> Pairs:
        there = [each for each in names if each in self.counts]
        return frozenset((self.id_of(name), n) for name in there for n in range(self.counts[name]))

    def settings(self, group_id: str) -> ConsumerSettings:
        return ConsumerSettings(SESSION_MS, INTERVAL_MS, self.assignment_interval_ms)

    def share_settings(self, group_id: str) -> ShareSettings:
        return ShareSettings(SESSION_MS, INTERVAL_MS, self.assignment_interval_ms, max_size=4)


class ConsumerBench(GroupBench):
    """A machine that knows topics."""

    def __init__(self, cluster: Cluster | None = None, **config: Any) -> None:
        self.cluster = cluster or Cluster(t=4)
        super().__init__(metadata=self.cluster, **config)

    def ask_beat(self, member_id: str, epoch: int, **options: Any) -> Heard:
        request = ConsumerHeartbeatRequest("g", member_id, epoch, client_id="c", **options)
        return self.ask(request)

    def beat(self, member_id: str, epoch: int, **options: Any) -> ConsumerHeartbeatAnswer:
        return told(self.ask_beat(member_id, epoch, **options), ConsumerHeartbeatAnswer)

    def ask_join(self, member_id: str, *topics: str, **options: Any) -> Heard:
        wanted = {"topic_names": topics or ("t",), "rebalance_timeout_ms": REBALANCE_MS}
        return self.ask_beat(member_id, 0, owned={}, **{**wanted, **options})

    def consumer_join(
        self, member_id: str, *topics: str, **options: Any
    ) -> ConsumerHeartbeatAnswer:
        return told(self.ask_join(member_id, *topics, **options), ConsumerHeartbeatAnswer)

    def commit_error(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether a member could commit what is not its own, asked of the newest state."""
        return self.commit_errors(member_id, epoch, [(bytes(16), 0)])[0]

    def commit_errors(
        self, member_id: str, epoch: int, partitions: Iterable[tuple[bytes, int]], **options: Any
    ) -> list[ErrorCode]:
        """Whether a member could commit each of the partitions, asked of the newest state."""
        offsets = tuple(OffsetToCommit("t", n, 0, topic_id=each) for each, n in partitions)
        request = OffsetCommitRequest("g", epoch, member_id, None, offsets, **options)
        (reply,) = self.machine.take(request, Heard(), self.now).replies
        assert isinstance(reply.answer, OffsetCommitAnswer)
        return list(reply.answer.errors)

    def committable(self, member_id: str, epoch: int) -> Pairs:
        """What a member could commit in an epoch, of all partitions."""
        every = sorted(self.cluster.pairs_of(self.cluster.counts))
        errors = self.commit_errors(member_id, epoch, every)
        return frozenset(
            pair for pair, error in zip(every, errors, strict=True) if error is ErrorCode.NONE
        )

    def described_consumers(self) -> ConsumerDescribeAnswer:
        heard = self.ask(ConsumerDescribeRequest("g"))
        return told(heard, ConsumerDescribeAnswer)


@dataclass
class Consumer:
    """A client of the protocol. It owns partitions between the answer that gives them and its
    revocation of them."""

    bench: ConsumerBench
    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ("t",)
    epoch: int = 0
    owned: Pairs = frozenset()
    wanted: Pairs = frozenset()  # the last assignment in an answer
    is_member: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    _told_owned: Pairs | None = None
    _is_full: bool = True

    def join(self) -> ConsumerHeartbeatAnswer | ErrorCode:
        self.give_up()
        return self.beat()

    def give_up(self) -> None:
        self.owned = self.wanted = frozenset()
        self.epoch, self.is_member, self._is_full = 0, False, True

    def beat(self, *, is_lost: bool = False) -> ConsumerHeartbeatAnswer | ErrorCode:
        """A heartbeat as clients send it: whole at first and after a lost answer, else what has
        changed."""
        options: dict[str, Any] = {"instance_id": self.instance_id, **self.options}
        if self._is_full:
            options["rebalance_timeout_ms"] = REBALANCE_MS
            options["topic_names"] = self.topics
        if self._is_full or self.owned != self._told_owned:
            options["owned"] = by_topic(self.owned)
        heard = self.bench.ask_beat(self.member_id, self.epoch, **options)
        if is_lost or not heard.told:
            # It does not take wanted partitions any more: it has said that it does not own them.
            self._is_full, self.wanted = True, self.owned
            return ErrorCode.REQUEST_TIMED_OUT
        self._told_owned = self.owned
        answer: ConsumerHeartbeatAnswer | ErrorCode = heard.told[0]
        self.hear(answer)
        return answer

    def hear(self, answer: ConsumerHeartbeatAnswer | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            self._is_full, self.wanted = True, self.owned
        elif answer.error is ErrorCode.NONE:
            self.is_member, self._is_full = True, False
            self.epoch = answer.member_epoch
            if answer.assigned is not None:
                self.wanted = pairs(answer.assigned)
        else:
            self._is_full = True
            if answer.error in _JOIN_AGAIN:
                self.give_up()

    def reconcile(self) -> None:
        """Revoke partitions that are not wanted any more, and take the wanted ones."""
        if self.is_member:
            self.owned = self.wanted

    def leave(self, *, for_good: bool = True) -> Any:
        self.owned = self.wanted = frozenset()
        epoch = -1 if for_good else -2
        heard = self.bench.ask_beat(self.member_id, epoch, instance_id=self.instance_id)
        self.give_up()
        return heard.told[0] if heard.told else ErrorCode.REQUEST_TIMED_OUT


def settle(*members: Consumer, rounds: int = 8) -> None:
    """Let all members send heartbeats and obey the answers."""
    for _ in range(rounds):
        for member in members:
            member.beat()
            member.reconcile()


T = Cluster().id_of("t")


def bench(**config: Any) -> ConsumerBench:
    made = ConsumerBench(**config)
    made.take(made.machine.loaded(made.now))
    return made


def members(made: ConsumerBench, *ids: str, **options: Any) -> list[Consumer]:
    """A settled group."""
    found = [Consumer(made, each, **options) for each in ids]
    settle(*found)
    return found


def check_shared(made: ConsumerBench, *found: Consumer) -> None:
    owned = [each.owned for each in found]
    assert frozenset().union(*owned) == made.cluster.pairs_of({"t"})
    assert sum(map(len, owned)) == len(made.cluster.pairs_of({"t"}))
