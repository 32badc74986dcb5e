"""One Subscribe stream without a node: what it sends of what is polled, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from broker.gateway import subscribing
from broker.gateway.credit import Grant
from broker.gateway.membership import Joining, Offsets
from broker.gateway.refusals import Refusal
from broker.gateway.subscribing import From, Reading, Start, Subscription
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, topic_resource
from stele.config import ClientWorld
from stele.consumer.group.listener import RebalanceListener, call
from stele.consumer.positions import Progress, RawBatch
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata
from stele.wire.batch import stamp
from stele.wire.record import Record
from stele.world import RpcCode, RpcError
from tests.support.authorizer import FakeAuthorizer
from tests.support.batches import header_of, make_batch
from tests.support.worlds import virtual

NAME = TopicPartition("t", 0)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
ENDED = RpcError(RpcCode.UNAVAILABLE, "a test")
Polled = tuple[list[RawBatch], dict[TopicPartition, Progress]]


def batch(
    base_offset: int, count: int, *, wanted_from: int = 0, partition: TopicPartition = NAME
) -> RawBatch:
    data = make_batch(count)
    stamp(data, 0, base_offset=base_offset, leader_epoch=0)
    return RawBatch(partition, data, 0, header_of(data), wanted_from)


class ScriptedConsumer:
    """Returns what a test has it poll."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.polled: asyncio.Queue[Polled] = asyncio.Queue()
        self.read_id = OLD_ID
        self.is_closed = False
        self.commits = 0
        self.may_commit = asyncio.Event()
        self.listener = RebalanceListener()
        self.close_fails: RpcError | None = None

    async def end_offsets(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(names, 100)

    def assign(self, partitions: object) -> None: ...

    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    def subscribe(self, topics: Sequence[str], *, listener: RebalanceListener) -> None:
        self.listener = listener

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    async def poll_batches_progress(self, max_bytes: int, timeout_ms: float) -> Polled:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.polled.get()
        except TimeoutError:
            return [], {}

    def read_topic_id(self, topic: str, partition: int) -> bytes:
        return self.read_id

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self.may_commit.wait()
        self.commits += 1

    async def close(self) -> None:
        self.is_closed = True
        if self.close_fails is not None:
            raise self.close_fails


class Sent(NamedTuple):
    """One message of records."""

    topic_id: bytes
    offsets: list[int]
    end_offset: int | None


class Outlet:
    """The client: what it asks, and what it was sent."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Start | Grant | Offsets | None] = asyncio.Queue()
        self.readings: list[Reading] = []
        self.sent: list[Sent | Mapping[TopicPartition, Progress]] = []
        self.commits: list[Refusal | None] = []
        self.commit_fails: RpcError | None = None

    async def receive(self) -> Start | Grant | Offsets | None:
        return await self.requests.get()

    async def assigned(self, readings: Sequence[Reading]) -> None:
        self.readings += readings

    async def records(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        records: Sequence[Record],
        end_offset: int | None,
        *,
        is_append_time: bool,
    ) -> None:
        self.sent.append(Sent(topic_id, [each.offset for each in records], end_offset))

    async def positions(self, moved: Mapping[TopicPartition, Progress]) -> None:
        self.sent.append(moved)

    async def took(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def gave_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None: ...

    async def committed(self, refusal: Refusal | None) -> None:
        if self.commit_fails is not None:
            raise self.commit_fails
        self.commits.append(refusal)

    async def close(self) -> None:
        self.requests.put_nowait(None)


class Image:
    """Of the metadata: topic ``t`` has one partition, and ``wide`` has three."""

    def topic(self, name: str) -> Topic | None:
        count = {NAME.topic: 1, "wide": 3}.get(name)
        if count is None:
            return None
        partitions = [SimpleNamespace(leader=1)] * count
        return cast(Topic, SimpleNamespace(topic_id=OLD_ID, name=name, partitions=partitions))


class Stream:
    """``start``: with the first message, or what is asked in its place."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        start: Start | Grant | None = None,
        *,
        of_group: bool = False,
        records: int = 1_000,
    ) -> None:
        self.consumer = ScriptedConsumer()
        self.consumers_made = 0
        self.options: dict[str, Any] = {}  # of the consumer
        monkeypatch.setattr(subscribing, "Consumer", self._made)
        self.outlet = Outlet()
        self.authorizer = FakeAuthorizer()
        context = SimpleNamespace(image=Image, authorizer=self.authorizer)
        world = cast(ClientWorld, None)
        self.subscription = Subscription(
            cast(Any, context), cast(Any, None), world, "host:9092", cast(Any, self.outlet)
        )
        joining = Joining("g", ("t",), "client", None) if of_group else None
        places = () if of_group else (From("t", 0, 0),)
        grant = Grant(records, None)
        self.outlet.requests.put_nowait(start or Start(places, "earliest", grant, joining))
        self.running = asyncio.ensure_future(self.subscription.run())

    def _made(self, *arguments: object, **options: Any) -> ScriptedConsumer:
        self.consumers_made += 1
        self.options = options
        return self.consumer

    def poll(self, *batches: RawBatch, progress: Progress | None = None) -> None:
        moved = {} if progress is None else {NAME: progress}
        self.consumer.polled.put_nowait(([*batches], moved))

    def ask(self, request: Grant | Offsets | None) -> None:
        self.outlet.requests.put_nowait(request)


