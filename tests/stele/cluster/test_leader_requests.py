"""Requests to leaders, with brokers whose streams the test answers by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from stele.cluster.kafka_link import KafkaLink
from stele.cluster.leader_requests import LONGEST_PAUSE_S, LeaderRequests, PartitionRetry
from stele.cluster.messages import (
    FetchAnswer,
    FetchedPart,
    FetchRequest,
    Leader,
    UnsentError,
)
from stele.cluster.view import ClusterView
from stele.config import ClientConfig
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.world import RpcCode, RpcError
from tests.support.stele import LOST, Stage, on_stage
from tests.support.worlds import Scenario, gives

PATIENCE_S = 5.0


def fetch_request() -> FetchRequest:
    return FetchRequest(500, 1, 1 << 20, "", False, [])


def answer_of(topic: str, topic_id: bytes, partition: int, high_watermark: int) -> FetchAnswer:
    code = ErrorCode.NONE
    return FetchAnswer(topic, topic_id, partition, code, high_watermark, 0, 0, b"", Leader(-1, -1))


def hint(broker_id: int, epoch: int) -> FetchAnswer:
    leader = Leader(broker_id, epoch)
    return FetchAnswer("", b"", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0, 0, b"", leader)


class HandStream:
    """A stream that accepts requests and answers what the test says. A dead one takes the first
    request, and finds out then that it is dead."""

    def __init__(self, *, dead: bool = False) -> None:
        self._answers: list[asyncio.Future[Sequence[FetchAnswer]]] = []
        self._unsent: list[asyncio.Future[Sequence[FetchAnswer]]] = []
        self._dead = dead
        self._broken: RpcError | None = None
        self.throttle_s = 0.0

    def request(self, request: FetchRequest) -> asyncio.Future[Sequence[FetchAnswer]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[FetchAnswer]] = loop.create_future()
        if self._broken is not None:
            self._unsent.append(answer)
            return answer
        self._answers.append(answer)
        if self._dead:
            self._broken = LOST
            loop.call_soon(self.break_off)
        return answer

    def post(self, request: FetchRequest) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        handed_over: asyncio.Future[None] = loop.create_future()
        loop.call_soon(handed_over.set_result, None)
        return handed_over

    def answer(self, *parts: FetchAnswer, request: int = -1) -> None:
        if not self._answers[request].done():
            self._answers[request].set_result(parts)

    def take_throttle_s(self) -> float:
        throttle_s, self.throttle_s = self.throttle_s, 0.0
        return throttle_s

    def break_off(self, reason: str = "") -> None:
        self._broken = RpcError(RpcCode.CANCELLED, reason) if reason else LOST
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(self._broken)
        for answer in self._unsent:
            answer.set_exception(UnsentError(self._broken.code, self._broken.detail))

    async def close(self) -> None:
        pass


@dataclass(eq=False)
class Item:
    partition: TopicPartition
    topic_id: bytes
    leader: Leader
    is_current: bool = True


@dataclass
class Recorder:
    """A client that asks when the test says so, and records its answers."""

    answers: list[tuple[int, int]] = field(default_factory=list)  # partition, high watermark
    lost: list[tuple[str, bool]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    to_raise: deque[Exception] = field(default_factory=deque)  # one at each answer

    def turn(self, now: float) -> float:
        self.turns.append(now)
        return now + LONGEST_PAUSE_S

    def on_answer(self, item: Item, part: FetchAnswer) -> None:
        item.is_current = False
        if self.to_raise:
            raise self.to_raise.popleft()
        self.answers.append((item.partition.partition, part.high_watermark))

    def on_lost(self, item: Item, reason: str, *, maybe_taken: bool) -> None:
        item.is_current = False
        self.lost.append((reason, maybe_taken))

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


class Bench:
    """Partitions 0, 1 and 2 of topic t, led by brokers 1, 2 and 3."""

    def __init__(self, stage: Stage, max_in_flight: int | None = None) -> None:
        self.stage = stage
        self.streams: dict[int, list[HandStream]] = {}  # by broker, oldest first
        self.is_dead = False  # whether the next streams take nothing
        self.topic = stage.cluster.create("t", 3)
        config = ClientConfig(
            bootstrap_servers=stage.cluster.bootstrap_servers, on_wait=stage.waits.append
        )
        self.view = ClusterView(config, stage.world)
        self.client = Recorder()
        self.requests: LeaderRequests[FetchRequest, Item, FetchAnswer] = LeaderRequests(
            self.view, self._open, self.client, max_in_flight=max_in_flight
        )

    def _open(self, link: KafkaLink) -> HandStream:
        stream = HandStream(dead=self.is_dead)
        self.streams.setdefault(link.address.port - 9000, []).append(stream)
        return stream

    @property
    def now(self) -> float:
        return self.stage.world.clock.monotonic()

    async def start(self) -> None:
        self.view.want("t")
        await self.view.refresh()
        self.requests.start()

    def stream(self, broker: int) -> HandStream:
        """The newest stream to this broker."""
        return self.streams[broker][-1]

    def item(self, partition: int) -> Item:
        name = TopicPartition("t", partition)
        leader = self.view.leader(name)
        assert leader is not None
        return Item(name, self.topic.topic_id, leader)

    async def ask(self, *partitions: int, broker: int = 1) -> list[Item]:
        """Send one request to this broker, whoever leads, and wait until it is handed over."""
        items = [self.item(each) for each in partitions]
        request = fetch_request()
        for each in items:
            request.partitions.append(
                FetchedPart("t", each.topic_id, each.partition.partition, 0, -1, -1, 1 << 20)
            )
        self.requests.ask(broker, request, items, self.now + PATIENCE_S)
        await asyncio.sleep(0.001)
        return items

    def part(self, partition: int, high_watermark: int = 0) -> FetchAnswer:
        return answer_of("", self.topic.topic_id, partition, high_watermark)


@gives("bench")
def on_bench(scenario: Scenario, /, max_in_flight: int | None = None) -> None:
    async def whole(stage: Stage) -> None:
        each = Bench(stage, max_in_flight)
        await each.start()
        await scenario(each)
        await each.requests.close()
        await each.view.close()

    on_stage.run(whole)


@on_bench
async def test_an_answer_goes_to_the_items_that_it_names(bench: Bench) -> None:
    await bench.ask(0, 1)
    await bench.ask(2)
    assert bench.requests.in_flight(1) == 3
    stream = bench.stream(1)
    stream.answer(bench.part(1, 11), bench.part(0, 10), bench.part(2, 99), request=0)
    await asyncio.sleep(0.001)
    assert bench.client.answers == [(0, 10), (1, 11)]
    assert bench.requests.in_flight(1) == 1
    stream.answer(bench.part(2, 12), request=1)
    await asyncio.sleep(0.001)
    assert bench.client.answers[2:] == [(2, 12)]
    assert bench.streams.keys() == {1}
    assert not bench.client.lost


@on_bench
async def test_a_broker_that_asks_to_wait_is_sent_nothing_for_the_time(bench: Bench) -> None:
    await bench.ask(0)
    await bench.ask(1)
    stream = bench.stream(1)
    stream.throttle_s = 3.0
    stream.answer(bench.part(0, 10), request=0)
    await asyncio.sleep(0.001)
    until = bench.requests.ready_at(1, bench.now)
    assert until == bench.requests.throttled_until(1) == pytest.approx(bench.now + 3.0, abs=0.01)
    assert bench.requests.ready_at(2, bench.now) <= bench.now
    # What is under way may take longer by the same time.
    await asyncio.sleep(PATIENCE_S + 2.9)
    assert not bench.client.lost
    stream.answer(bench.part(1, 11), request=1)
    await asyncio.sleep(0.001)
    assert bench.client.answers == [(0, 10), (1, 11)]
    assert bench.requests.ready_at(1, bench.now) <= bench.now
    await bench.ask(2)
    await asyncio.sleep(PATIENCE_S + 0.1)
    assert len(bench.client.lost) == 1


@on_bench
async def test_the_longest_wait_counts(bench: Bench) -> None:
    await bench.ask(0)
    await bench.ask(1)
    stream, began = bench.stream(1), bench.now
    for request, seconds in enumerate((3.0, 1.0)):
        stream.throttle_s = seconds
        stream.answer(bench.part(request, 10), request=request)
        await asyncio.sleep(0.001)
    assert bench.requests.throttled_until(1) == pytest.approx(began + 3.0, abs=0.01)


@on_bench
async def test_the_time_that_brokers_let_the_client_wait_is_counted_once(bench: Bench) -> None:
    """A wait that begins within another one counts from the end of that."""
    assert bench.requests.throttled_s == 0
    for _ in range(3):
        await bench.ask(0)
    stream = bench.stream(1)
    for request, seconds, total in ((0, 3.0, 3.0), (1, 1.0, 3.0), (2, 4.0, 6.0)):
        stream.throttle_s = seconds
        stream.answer(bench.part(request, 10), request=request)
        await asyncio.sleep(2.0 if request == 1 else 0.0)
        assert bench.requests.throttled_s == pytest.approx(total, abs=0.01)


@on_bench
async def test_a_topic_without_an_id_is_reported_by_its_name(bench: Bench) -> None:
    (item,) = await bench.ask(0)
    item.topic_id = b""
    bench.stream(1).answer(answer_of("t", b"", 0, 7))
    await asyncio.sleep(0.001)
    assert bench.client.answers == [(0, 7)]


@on_bench
async def test_what_an_answer_leaves_out_is_lost(bench: Bench) -> None:
    await bench.ask(0, 1)
    bench.stream(1).answer(bench.part(1, 11))
    await asyncio.sleep(0.001)
    assert bench.client.lost == [("t-0: broker 1 left it unanswered", True)]


@on_bench
async def test_after_closing_the_client_hears_nothing(bench: Bench) -> None:
    await bench.ask(0)
    refreshes = bench.stage.cluster.metadata_requests
    await bench.requests.close()
    await asyncio.sleep(2 * PATIENCE_S)
    assert (bench.client.answers, bench.client.lost) == ([], [])
    assert bench.stage.cluster.metadata_requests == refreshes


@on_bench
async def test_an_item_that_does_not_count_any_more_hears_nothing(bench: Bench) -> None:
    first, _ = await bench.ask(0, 1)
    first.is_current = False
    bench.stream(1).answer(bench.part(0, 10), bench.part(1, 11))
    await asyncio.sleep(0.001)
    assert bench.client.answers == [(1, 11)]
    (gone,) = await bench.ask(0)
    gone.is_current = False
    bench.stream(1).break_off()
    await asyncio.sleep(0.001)
    assert not bench.client.lost


@on_bench
async def test_a_broken_stream_loses_all_that_it_owes_and_is_replaced_after_a_pause(
    bench: Bench,
) -> None:
    await bench.ask(0)
    await bench.ask(1)
    refreshes = bench.stage.cluster.metadata_requests
    bench.stream(1).break_off()
    await asyncio.sleep(0.01)
    assert bench.client.lost == [
        ("t-0: broker 1 is unreachable (unavailable: the broker is dead)", True),
        ("t-1: broker 1 is unreachable (unavailable: the broker is dead)", True),
    ]
    assert bench.stage.cluster.metadata_requests == refreshes + 1
    pause_s = bench.requests.ready_at(1, bench.now) - bench.now
    assert 0 < pause_s <= 0.06, "one pause, though two requests were lost"
    assert bench.requests.ready_at(2, bench.now) <= bench.now
    await asyncio.sleep(pause_s)
    assert bench.requests.ready_at(1, bench.now) <= bench.now
    await bench.ask(0)
    assert len(bench.streams[1]) == 2


@on_bench
async def test_what_never_left_was_surely_not_taken(bench: Bench) -> None:
    bench.is_dead = True
    for partition in (0, 1):  # both before the stream is found to be dead
        item = bench.item(partition)
        bench.requests.ask(1, fetch_request(), [item], bench.now + PATIENCE_S)
    await asyncio.sleep(0.001)
    assert [maybe_taken for _, maybe_taken in bench.client.lost] == [True, False]


@on_bench
async def test_a_silent_broker_is_given_up_at_the_deadline(bench: Bench) -> None:
    await bench.ask(0)
    await asyncio.sleep(1)
    await bench.ask(1)
    await bench.ask(2, broker=2)
    await asyncio.sleep(PATIENCE_S - 1.1)
    assert not bench.client.lost
    await asyncio.sleep(0.2)
    assert bench.client.lost == [
        ("t-0: broker 1 did not answer within 5.0 s", True),
        ("t-1: broker 1 is unreachable (cancelled: no answer in time)", True),
    ]
    assert bench.requests.in_flight(1) == 0
    assert bench.requests.in_flight(2) == 1


@on_bench
async def test_a_leader_that_was_replaced_is_not_waited_for(bench: Bench) -> None:
    old, _ = await bench.ask(0, 1)
    assert bench.requests.leave_deposed(bench.now)
    assert not bench.client.lost
    bench.view.hint(old.partition, old.topic_id, Leader(2, old.leader.epoch + 1))
    assert not bench.requests.leave_deposed(bench.now, 1.0), "it was asked just now"
    assert not bench.client.lost
    await asyncio.sleep(1)
    assert bench.requests.leave_deposed(bench.now, 1.0)
    assert bench.client.lost == [
        ("t-0: broker 1 no longer leads and has not answered", True),
    ]
    bench.stream(1).answer(bench.part(0, 10), bench.part(1, 11))
    await asyncio.sleep(0.001)
    assert bench.client.answers == [(1, 11)]


@on_bench
async def test_a_hint_counts_for_the_topic_that_was_asked_for(bench: Bench) -> None:
    item = bench.item(0)
    assert bench.requests.take_hint(item, hint(2, 5))
    assert bench.view.leader(item.partition) == (2, 5)
    assert not bench.requests.take_hint(item, hint(3, 5))
    item.topic_id = b"another"
    assert not bench.requests.take_hint(item, hint(3, 6))
    assert bench.view.leader(item.partition) == (2, 5)


@on_bench(max_in_flight=2)
async def test_a_broker_takes_so_many_requests_at_once(bench: Bench) -> None:
    for partition in (0, 1):
        assert bench.requests.ready_at(1, bench.now) <= bench.now
        await bench.ask(partition)
    assert bench.requests.ready_at(1, bench.now) > bench.now
    assert bench.requests.ready_at(2, bench.now) <= bench.now
    bench.stream(1).answer(bench.part(0), request=0)
    await asyncio.sleep(0.001)
    assert bench.requests.ready_at(1, bench.now) <= bench.now


@on_bench
async def test_what_is_posted_is_over_once_it_is_handed_over(bench: Bench) -> None:
    handed: list[int] = []
    items = [bench.item(0), bench.item(1)]
    items[1].is_current = False
    bench.requests.post(
        1,
        fetch_request(),
        items,
        bench.now + PATIENCE_S,
        lambda item: handed.append(item.partition.partition),
    )
    assert handed == []
    await asyncio.sleep(0.001)
    assert handed == [0]
    assert bench.requests.in_flight(1) == 0


@on_bench
async def test_the_loop_turns_at_news_and_at_least_every_so_often(bench: Bench) -> None:
    turns = bench.client.turns
    await asyncio.sleep(0.1)
    turns.clear()
    await asyncio.sleep(3.01)
    assert len(turns) == 3
    await bench.ask(0)
    bench.stream(1).answer(bench.part(0))
    await asyncio.sleep(0.001)
    assert len(turns) == 4
    bench.view.hint(TopicPartition("t", 0), bench.topic.topic_id, Leader(2, 7))
    await asyncio.sleep(0.001)
    assert len(turns) == 5


@pytest.mark.parametrize("at", ["turn", "answer"])
@on_bench
async def test_an_error_of_the_client_stops_everything(bench: Bench, at: str) -> None:
    error = ValueError("a bug")
    await bench.ask(0)
    await bench.ask(1)
    if at == "turn":
        bench.client.turns = None  # type: ignore[assignment]
        bench.requests.wake()
        await asyncio.sleep(0.001)
    else:
        bench.client.to_raise.append(error)
        bench.stream(1).answer(bench.part(0), request=0)
        await asyncio.sleep(0.001)
        assert bench.client.errors == [error]
    assert len(bench.client.errors) == 1
    assert bench.requests.is_stopped
    bench.client.turns = []
    bench.stream(1).answer(bench.part(1))
    await asyncio.sleep(2 * PATIENCE_S)
    assert (bench.client.answers, bench.client.lost) == ([], [])
    assert bench.client.turns == []


# --------------------------------------------------------------------------------- pauses


@on_bench
async def test_one_failure_of_many_requests_is_one_pause(bench: Bench) -> None:
    retry = PartitionRetry(TopicPartition("t", 0), bench.view)
    leader = Leader(1, 0)
    assert not retry.must_wait(leader, bench.now)
    retry.failed_leader = leader
    for _ in range(5):
        retry.postpone("it broke", bench.now)
    assert retry.must_wait(leader, bench.now)
    assert retry.must_wait(None, bench.now)
    assert retry.at - bench.now <= 0.06
    assert not retry.must_wait(leader, retry.at)
    assert not bench.stage.waits


@on_bench
async def test_the_first_leader_that_is_known_is_asked_at_once(bench: Bench) -> None:
    retry = PartitionRetry(TopicPartition("t", 0), bench.view)
    leader = Leader(1, 0)
    retry.postpone("it has no leader that is known", bench.now, awaits_leader=True)
    assert retry.must_wait(None, bench.now)
    assert not retry.must_wait(leader, bench.now)
    retry.failed_leader = leader
    retry.postpone("it broke", bench.now)
    assert retry.must_wait(leader, bench.now)
    retry.postpone("it has no leader that is known", retry.at, awaits_leader=True)
    retry.pause_until(retry.at + 1)
    assert retry.must_wait(leader, retry.at - 0.001)
    retry.postpone("it has no leader that is known", retry.at, awaits_leader=True)
    retry.succeed()
    retry.pause_until(bench.now + 1)
    assert retry.must_wait(leader, bench.now)


@on_bench
async def test_a_new_leader_is_asked_at_once(bench: Bench) -> None:
    retry = PartitionRetry(TopicPartition("t", 0), bench.view)
    retry.postpone("no leader", bench.now)
    assert retry.must_wait(Leader(2, 1), bench.now), "no leader has failed: it is the topic"
    retry.failed_leader = Leader(1, 0)
    assert retry.must_wait(Leader(1, 0), bench.now)
    assert not retry.must_wait(Leader(2, 1), bench.now)


@on_bench
async def test_a_success_of_the_new_leader_ends_the_pause_after_the_old_one(bench: Bench) -> None:
    retry = PartitionRetry(TopicPartition("t", 0), bench.view)
    retry.failed_leader = Leader(1, 0)
    retry.postpone("it broke", bench.now)
    retry.succeed()
    assert not retry.must_wait(Leader(2, 1), bench.now)


@on_bench
async def test_pauses_grow_and_a_lasting_failure_is_reported_until_a_success(bench: Bench) -> None:
    retry = PartitionRetry(TopicPartition("t", 0), bench.view)
    pauses_s = []
    for _ in range(3):
        now = bench.now
        retry.postpone(f"t-0: broker 1 answers {ErrorCode.NOT_LEADER_OR_FOLLOWER.name}", now)
        pauses_s.append(retry.at - now)
        await asyncio.sleep(pauses_s[-1])
    assert pauses_s == sorted(pauses_s)
    assert bench.stage.waits == ["waiting: t-0: broker 1 answers NOT_LEADER_OR_FOLLOWER"]
    assert retry.reason.endswith("NOT_LEADER_OR_FOLLOWER")
    retry.succeed()
    assert (retry.reason, retry.failed_leader) == ("", None)
    retry.postpone("it broke", bench.now)
    assert retry.at - bench.now <= 0.06
