"""A cluster for the client's tests: brokers in memory, on virtual time, which fail on order.

It is deliberately dumb. There is one log per partition, whoever leads it, so nothing is replicated,
and an idempotent producer's batches are remembered for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from chaos.sim.world.clock import SimClock
from chaos.sim.world.loop import Scheduler
from stele.addresses import Address
from stele.aio import Admin, Consumer, Producer, ShareConsumer
from stele.cluster.messages import (
    NO_LEADER,
    BrokerAddress,
    ClusterNews,
    FetchAnswer,
    FetchRequest,
    FoundOffset,
    Leader,
    OffsetQuestion,
    ProduceAnswer,
    ProduceRequest,
    TopicNews,
)
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.security.client_security import PLAINTEXT
from stele.wire.batch import decode, read_header, stamp
from stele.wire.kafka import Api
from stele.wire.v1 import admin_pb2
from stele.world import Channel, Clock, PortFacts, RpcCode, RpcError, Stream
from tests.support.stele_kafka import FakeTransport
from tests.support.timing import run_virtual
from tests.support.worlds import Scenario, gives

T = TypeVar("T")

LOST = RpcError(RpcCode.UNAVAILABLE, "the broker is dead")


@dataclass(slots=True)
class Fault:
    """The fate of the next produce request of a partition. ``applied``: it is written all the
    same."""

    error: ErrorCode = ErrorCode.NONE
    applied: bool = False
    silent: bool = False  # there is never an answer
    breaks: bool = False  # the connection breaks instead of an answer
    hint: bool = False  # the refusal names the leader
    message: str = ""


@dataclass(slots=True)
class FakePartition:
    leader: int
    leader_epoch: int = 0
    batches: list[bytearray] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    # (producer id, epoch, sequence) → base offset.
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    expected: dict[tuple[int, int], int] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    fetch_errors: deque[ErrorCode] = field(default_factory=deque)
    produced: int = 0  # number of requests
    deposed: int = 0  # a broker that believes to lead, and lacks what came after it
    max_batch_bytes: int = 1 << 30
    told: tuple[int, int] | None = None  # leader and epoch in metadata that lag
    nearby: list[int] = field(default_factory=list)  # followers for clients that say where they are
    nearby_errors: deque[ErrorCode] = field(default_factory=deque)  # of those

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The greatest epoch in the log that is not above this one, and its end. None for -1, and
        if there is nothing."""
        headers = [read_header(batch) for batch in self.batches]
        known = [each for each in headers if each.leader_epoch <= epoch]
        if epoch < 0 or not known:
            return None
        if len(known) == len(headers) and self.leader_epoch <= epoch:
            return epoch, self.end_offset
        return known[-1].leader_epoch, known[-1].next_offset

    def lose(self, offset: int, leader_epoch: int) -> None:
        """An unclean election: another log ends here, and its leader has a later epoch."""
        self.batches = [each for each in self.batches if read_header(each).last_offset < offset]
        self.end_offset = offset
        self.leader_epoch = leader_epoch


@dataclass(slots=True)
class FakeTopic:
    topic_id: bytes
    partitions: dict[int, FakePartition]