# ------------------------------------------------------------------------------- the start


def start_of(*places: From, joining: Joining | None = None) -> Start:
    return Start(places, "earliest", Grant(1, None), joining)


async def refusal_of(monkeypatch: pytest.MonkeyPatch, start: Start) -> str:
    """Why the stream ends at once; empty: it goes on."""
    stream = Stream(monkeypatch, start)
    await asyncio.sleep(0.1)
    if not stream.running.done():
        assert stream.consumers_made == 1
        stream.running.cancel()
        return ""
    error = stream.running.exception()
    assert isinstance(error, RpcError)
    return error.detail


@virtual
async def test_a_consumer_is_a_member_only_where_its_client_joins_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for start, client_id, group_id in (
        (start_of(From("t", 0, 0)), "stele-gateway", None),
        (start_of(joining=Joining("g", ("t",), "", None)), "stele-gateway", "g"),
        (start_of(joining=Joining("g", ("t",), "mine", None)), "mine", "g"),
    ):
        stream = Stream(monkeypatch, start)
        await asyncio.sleep(0.1)
        assert stream.options["client_id"] == client_id
        assert stream.options["group_id"] == group_id
        stream.running.cancel()


@pytest.mark.parametrize(
    ("partition", "why"),
    [
        (0, ""),
        (2, ""),
        (None, ""),
        (-1, "topic 'wide' has partitions 0 to 2, not -1"),
        (3, "topic 'wide' has partitions 0 to 2, not 3"),
    ],
)
@virtual
async def test_a_partition_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, partition: int | None, why: str
) -> None:
    found = await refusal_of(monkeypatch, start_of(From("wide", partition, 0)))
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("most", "is_refused"), [(4, False), (3, True)])
@virtual
async def test_a_stream_reads_a_bounded_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch, most: int, is_refused: bool
) -> None:
    monkeypatch.setattr(subscribing, "PARTITIONS_MAX", most)
    start = start_of(From("wide", None, 0), From("t", 0, 0))
    assert bool(await refusal_of(monkeypatch, start)) == is_refused


@pytest.mark.parametrize(
    ("joining", "why"),
    [
        (Joining("g", ("t", "wide"), "", None), ""),
        (Joining("g", ("t", "wide", "t"), "", None), "a group has at most 2 topics"),
        (Joining("g", (), "", None), "either topics or a topic_pattern"),
        (Joining("g", ("t",), "", None, pattern="t.*"), "either topics or a topic_pattern"),
        (Joining("g", ("none",), "", None), "knows no such topic"),
    ],
)
@virtual
async def test_a_member_names_a_bounded_number_of_topics_that_are_there(
    monkeypatch: pytest.MonkeyPatch, joining: Joining, why: str
) -> None:
    monkeypatch.setattr(subscribing, "TOPICS_MAX", 2)
    found = await refusal_of(monkeypatch, start_of(joining=joining))
    assert why in found
    assert bool(found) == bool(why)


# ----------------------------------------------------------------------- records, positions


@virtual
async def test_a_position_is_told_once_with_the_records_or_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch)
    stream.poll(batch(0, 2), progress=Progress(2, 50, OLD_ID))
    stream.poll(batch(2, 2), progress=Progress(5, 60, OLD_ID))
    stream.poll(batch(5, 1))
    await asyncio.sleep(0.1)
    assert stream.outlet.sent == [
        Sent(OLD_ID, [0, 1], 50),
        Sent(OLD_ID, [2, 3], 60),
        {NAME: Progress(5, 60, OLD_ID)},
        Sent(OLD_ID, [5], None),
    ]
    stream.running.cancel()


@virtual
async def test_a_batch_that_has_no_record_left_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch)
    stream.poll(batch(0, 2, wanted_from=2), batch(2, 1), progress=Progress(3, 3, OLD_ID))
    stream.poll(batch(3, 2, wanted_from=5), progress=Progress(5, 5, OLD_ID))
    await asyncio.sleep(0.1)
    assert stream.outlet.sent == [Sent(OLD_ID, [2], 3), {NAME: Progress(5, 5, OLD_ID)}]
    assert not stream.running.done()
    stream.running.cancel()


