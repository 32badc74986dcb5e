"""The leaders of a share consumer's partitions, the records that they have given, and what became
of these."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.messages import NO_LEADER, Leader
from stele.cluster.view import ClusterView
from stele.config import ShareConsumerConfig
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import PartitionId, TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from stele.share_consumer.delivered import delivered
from stele.share_consumer.leader import ShareLeader
from stele.share_consumer.membership import ShareMembership
from stele.share_consumer.requests import PartitionAnswer
from stele.share_consumer.session import LOST_LEADERSHIP, Delivery
from stele.user_functions import call_user

_UNKNOWN: Final = "(a topic whose name is not known)"

Results = dict[TopicPartition, ApiError | None]


class _Given(NamedTuple):
    """A record that a leader has given."""

    leader: ShareLeader
    delivery: Delivery
    record: ShareRecord
    leader_epoch: int  # as far as it was known then


class _Key(NamedTuple):
    topic: str
    partition: int
    offset: int


def _key(record: ShareRecord) -> _Key:
    return _Key(record.topic, record.partition, record.offset)


class ShareLeaders:
    """``on_news`` is called when a poll or a commit may have something to do."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        view: ClusterView,
        membership: ShareMembership,
        on_news: Callable[[], None],
    ) -> None:
        self.failure: SteleError | None = None  # polls raise it; nothing is sent any more
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._membership = membership
        self._on_news = on_news
        self._is_begun = False  # the first poll begins it, and ``end`` ends it
        self._leaders: dict[int, ShareLeader] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self._names: dict[bytes, str] = {}
        self._retries: dict[PartitionId, PartitionRetry] = {}
        self._buffer: deque[_Given] = deque()  # given, and not returned by a poll yet
        self._handed_out: dict[_Key, _Given] = {}  # without a decision
        self._problems: deque[ApiError] = deque()  # polls raise each of them once
        self._polls: dict[object, float] = {}  # until when each poll that waits wants records
        self._asked_once: dict[int, None] = {}  # brokers that a poll without a wait has not asked
        self._numbers = 0
        self._unsettled: dict[int, None] = {}  # decisions without an outcome
        self._results: Results = {}  # since ``take_results``
        self._timer: asyncio.TimerHandle | None = None
        view.on_change.append(self.update)

    # ------------------------------------------------------------------------- partitions

    def update(self) -> None:
        """Read every assigned partition from its leader, as far as it is known."""
        if self.failure is not None or not self._is_begun:
            return
        now_s = self._clock.monotonic()
        self._learn_names()
        self._drop_lost()
        wanted: dict[int, list[PartitionId]] = {}
        again_at_s = float("inf")
        for each in sorted(self._membership.assigned):
            broker_id, at_s = self._leader_of(each, now_s)
            if broker_id is None:
                again_at_s = min(again_at_s, at_s)
            else:
                wanted.setdefault(broker_id, []).append(each)
        for gone in [each for each in self._retries if each not in self._membership.assigned]:
            del self._retries[gone]
        for broker_id in wanted:
            if broker_id not in self._leaders:
                self._leaders[broker_id] = ShareLeader(
                    broker_id, self._config, self._view, self._membership.member_id, self
                )
        for broker_id, leader in list(self._leaders.items()):
            if leader.session.read(wanted.get(broker_id, ())):
                leader.wake()
            if leader.session.is_idle:
                del self._leaders[broker_id]
                self._in_background(leader)
        self._update_at(again_at_s, now_s)

    def _drop_lost(self) -> None:
        """Drop what another leader gives again, and return no records of topics that are not
        subscribed to any more."""
        for broker_id, leader in self._leaders.items():
            for partition in leader.session.held_partitions():
                known = self._known_leader(partition)
                if known is not None and known.broker_id != broker_id:
                    leader.session.forget(partition)
        now_s = self._clock.monotonic()
        buffer, self._buffer = self._buffer, deque()
        for given in buffer:
            session, partition = given.leader.session, given.delivery.partition
            if not session.holds(given.delivery, given.record.offset, now_s):
                continue
            known = self._known_leader(partition)
            # With a later epoch of the same leader, the records are lost if it came before they
            # were given, and still locked if the view was late. The release is right in both cases.
            is_lost = known is not None and known.epoch > given.leader_epoch
            if is_lost or given.record.topic not in self._membership.topics:
                session.decide(partition, given.record.offset, AcknowledgeType.RELEASE)
            else:
                self._buffer.append(given)
        if len(self._buffer) < len(buffer):
            self._wake()

    def _known_leader(self, partition: PartitionId) -> Leader | None:
        """The leader of the partition. NO_LEADER if its topic was deleted, and None if it is not
        known."""
        name = self._name(partition)
        topic = self._view.topic(name.topic)
        if topic is None:
            return None
        if topic.topic_id != partition.topic_id:
            return NO_LEADER
        leader = topic.partitions.get(partition.partition)
        return None if leader is None or leader.broker_id < 0 else leader

    def _learn_names(self) -> None:
        for name in self._membership.topics:
            self._view.want(name)
            topic = self._view.topic(name)
            if topic is not None:
                self._names[topic.topic_id] = name

    def _leader_of(self, partition: PartitionId, now_s: float) -> tuple[int | None, float]:
        """The broker to ask now, or None and when to look again."""
        name = self._name(partition)
        known = self._view.topic(name.topic)
        leader = None
        if known is not None and known.topic_id == partition.topic_id:
            leader = self._view.leader(name)
        retry = self._retries.get(partition)
        if retry is None or self._names.get(partition.topic_id) is None:
            retry = self._retries.setdefault(partition, PartitionRetry(name, self._view))
        if retry.must_wait(leader, now_s):
            return None, retry.at
        if leader is None:
            reason = f"{name} has no leader that is known"
            retry.postpone(reason, now_s, awaits_leader=True)
            self._view.refresh_soon()
            return None, retry.at
        return leader.broker_id, now_s

    def _name(self, partition: PartitionId) -> TopicPartition:
        return TopicPartition(self._names.get(partition.topic_id, _UNKNOWN), partition.partition)

    def _update_at(self, at_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s < float("inf"):
            pause_s = max(at_s - now_s, 0.001)
            self._timer = asyncio.get_running_loop().call_later(pause_s, self.update)

    def _in_background(self, leader: ShareLeader) -> None:
        task = asyncio.get_running_loop().create_task(leader.close())
        self._ending[task] = None
        task.add_done_callback(lambda done: self._ending.pop(done, None))

    async def end(self) -> None:
        """Release what the application has, and end all sessions: the brokers give the other
        records to others."""
        self._is_begun = False
        for given in self._handed_out.values():
            offset = given.record.offset
            given.leader.session.decide(given.delivery.partition, offset, AcknowledgeType.RELEASE)
        self._handed_out.clear()
        self._buffer.clear()
        self._update_at(float("inf"), 0)
        leaders, self._leaders = list(self._leaders.values()), {}
        for leader in leaders:
            self._in_background(leader)
        await asyncio.gather(*self._ending)

    async def begin_anew(self) -> None:
        """A call has raised that a right was missing. The sessions end, and what they had given
        may go to other members. The next poll begins others."""
        self.failure = None
        await self.end()

    def assignment(self) -> list[TopicPartition]:
        """As far as names are known."""
        self._learn_names()
        assigned = sorted(self._membership.assigned)
        return sorted(self._name(each) for each in assigned if each.topic_id in self._names)

    # ------------------------------------------------------------------------- polls

    def poll_begins(self, poll: object, until_s: float) -> None:
        if not self._is_begun:
            self._is_begun = True
            self.update()
        self._polls[poll] = until_s
        self._asked_once = dict.fromkeys(self._leaders)
        self._wake()

    def poll_ends(self, poll: object) -> None:
        self._polls.pop(poll, None)

    def _wake(self) -> None:
        for leader in self._leaders.values():
            leader.wake()

    def hand_out(self, limit: int) -> list[ShareRecord]:
        """Records that the consumer still has, at most ``limit``."""
        now_s = self._clock.monotonic()
        taken: list[ShareRecord] = []
        while self._buffer and len(taken) < limit:
            given = self._buffer.popleft()
            session, record = given.leader.session, given.record
            if session.holds(given.delivery, record.offset, now_s):
                session.handed_out(given.delivery, now_s)
                self._handed_out[_key(record)] = given
                taken.append(record)
        return taken

    def put_back(self, records: Sequence[ShareRecord]) -> None:
        """The application did not get these records: the next poll returns them."""
        for record in reversed(records):
            given = self._handed_out.pop(_key(record), None)
            if given is not None:
                self._buffer.appendleft(given)
        self._on_news()

    def take_problem(self) -> ApiError | None:
        return self._problems.popleft() if self._problems else None

    # ------------------------------------------------------------------------- decisions

    def holds(self, record: ShareRecord) -> bool:
        given = self._handed_out.get(_key(record))
        if given is None:
            return False
        session = given.leader.session
        return session.holds(given.delivery, record.offset, self._clock.monotonic())

    def is_undecided(self, record: ShareRecord) -> bool:
        return _key(record) in self._handed_out

    def decide(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        if kind is AcknowledgeType.RENEW:
            self._renew(_key(record))
        else:
            self._decide(_key(record), kind)

    def accept_all(self) -> None:
        """Accept everything that polls have returned."""
        for key in list(self._handed_out):
            self._decide(key, AcknowledgeType.ACCEPT)

    def _decide(self, key: _Key, kind: AcknowledgeType) -> None:
        self._numbers += 1
        number = self._numbers
        self._unsettled[number] = None
        given = self._handed_out.pop(key, None)
        if given is None:
            name = TopicPartition(key.topic, key.partition)
            self._settle(name, (number,), (key.offset,), _not_handed_out(key))
            return
        given.leader.session.decide(given.delivery.partition, key.offset, kind, number)
        self.take_outcomes(given.leader)
        given.leader.wake()

    def _renew(self, key: _Key) -> None:
        self._numbers += 1
        number = self._numbers
        self._unsettled[number] = None
        given = self._handed_out.get(key)
        if given is None:
            name = TopicPartition(key.topic, key.partition)
            error = _not_handed_out(key)
            self._settle(name, (number,), (key.offset,), error, is_renewal=True)
            return
        partition, session = given.delivery.partition, given.leader.session
        delivery = session.renew(partition, key.offset, self._clock.monotonic(), number)
        if delivery is not None:
            self._handed_out[key] = given._replace(delivery=delivery)
        self.take_outcomes(given.leader)
        given.leader.wake()

    @property
    def unsettled(self) -> Mapping[int, None]:
        """The numbers of the decisions without an outcome."""
        return self._unsettled

    def take_results(self) -> Results:
        """By partition: whether all decisions of which there is an outcome since the last call
        count, or the first error."""
        results, self._results = self._results, {}
        return results

    def _settle(
        self,
        name: TopicPartition,
        numbers: Sequence[int],
        offsets: Sequence[int],
        error: ApiError | None,
        *,
        is_renewal: bool = False,
    ) -> None:
        for number in numbers:
            self._unsettled.pop(number, None)
        self._results[name] = self._results.get(name) or error
        if is_renewal:
            call_user(self._config.on_renewed, name, offsets, error, what="on_renewed")
        else:
            call_user(self._config.on_acknowledged, name, offsets, error, what="on_acknowledged")
        self._on_news()

    # ------------------------------------------------------------- what a session brings

    def wait_ms(self, leader: ShareLeader) -> int | None:
        if self._buffer or self.failure is not None:
            return None
        left_s = max(self._polls.values(), default=0.0) - self._clock.monotonic()
        if left_s > 0:
            most_s = min(left_s, leader.session.longest_wait_s)
            # Rounded up: in the last fraction of a millisecond, fetches without a wait would follow
            # each other.
            return min(self._config.fetch_max_wait_ms, math.ceil(most_s * 1000))
        return 0 if leader.broker_id in self._asked_once else None

    def sends_fetch(self, leader: ShareLeader) -> None:
        self._asked_once.pop(leader.broker_id, None)

    def take(
        self, leader: ShareLeader, answer: PartitionAnswer, asked_at_s: float, lock_s: float
    ) -> None:
        if answer.acquired:
            self._take_records(leader, answer, asked_at_s, lock_s)
        error = answer.error
        if error is None and answer.acknowledge_error is not None:
            if answer.acknowledge_error.code not in LOST_LEADERSHIP:
                return
            error = answer.acknowledge_error
        if error is not None:
            self._take_error(leader, answer, error)

    def _take_records(
        self, leader: ShareLeader, answer: PartitionAnswer, asked_at_s: float, lock_s: float
    ) -> None:
        partition, session = answer.partition, leader.session
        offsets = [
            offset for each in answer.acquired for offset in range(each.first, each.last + 1)
        ]
        delivery = session.took(partition, offsets, asked_at_s, lock_s)
        found = delivered(
            self._name(partition),
            answer.records,
            answer.acquired,
            check_crcs=self._config.check_crcs,
        )
        epoch = self._view.leader_epoch(self._name(partition))
        without = dict.fromkeys(offsets)
        for record in found.records:
            del without[record.offset]
            self._buffer.append(_Given(leader, delivery, record, epoch))
        for offset in without:
            if any(offset in each for each in found.unreadable):
                session.decide(partition, offset, AcknowledgeType.RELEASE)
            else:
                session.leave_gap(partition, offset)
        if found.error is not None:
            self._problems.append(found.error)
        if partition in self._retries:
            self._retries[partition].succeed()
        self._on_news()

    def _take_error(self, leader: ShareLeader, answer: PartitionAnswer, error: ApiError) -> None:
        partition = answer.partition
        name, now_s = self._name(partition), self._clock.monotonic()
        if error.code in LOST_LEADERSHIP:
            leader.session.forget(partition)
        retry = self._retries.get(partition)
        if retry is None:
            return  # it is not assigned any more
        reason = f"{name}: broker {leader.broker_id} answers {error.code.name}: {error.message}"
        retry.postpone(reason, now_s)
        retry.failed_leader = Leader(leader.broker_id, self._view.leader_epoch(name))
        if not error.code.retriable:
            if all(each.code is not error.code for each in self._problems):
                self._problems.append(ApiError(error.code, reason))
            self._on_news()
        if not self._view.hint(name, partition.topic_id, answer.leader):
            self._view.refresh_soon()
        self.update()

    def take_outcomes(self, leader: ShareLeader) -> None:
        for partition, numbers, offsets, error, is_renewal in leader.session.take_outcomes():
            name = self._name(partition)
            self._settle(name, numbers, offsets, error, is_renewal=is_renewal)

    def take_failure(self, error: SteleError) -> None:
        self.failure = self.failure or error
        self._on_news()


def _not_handed_out(key: _Key) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"no poll has returned the record at offset {key.offset} of {key.topic}-{key.partition}, "
        "or it was acknowledged before",
    )