class FakeCluster:
    """Kafka ports are ``9000 + broker id``, gRPC ports ``9100 + broker id``."""

    security = PLAINTEXT

    def __init__(self, clock: Clock, brokers: int = 3) -> None:
        self.clock = clock
        self.alive = dict.fromkeys(range(1, brokers + 1), True)
        self.frozen: set[int] = set()  # brokers that accept calls and do not answer
        self.topics: dict[str, FakeTopic] = {}
        self.metadata_offset = 0
        # The metadata offset and topics of a broker that lags. It answers with them once.
        self.outdated: tuple[int, dict[str, FakeTopic]] | None = None
        self.connections: list[FakeTransport] = []  # to the Kafka ports
        self.connect_takes_s = 0.0
        self.refusal: OSError | None = None  # what every attempt to connect fails with
        self.is_kafkas = False  # whether brokers know nothing that Kafka's do not know
        self.kafka_versions: dict[int, int] = {}  # the newest version of an API, if it is older
        self.transaction_version = 2  # the level of the feature
        # What ``answer`` has set, by the type of the request.
        self.kafka_others: dict[type[Any], tuple[Api[Any, Any], Callable[[int, Any], Any]]] = {}
        self.next_producer_id = 1000
        self.metadata_requests = 0
        self.created: list[admin_pb2.NewTopic] = []
        self.admin_faults: deque[ErrorCode] = deque()
        # Of CreateTopics, in the order of the attempts.
        self.request_ids: list[bytes] = []
        self.copies: list[bool] = []  # whether the request was marked as one
        self.stream_answers_take_s = 0.001
        self.fetches: list[tuple[int, str]] = []  # broker and rack, each time it was looked
        self.hidden_topics: set[str] = set()  # metadata requests do not find them
        self.hide_next_topic_requests = 0  # number of metadata requests that get no topics yet
        # What a test answers to other methods of gRPC, by name: called with the broker and the
        # request.
        self.others: dict[str, Callable[[int, bytes], Any]] = {}
        self.asking: FakeTransport | None = None  # the connection of the request to answer
        self.on_disconnect: Callable[[FakeTransport], None] = lambda connection: None

    def answer(self, api: Api[Any, Any], handle: Callable[[int, Any], Any]) -> None:
        """Have all brokers serve another API. ``handle`` is given the broker and the request, and
        may be a coroutine function. If it raises RpcError, the connection breaks instead of an
        answer."""
        self.kafka_others[api.request] = api, handle

    @property
    def is_outdated(self) -> bool:
        """Whether a broker that lags has not answered yet."""
        return self.outdated is not None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{9000 + each}" for each in self.alive)

    def create(self, name: str, partitions: int = 1) -> FakeTopic:
        ids = sorted(self.alive)
        topic = FakeTopic(
            f"{name}-{len(self.topics)}".encode().ljust(16, b"."),
            {p: FakePartition(ids[p % len(ids)]) for p in range(partitions)},
        )
        self.topics[name] = topic
        return topic

    def partition(self, topic: str = "t", partition: int = 0) -> FakePartition:
        return self.topics[topic].partitions[partition]

    def move_leader(self, partition: FakePartition, to: int) -> None:
        partition.leader = to
        partition.leader_epoch += 1

    def kill(self, broker: int) -> None:
        self.alive[broker] = False
        for connection in self.connections:
            if connection.broker == broker:
                connection.abort()

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        """The values in the log, in order."""
        batches = self.partition(topic, partition).batches
        return [record.value for batch in batches for record in decode(batch)]

    # ----------------------------------------------------------------- the client's connector

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        if self.connect_takes_s:
            await asyncio.sleep(self.connect_takes_s)
        if self.refusal is not None:
            raise self.refusal
        if not self.alive.get(address.port - 9000):
            raise ConnectionRefusedError(111, f"connection refused by {address}")
        return FakeTransport(self, address.port - 9000, cast(asyncio.BufferedProtocol, factory()))

    async def look_at_port(self, address: Address) -> PortFacts | None:
        return None

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        return FakeChannel(self, address.port - 9100)

    # ---------------------------------------------------------- what leaders and others answer

    def metadata(self, names: Sequence[str] | None) -> ClusterNews:
        """``names``: None: of all topics."""
        self.metadata_requests += 1
        offset, topics = self.outdated or (self.metadata_offset, self.topics)
        self.outdated = None
        brokers = {
            each: BrokerAddress("127.0.0.1", 9000 + each)
            for each, alive in self.alive.items()
            if alive
        }
        news = ClusterNews("fake", 1, brokers, metadata_offset=-1 if self.is_kafkas else offset)
        hidden = self.hide_next_topic_requests > 0
        self.hide_next_topic_requests -= hidden
        for name in topics if names is None else names:
            topic = None if hidden or name in self.hidden_topics else topics.get(name)
            if topic is None:
                news.topics.append(TopicNews(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            told = TopicNews(name, ErrorCode.NONE, topic.topic_id)
            news.topics.append(told)
            for number, partition in topic.partitions.items():
                leader, epoch = partition.told or (partition.leader, partition.leader_epoch)
                leader = leader if self.alive.get(leader) else -1
                told.partitions.append((number, Leader(leader, epoch)))
        return news

    def produce(
        self, broker: int, request: ProduceRequest
    ) -> tuple[list[ProduceAnswer] | None, bool]:
        """The answer (None if there is none), and whether the connection breaks."""
        answers: list[ProduceAnswer] = []
        if broker in self.frozen:
            return None, False
        silent = breaks = False
        for part in request.partitions:
            partition = self._partition_of(part.topic_id, part.partition)
            partition.produced += 1
            fault = partition.faults.popleft() if partition.faults else Fault()
            answer = ProduceAnswer(
                "", part.topic_id, part.partition, ErrorCode.NONE, "", 0, -1, NO_LEADER
            )
            answers.append(answer)
            if len(part.records) > partition.max_batch_bytes:
                answer.code = ErrorCode.MESSAGE_TOO_LARGE
                answer.message = f"max.message.bytes is {partition.max_batch_bytes}"
                continue
            if partition.deposed == broker:
                answer.code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                continue
            now = Leader(partition.leader, partition.leader_epoch)
            if partition.leader != broker:
                answer.code, answer.leader = ErrorCode.NOT_LEADER_OR_FOLLOWER, now
                continue
            if not fault.error or fault.applied:
                answer.code, answer.base_offset = self._append(partition, bytearray(part.records))
                if answer.code is ErrorCode.NONE and not self.is_kafkas:
                    answer.leader = now
            if fault.error:
                answer.code, answer.message = fault.error, fault.message
                answer.leader = now if fault.hint else NO_LEADER
            silent |= fault.silent
            breaks |= fault.breaks
        return (None if silent or request.acks == 0 else answers), breaks

    def _append(self, partition: FakePartition, batch: bytearray) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        decode(batch)  # raises if its CRC is wrong
        if header.producer_id >= 0:
            key = (header.producer_id, header.producer_epoch, header.base_sequence)
            if key in partition.sequences:
                return ErrorCode.NONE, partition.sequences[key]
            expected = partition.expected.get(key[:2], 0)
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            partition.sequences[key] = partition.end_offset
            partition.expected[key[:2]] = expected + header.record_count
        base_offset = partition.end_offset
        stamp(batch, 0, base_offset=base_offset, leader_epoch=partition.leader_epoch)
        partition.batches.append(batch)
        partition.end_offset += header.record_count
        return ErrorCode.NONE, base_offset

    async def fetch(self, broker: int, request: FetchRequest) -> list[FetchAnswer]:
        """Waits up to ``max_wait_ms`` if there is nothing. Checks every 10 ms."""
        waited_ms = 0
        while broker in self.frozen:  # noqa: ASYNC110 - tests set it
            await asyncio.sleep(0.01)
        while True:
            answers = self._fetch_now(broker, request)
            ready = any(
                each.records
                or each.code
                or each.diverging_epoch >= 0
                or each.preferred_read_replica >= 0
                for each in answers
            )
            self.fetches.append((broker, request.rack))
            if ready or waited_ms >= request.max_wait_ms:
                return answers
            await asyncio.sleep(0.01)
            waited_ms += 10

    def _fetch_now(self, broker: int, request: FetchRequest) -> list[FetchAnswer]:
        answers: list[FetchAnswer] = []
        left = request.max_bytes
        for part in request.partitions:
            answer = FetchAnswer(
                "", part.topic_id, part.partition, ErrorCode.NONE, 0, 0, 0, b"", NO_LEADER
            )
            answers.append(answer)
            if all(topic.topic_id != part.topic_id for topic in self.topics.values()):
                answer.code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition = self._partition_of(part.topic_id, part.partition)
            answer.high_watermark = partition.end_offset
            answer.log_start_offset = partition.start_offset
            is_nearby = bool(request.rack) and broker in partition.nearby
            ending = partition.end_of_epoch(part.last_fetched_epoch)
            if is_nearby and partition.nearby_errors:
                answer.code = partition.nearby_errors.popleft()
            elif partition.fetch_errors:
                answer.code = partition.fetch_errors.popleft()
            elif partition.leader != broker and not is_nearby:
                answer.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                answer.leader = Leader(partition.leader, partition.leader_epoch)
            elif part.current_leader_epoch < partition.leader_epoch:
                answer.code = ErrorCode.FENCED_LEADER_EPOCH
            elif ending is not None and (
                ending[0] < part.last_fetched_epoch or ending[1] < part.fetch_offset
            ):
                answer.diverging_epoch, answer.diverging_end_offset = ending
            elif request.rack and not is_nearby and partition.nearby:
                answer.preferred_read_replica = partition.nearby[0]
            elif not partition.start_offset <= part.fetch_offset <= partition.end_offset:
                answer.code = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                most_bytes = min(part.max_bytes, left)
                found = self._from(partition, part.fetch_offset, most_bytes) if left > 0 else ()
                answer.records = b"".join(found)
                left -= len(answer.records)
        return answers

    def _from(self, partition: FakePartition, offset: int, max_bytes: int) -> Iterator[bytearray]:
        size = 0
        for batch in partition.batches:
            if read_header(batch).last_offset >= offset and (not size or size < max_bytes):
                size += len(batch)
                yield batch

    def list_offsets(
        self, broker: int, wanted: Sequence[OffsetQuestion], *, is_committed: bool
    ) -> list[FoundOffset]:
        return [self._find_offset(broker, each) for each in wanted]

    def _find_offset(self, broker: int, asked: OffsetQuestion) -> FoundOffset:
        name, _, timestamp_ms = asked
        partition = self.topics[name.topic].partitions[name.partition]
        found = FoundOffset(name, ErrorCode.NONE, -1, -1, partition.leader_epoch)
        if partition.leader != broker:
            return found._replace(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if timestamp_ms == -2:
            return found._replace(offset=partition.start_offset)
        if timestamp_ms == -1:
            return found._replace(offset=partition.end_offset)
        for batch in partition.batches:
            for record in decode(batch):
                if record.timestamp_ms >= timestamp_ms:
                    return found._replace(offset=record.offset, timestamp_ms=record.timestamp_ms)
        return found

    def _partition_of(self, topic_id: bytes, partition: int) -> FakePartition:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.partitions[partition]
        raise RpcError(RpcCode.INTERNAL, "the test asks for a topic that is not there")

    # ------------------------------------------------------------------------------- Admin

    def create_topics(
        self, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse:
        response = admin_pb2.CreateTopicsResponse()
        self.request_ids.append(request.request_id)
        self.copies.append(request.on_behalf_of.repeats)
        if self.admin_faults:
            response.error = self.admin_faults.popleft()
            return response
        for topic in request.topics:
            self.created.append(topic)
            if topic.name in self.topics:
                response.topics.add(
                    name=topic.name, error=ErrorCode.TOPIC_ALREADY_EXISTS, message="it exists"
                )
                continue
            made = self.create(topic.name, topic.partitions)
            response.topics.add(
                name=topic.name,
                topic_id=made.topic_id,
                partitions=topic.partitions,
                replication_factor=1,
            )
        return response

    def describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest
    ) -> admin_pb2.DescribeTopicsResponse:
        response = admin_pb2.DescribeTopicsResponse()
        for name in request.names or self.topics:
            if name not in self.topics:
                response.topics.add(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            topic = response.topics.add(name=name, topic_id=self.topics[name].topic_id)
            for number, partition in self.topics[name].partitions.items():
                topic.partitions.add(partition=number, leader=partition.leader, replicas=[1, 2])
        return response


class FakeChannel:
    def __init__(self, cluster: FakeCluster, broker: int) -> None:
        self._cluster = cluster
        self._broker = broker

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        await asyncio.sleep(0.001)
        if not self._cluster.alive[self._broker]:
            raise LOST
        if self._broker in self._cluster.frozen:
            await asyncio.sleep(timeout_s)
            raise RpcError(RpcCode.DEADLINE_EXCEEDED, "no answer")
        return self._answer(method.rpartition("/")[2], request)

    def _answer(self, name: str, request: bytes) -> bytes:
        cluster = self._cluster
        if name == "CreateTopics":
            answer: Any = cluster.create_topics(admin_pb2.CreateTopicsRequest.FromString(request))
        elif name == "DescribeTopics":
            answer = cluster.describe_topics(admin_pb2.DescribeTopicsRequest.FromString(request))
        elif name in cluster.others:
            answer = cluster.others[name](self._broker, request)
        else:
            raise RpcError(RpcCode.UNIMPLEMENTED, name)
        return cast(bytes, answer.SerializeToString())

    def stream(self, method: str) -> Stream:
        raise AssertionError("an Admin opens no stream")

    async def close(self) -> None:
        pass


@dataclass
class Stage:
    """What a scenario gets: the cluster, the clients' world, and what clients said while
    waiting."""

    cluster: FakeCluster
    world: ClientWorld
    waits: list[str] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        return {"world": self.world, "on_wait": self.waits.append}

    def producer(self, **options: Any) -> Producer:
        return Producer(self.cluster.bootstrap_servers, **{**self.options(), **options})

    def consumer(self, **options: Any) -> Consumer:
        options.setdefault("auto_offset_reset", "earliest")
        return Consumer(self.cluster.bootstrap_servers, **{**self.options(), **options})

    def share_consumer(self, **options: Any) -> ShareConsumer:
        options.setdefault("group_id", "g")
        return ShareConsumer(self.cluster.bootstrap_servers, **{**self.options(), **options})

    def admin(self, **options: Any) -> Admin:
        return Admin(self.cluster.bootstrap_servers, **{**self.options(), **options})


@gives("stage")
def on_stage(scenario: Scenario, /, *, seed: int = 1) -> None:
    """Clients of brokers in memory."""
    scheduler = Scheduler()
    clock = SimClock(scheduler, 100.0, 0)
    cluster = FakeCluster(clock)
    stage = Stage(cluster, ClientWorld(clock, cluster, random.Random(seed)))
    run_virtual(scenario(stage), scheduler)