@virtual
async def test_records_of_a_deleted_topic_do_not_come_with_the_end_of_the_one_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They wait for credit when the position in the new topic is heard of."""
    stream = Stream(monkeypatch, of_group=True, records=1)
    stream.poll(batch(0, 3), progress=Progress(3, 3, OLD_ID))
    await asyncio.sleep(0.1)
    assert stream.outlet.sent == [Sent(OLD_ID, [0], 3)]
    anew = Progress(3, 30, NEW_ID)
    stream.poll(progress=anew)
    await asyncio.sleep(5)  # a member without credit polls now and then
    stream.ask(Grant(10, None))
    await asyncio.sleep(0.1)
    assert stream.outlet.sent[1:] == [Sent(OLD_ID, [1, 2], None), {NAME: anew}]
    stream.running.cancel()


@virtual
async def test_records_of_a_partition_that_was_given_up_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another member reads them. Those of other partitions go on waiting for credit."""
    stream = Stream(monkeypatch, of_group=True, records=0)
    other = NAME._replace(partition=1)
    await asyncio.sleep(0.1)
    stream.poll(batch(0, 2), batch(7, 2, partition=other), progress=Progress(2, 2, OLD_ID))
    await asyncio.sleep(5)  # a member without credit polls now and then
    await call(stream.consumer.listener.on_partitions_revoked, [NAME])
    stream.ask(Grant(10, None))
    await asyncio.sleep(0.1)
    assert stream.outlet.sent == [Sent(OLD_ID, [7, 8], None)]
    stream.running.cancel()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("t", None),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("wide", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
@virtual
async def test_only_offsets_of_topics_that_the_client_may_read_are_committed(
    monkeypatch: pytest.MonkeyPatch, topic: str, code: ErrorCode | None
) -> None:
    """The group's coordinator is asked by this broker, which may do everything."""
    stream = Stream(monkeypatch, of_group=True)
    stream.authorizer.denied.add((Operation.READ, topic_resource("wide")))
    stream.consumer.may_commit.set()
    stream.ask(Offsets({TopicPartition(topic, 0): OffsetAndMetadata(1)}))
    await asyncio.sleep(0.1)
    (answer,) = stream.outlet.commits
    assert (answer and answer.code) == code
    assert stream.consumer.commits == (code is None)
    stream.running.cancel()


# --------------------------------------------------------------------------------- the end


@virtual
async def test_a_client_that_asks_for_nothing_costs_no_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch)
    stream.outlet.requests.get_nowait()
    stream.ask(None)
    await stream.running
    assert stream.consumers_made == 0
    stream = Stream(monkeypatch)
    stream.outlet.requests.get_nowait()
    await stream.subscription.end(ENDED)
    with pytest.raises(RpcError, match="a test"):
        await stream.running
    assert stream.consumers_made == 0


@virtual
async def test_a_stream_begins_with_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch, Grant(1, None))
    with pytest.raises(RpcError, match="the first message of a stream is its start"):
        await stream.running
    assert stream.consumers_made == 0


@virtual
async def test_a_client_that_has_ended_its_side_gets_all_that_it_has_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, records=3)
    stream.ask(None)
    await asyncio.sleep(1)
    stream.poll(batch(0, 1))
    await asyncio.sleep(1)
    assert not stream.running.done()
    stream.poll(batch(1, 5))
    await stream.running
    assert stream.outlet.sent == [Sent(OLD_ID, [0], None), Sent(OLD_ID, [1, 2], None)]
    assert stream.consumer.is_closed


@virtual
async def test_a_member_that_has_ended_its_side_hears_of_all_its_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, of_group=True, records=0)
    for offset in (1, 2):
        stream.ask(Offsets({NAME: OffsetAndMetadata(offset)}))
    stream.ask(None)
    await asyncio.sleep(5)
    assert not stream.running.done()
    stream.consumer.may_commit.set()
    await stream.running
    assert stream.outlet.commits == [None, None]


@pytest.mark.parametrize("of_group", [False, True])
@virtual
async def test_a_stream_that_is_ended_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch, of_group: bool
) -> None:
    """It has credit left, and no record comes."""
    stream = Stream(monkeypatch, of_group=of_group)
    if of_group:
        stream.ask(Offsets({NAME: OffsetAndMetadata(1)}))
    await asyncio.sleep(1)
    await stream.subscription.end(ENDED)
    async with asyncio.timeout(1):
        with pytest.raises(RpcError, match="a test"):
            await stream.running
    assert stream.consumer.is_closed


@virtual
async def test_a_stream_whose_commits_cannot_be_answered_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, of_group=True)
    stream.outlet.commit_fails = ENDED
    stream.consumer.may_commit.set()
    for offset in (1, 2):
        stream.ask(Offsets({NAME: OffsetAndMetadata(offset)}))
    async with asyncio.timeout(10):
        with pytest.raises(RpcError, match="a test"):
            await stream.running


@pytest.mark.parametrize("is_ended", [False, True])
@virtual
async def test_a_stream_ends_for_its_first_reason(
    monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    """Its member may not be able to say any more which partitions it gives up."""
    stream = Stream(monkeypatch, of_group=True, records=0)
    stream.consumer.close_fails = RpcError(RpcCode.CANCELLED, "nobody listens")
    await asyncio.sleep(0.1)
    if is_ended:
        await stream.subscription.end(ENDED)
    else:
        stream.ask(None)
    with pytest.raises(RpcError, match="a test" if is_ended else "nobody listens"):
        await stream.running
