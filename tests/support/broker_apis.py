"""A broker's request handling, with image, replicas and controller faked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from broker.api import KafkaApis
from broker.coordinator.groups import GroupCoordinators
from broker.coordinator.markers import MarkerSender
from broker.coordinator.transactions import TransactionCoordinators
from broker.membership.controller_client import ControllerClient
from broker.membership.publisher import MetadataPublisher
from broker.metrics import BrokerMetrics
from broker.replication.fetch_session import FetchSessions
from broker.service.context import BrokerContext
from broker.service.letter_topics import make_letter_topic
from broker.service.producer_ids import ProducerIds
from broker.service.quotas import BrokerQuotas
from broker.service.telemetry import ClientTelemetry
from broker.sharing.sharing import Sharing
from metadata.acl import Acl
from metadata.acls import record_of
from metadata.brokers import GRPC, PLAINTEXT
from metadata.features import supported_ranges
from metadata.records import encode
from raft.api import CommittedBatch, LeaderAndEpoch
from raft.quorum import FeatureLevels
from runtime.config.addresses import CONTROLLER as CONTROLLER_LISTENER
from runtime.config.addresses import NamedAddress
from runtime.config.node import NodeConfig, from_settings
from runtime.kafka.connection import KafkaServerProtocol
from runtime.logins.listener import ListenerLogins
from runtime.metrics.registry import MetricsRegistry
from runtime.quorum.log import HistoryPiece
from runtime.quorum.snapshots import Snapshot
from stele.errors import ApiError, ErrorCode
from stele.wire import kafka
from stele.wire.kafka import Api, Struct
from stele.wire.v1 import admin_pb2, controller_pb2, raft_pb2
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_edges import FakeNetwork, fake_rng
from tests.support.decisions import deciding
from tests.support.fake_replicas import FakeReplicas
from tests.support.timing import LoopClock
from world.network import Peer, Service

Q = TypeVar("Q", bound=Struct)
R = TypeVar("R", bound=Struct)

ME = 1
INCARNATION = b"m" * 16
CONTROLLER = ("controller", 9093)

SETTINGS = {
    "node.id": str(ME),
    "process.roles": "broker",
    "log.dirs": "/data",
    "controller.quorum.voters": f"100@{CONTROLLER[0]}:{CONTROLLER[1]}",
    "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:19092",
    "grpc.listeners": "INTERNAL://127.0.0.1:9192,EXTERNAL://127.0.0.1:19192",
    "metrics.listener": "",
}


def topic_id(name: str) -> bytes:
    return name.encode()[-16:].rjust(16, b"#")


class FakeNodes:
    """The other brokers: requests that they got, in order, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, Struct]] = []  # broker, version, request
        self.answers: dict[type[Struct], Callable[[Any], Struct]] = {}
        """By type of the request. Without an answer, the broker cannot be reached."""

    async def ask(self, broker_id: int, api: Api[Q, R], version: int, request: Q) -> R:
        self.asked.append((broker_id, version, request))
        answer = self.answers.get(type(request))
        if answer is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}")
        answered = answer(request)
        assert isinstance(answered, api.response)
        return answered

    def close(self) -> None:
        pass


class FakeController:
    """An active controller that creates and deletes topics in the publisher's image.

    It only remembers moves of partitions, and refuses moves to no broker. The real controller's
    functions decide about configurations, partition counts, elections and brokers.
    """

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self.created: list[admin_pb2.CreateTopicsRequest] = []
        self.deleted: list[admin_pb2.DeleteTopicsRequest] = []
        self.moves: dict[tuple[str, int], list[int]] = {}
        self.moved: list[admin_pb2.AlterPartitionReassignmentsRequest] = []
        self.updated: list[admin_pb2.UpdateFeaturesRequest] = []
        self.refuse_with = ErrorCode.NONE
        self.refuses_moves_after: int | None = None  # so many requests
        self.next_producer_id = 5000
        self._coming: set[bytes] = set()  # ids of topics that the broker knows soon

    def service(self) -> Service:
        return Service(
            unary={
                "/stele.v1.Admin/CreateTopics": self._create,
                "/stele.v1.Admin/DeleteTopics": self._delete,
                "/stele.v1.Admin/AlterPartitionReassignments": self._move,
                "/stele.v1.Admin/ListPartitionReassignments": self._list_moves,
                "/stele.v1.Admin/UpdateFeatures": self._update_features,
                "/stele.v1.Admin/AlterUserScramCredentials": self._alter_credentials,
                "/stele.v1.Controller/AllocateProducerIds": self._allocate,
                "/stele.v1.Controller/ReadIndex": self._read_index,
                "/stele.v1.Admin/DescribeQuorum": self._describe_quorum,
                **deciding(self._edges),
            }
        )

    async def _create(self, payload: bytes, _: Peer) -> bytes:
        request = admin_pb2.CreateTopicsRequest.FromString(payload)
        self.created.append(request)
        answer = admin_pb2.CreateTopicsResponse()
        for topic in request.topics:
            error = self.refuse_with
            wanted = topic_id(topic.name)  # equal for long names that begin alike
            is_there = self._edges.publisher.image.topic_by_id(wanted) is not None
            if is_there or wanted in self._coming:
                error = ErrorCode.TOPIC_ALREADY_EXISTS
            result = answer.topics.add(name=topic.name, error=error)
            if error:
                result.message = f"no {topic.name}"
                continue
            result.partitions, result.replication_factor = 1, 1
            if not request.validate_only:
                result.topic_id = wanted
                self._coming.add(wanted)
                asyncio.get_running_loop().call_later(0.05, self._make, topic.name)
        answer.metadata_offset = self._edges.publisher.image.offset + len(self._coming)
        return answer.SerializeToString()

    def _make(self, topic: str) -> None:
        self._coming.discard(topic_id(topic))
        self._edges.add_topic(topic, [[ME]])

    async def _delete(self, payload: bytes, _: Peer) -> bytes:
        request = admin_pb2.DeleteTopicsRequest.FromString(payload)
        self.deleted.append(request)
        answer = admin_pb2.DeleteTopicsResponse()
        publisher = self._edges.publisher
        for name in request.names:
            topic = publisher.image.topic(name)
            if topic is None:
                answer.topics.add(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                answer.topics.add(name=name, topic_id=topic.topic_id)
                self._edges.remove_topic(name)
        for wanted in request.topic_ids:
            topic = publisher.image.topic_by_id(wanted)
            if topic is None:
                answer.topics.add(topic_id=wanted, error=ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                answer.topics.add(name=topic.name, topic_id=wanted)
                self._edges.remove_topic(topic.name)
        return answer.SerializeToString()

    async def _move(self, payload: bytes, _: Peer) -> bytes:
        request = admin_pb2.AlterPartitionReassignmentsRequest.FromString(payload)
        self.moved.append(request)
        if len(self.moved) - 1 == self.refuses_moves_after:
            self.refuse_with = ErrorCode.POLICY_VIOLATION
        answer = admin_pb2.AlterPartitionReassignmentsResponse(error=self.refuse_with)
        for wish in request.partitions if not self.refuse_with else ():
            result = answer.partitions.add(topic=wish.topic, partition=wish.partition)
            place = wish.topic, wish.partition
            if not wish.HasField("target"):
                if self.moves.pop(place, None) is None:
                    result.error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            elif wish.target.ids:
                self.moves[place] = list(wish.target.ids)
            else:
                result.error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
                result.message = "it names no broker"
        return answer.SerializeToString()

    async def _alter_credentials(self, payload: bytes, _: Peer) -> bytes:
        request = admin_pb2.AlterUserScramCredentialsRequest.FromString(payload)
        users = [each.user for each in request.deletions] + [
            each.user for each in request.upsertions
        ]
        answer = admin_pb2.AlterUserScramCredentialsResponse(error=self.refuse_with)
        for user in dict.fromkeys(users) if not self.refuse_with else ():
            answer.users.add(user=user)
        return answer.SerializeToString()

    async def _read_index(self, payload: bytes, _: Peer) -> bytes:
        offset = self._edges.publisher.image.offset
        return controller_pb2.ReadIndexResponse(metadata_offset=offset).SerializeToString()

    async def _update_features(self, payload: bytes, _: Peer) -> bytes:
        """The only feature is "known", and it can only be raised."""
        request = admin_pb2.UpdateFeaturesRequest.FromString(payload)
        self.updated.append(request)
        answer = admin_pb2.UpdateFeaturesResponse(error=self.refuse_with)
        for update in request.updates if not self.refuse_with else ():
            result = answer.features.add(name=update.name, error=ErrorCode.OPERATION_NOT_ATTEMPTED)
            if update.name != "known" or update.type != admin_pb2.UpgradeType.UPGRADE:
                result.error, result.message = ErrorCode.INVALID_UPDATE_VERSION, "only known, up"
        if all(each.error == ErrorCode.OPERATION_NOT_ATTEMPTED for each in answer.features):
            for each in answer.features:
                each.error = ErrorCode.NONE
        return answer.SerializeToString()

    async def _describe_quorum(self, payload: bytes, _: Peer) -> bytes:
        raft_pb2.DescribeQuorumRequest.FromString(payload)
        if self.refuse_with:
            return raft_pb2.DescribeQuorumResponse(error=self.refuse_with).SerializeToString()
        voter = raft_pb2.ReplicaState(
            replica_id=100,
            directory_id=b"d" * 16,
            log_end_offset=42,
            last_fetch_time_ms=1000,
            last_caught_up_time_ms=2000,
            endpoint="[::1]:9093",
        )
        observer = raft_pb2.ReplicaState(replica_id=ME, log_end_offset=41, last_fetch_time_ms=-1)
        answer = raft_pb2.DescribeQuorumResponse(
            leader_id=100, epoch=7, high_watermark=40, voters=[voter], observers=[observer]
        )
        return answer.SerializeToString()

    async def _list_moves(self, payload: bytes, _: Peer) -> bytes:
        request = admin_pb2.ListPartitionReassignmentsRequest.FromString(payload)
        named = {(each.topic, each.partition) for each in request.partitions}
        answer = admin_pb2.ListPartitionReassignmentsResponse(error=self.refuse_with)
        for place, target in sorted(self.moves.items()):
            if not named or place in named:
                answer.partitions.add(
                    topic=place[0],
                    partition=place[1],
                    replicas=[*target, 1],
                    adding_replicas=target,
                    removing_replicas=[1],
                )
        return answer.SerializeToString()

    async def _allocate(self, payload: bytes, _: Peer) -> bytes:
        if self.refuse_with:
            return controller_pb2.AllocateProducerIdsResponse(
                error=self.refuse_with
            ).SerializeToString()
        first, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1000
        return controller_pb2.AllocateProducerIdsResponse(
            first=first, count=1000
        ).SerializeToString()


class FakeTransport(asyncio.Transport):
    """Keeps everything that is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 5555)})
        self.written: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.put_nowait(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written.put_nowait(b"".join(bytes(each) for each in list_of_data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Client:
    """A Kafka client on one connection to the broker, without sockets."""

    def __init__(
        self, apis: KafkaApis, listener: str, logins: ListenerLogins | None = None
    ) -> None:
        self.transport = FakeTransport()
        self.protocol = KafkaServerProtocol(
            apis,
            max_request_bytes=1_000_000,
            listener_name=listener,
            logins=logins,
            on_close=apis.forget,
        )
        self.protocol.connection_made(self.transport)
        self._correlation_id = 0

    def send(self, api: Api[Q, R], version: int, request: Q) -> None:
        self._correlation_id += 1
        self.send_bytes(
            b"".join(
                bytes(each)
                for each in kafka.encode_request(
                    api, version, self._correlation_id, "test", request
                )
            )
        )

    def send_bytes(self, data: bytes) -> None:
        position = 0
        while position < len(data) and not self.transport.closed:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            self.protocol.buffer_updated(count)
            position += count

    async def receive(self, api: Api[Q, R], version: int) -> R:
        async with asyncio.timeout(30):
            frame = (await self.transport.written.get())[kafka.SIZE_BYTES :]
        return kafka.decode_response(api, version, frame)

    async def call(self, api: Api[Q, R], version: int, request: Q) -> R:
        self.send(api, version, request)
        return await self.receive(api, version)

    def disconnect(self) -> None:
        self.transport.closed = True
        self.protocol.connection_lost(None)


class FakeMetadataLog:
    """Has what a test puts into it; each read returns one batch."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.batches: list[CommittedBatch] = []

    @property
    def high_watermark(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    async def read_history(self, offset: int) -> HistoryPiece:
        snapshot = self.snapshot
        if snapshot is not None and offset < snapshot.id.end_offset:
            return HistoryPiece(snapshot, [], snapshot.id.end_offset)
        later = [batch for batch in self.batches if batch.base_offset >= offset][:1]
        return HistoryPiece(None, later, later[0].last_offset + 1 if later else offset)


class Edges:
    """A broker without logs. Three brokers are registered: 1 (this one), 2 and 3. There are no
    topics."""

    def __init__(self, authorizer: FakeAuthorizer | None = None, /, **settings: str) -> None:
        self.clock = LoopClock()
        self.network = FakeNetwork()
        self.rng = fake_rng()
        """The controller's."""
        self.config: NodeConfig = from_settings(
            SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        )
        self.replicas = FakeReplicas(ME)
        self.authorizer = authorizer or FakeAuthorizer()
        self.lease = True
        self.deposed = False
        self.controller_features: dict[int, tuple[FeatureLevels, ...]] = {}
        self.leader = LeaderAndEpoch(100, 1)
        self.metadata_log = FakeMetadataLog()
        self.registry = MetricsRegistry()
        self.publisher = MetadataPublisher(
            broker_id=ME,
            incarnation_id=INCARNATION,
            on_published=lambda: None,
            on_leader_change=lambda leader: None,
            on_fatal=_fail,
        )
        self.publisher.subscribe(self.replicas)
        self.controller = FakeController(self)
        self.network.services[CONTROLLER] = self.controller.service()
        client = ControllerClient(
            cluster_id="cluster",
            connectors={CONTROLLER_LISTENER: self.network},
            clock=self.clock,
            endpoint={100: NamedAddress(CONTROLLER_LISTENER, *CONTROLLER)}.get,
            leader=lambda: self.leader,
        )
        self.producer_ids = ProducerIds(
            broker_id=ME, broker_epoch=lambda: 1, allocate=client.allocate_producer_ids
        )
        self._make_coordinators()
        metrics = BrokerMetrics(self.registry)
        metrics.read_fetches(lambda: self.replicas.fetch.waiting)
        metrics.read_groups(self.groups)
        metrics.read_transactions(self.transactions, self.markers)
        metrics.read_lags(self.groups, self.replicas.high_watermarks, 2)
        self.quotas = BrokerQuotas(self.config, self.authorizer, self.clock, self.registry)
        self.publisher.subscribe(self.quotas)
        self.telemetry = ClientTelemetry.of(
            self.config, self.clock, random.Random(1), self.registry, self.network
        )
        if self.telemetry is not None:
            self.publisher.subscribe(self.telemetry)
        self.context = self._make_context(client, metrics)
        self.apis = KafkaApis(self.context)
        self.apis.open()
        self._offset = 0
        for broker_id in (ME, 2, 3):
            self.register(broker_id)

    def _make_coordinators(self) -> None:
        self.groups = GroupCoordinators(
            self.config, self.replicas, clock=self.clock, rng=random.Random(1)
        )
        self.publisher.subscribe(self.groups)
        self.transactions = TransactionCoordinators(
            self.config, self.replicas, clock=self.clock, image=lambda: self.publisher.image
        )
        self.nodes = FakeNodes()
        self.markers = MarkerSender(
            self.transactions,
            self.replicas.markers,
            self.nodes,
            broker_id=ME,
            image=lambda: self.publisher.image,
            clock=self.clock,
        )
        self.publisher.subscribe(self.transactions)
        self.publisher.subscribe(self.markers)
        self.sharing = Sharing(
            self.config,
            self.replicas,
            self.replicas,
            self.nodes,
            image=lambda: self.publisher.image,
            clock=self.clock,
            answer_share=lambda: 1 << 20,
            letter_nodes=self.nodes,
            new_producer_id=self.producer_ids.take,
            make_letter_topic=lambda name: make_letter_topic(self.context, name),
        )
        self.publisher.subscribe(self.sharing)

    def _make_context(self, client: ControllerClient, metrics: BrokerMetrics) -> BrokerContext:
        return BrokerContext(
            config=self.config,
            cluster_id="the-cluster",
            clock=self.clock,
            image=lambda: self.publisher.image,
            wait_until=self.publisher.wait_until,
            replicas=self.replicas,
            sessions=FetchSessions(fake_rng()),
            controller=client,
            producer_ids=self.producer_ids,
            groups=self.groups,
            transactions=self.transactions,
            sharing=self.sharing,
            metrics=metrics,
            lease_valid=lambda: self.lease,
            deposed=lambda: self.deposed,
            controller_features=lambda: self.controller_features,
            new_request_id=partial(random.Random(1).randbytes, 16),
            authorizer=self.authorizer,
            metadata_log=self.metadata_log,
            quotas=self.quotas,
            telemetry=self.telemetry,
        )

    def client(self, listener: str = "EXTERNAL", logins: ListenerLogins | None = None) -> Client:
        """``logins``: as if the listener had SASL."""
        return Client(self.apis, listener, logins)

    # ------------------------------------------------------------------ metadata

    def commit(self, *records: pb.MetadataRecord) -> None:
        batch = CommittedBatch(self._offset, 1, 1000, tuple(encode(record) for record in records))
        self._offset += len(records)
        self.publisher.on_commit([batch], self._offset)

    def finalize(self, feature: str, level: int) -> None:
        record = pb.FeatureLevelRecord(name=feature, level=level)
        self.commit(pb.MetadataRecord(feature_level=record))

    def register(self, broker_id: int, *, fenced: bool = False, is_old: bool = False) -> None:
        """``is_old``: a broker of a version that does not report features."""
        host = f"b{broker_id}"
        listeners = (
            ("INTERNAL", f"{host}.internal", 9092, PLAINTEXT),
            ("EXTERNAL", f"{host}.external", 19092, PLAINTEXT),
            ("INTERNAL", f"{host}.internal", 9192, GRPC),
            ("EXTERNAL", f"{host}.external", 19192, GRPC),
        )
        epoch = self._offset
        self.commit(
            pb.MetadataRecord(
                register_broker=pb.RegisterBrokerRecord(
                    broker_id=broker_id,
                    incarnation_id=INCARNATION if broker_id == ME else bytes([broker_id]) * 16,
                    broker_epoch=epoch,
                    endpoints=[
                        pb.Endpoint(listener=name, host=host_, port=port, protocol=protocol)
                        for name, host_, port, protocol in listeners
                    ],
                    rack=f"r{broker_id}",
                    features=[] if is_old else supported_ranges(),
                )
            ),
            pb.MetadataRecord(
                broker_state=pb.BrokerStateRecord(
                    broker_id=broker_id, broker_epoch=epoch, fenced=fenced
                )
            ),
        )

    def unregister(self, broker_id: int) -> None:
        registration = self.publisher.image.broker(broker_id)
        assert registration is not None
        record = pb.UnregisterBrokerRecord(
            broker_id=broker_id, broker_epoch=registration.broker_epoch
        )
        self.commit(pb.MetadataRecord(unregister_broker=record))

    def add_topic(
        self,
        name: str,
        replicas: list[list[int]],
        *,
        leaders: list[int] | None = None,
        leader_epoch: int = 5,
    ) -> bytes:
        """Add a topic whose partitions have these replicas. By default the first replica leads."""
        wanted = topic_id(name)
        self.commit(
            pb.MetadataRecord(topic=pb.TopicRecord(name=name, topic_id=wanted)),
            *(
                pb.MetadataRecord(
                    partition=pb.PartitionRecord(
                        topic_id=wanted,
                        partition=number,
                        replicas=each,
                        isr=each,
                        leader=each[0] if leaders is None else leaders[number],
                        leader_epoch=leader_epoch,
                    )
                )
                for number, each in enumerate(replicas)
            ),
        )
        return wanted

    def change_leader(self, name: str, partition: int, *, leader: int) -> None:
        """The leader epoch rises by one."""
        change = pb.PartitionChangeRecord(
            topic_id=topic_id(name), partition=partition, leader=leader
        )
        self.commit(pb.MetadataRecord(partition_change=change))

    def add_acl(self, acl: Acl) -> None:
        """A change of the ACLs. What is allowed is up to ``authorizer``."""
        self.commit(record_of(acl, self._offset.to_bytes(16)))

    def remove_topic(self, name: str) -> None:
        self.commit(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(name))))


def _fail(error: BaseException) -> None:
    raise AssertionError("the metadata did not fit") from error


def aim(value: Any, topic: str, id_of_topic: bytes) -> None:
    """Change parts of a random request to an existing topic, so that handlers accept it.

    Every second element of a list is changed. Without an id, ids stay as they are. Waits become
    short.
    """
    if isinstance(value, list):
        for each in value[::2]:
            aim(each, topic, id_of_topic)
    for name in getattr(value, "__slots__", ()):
        held = getattr(value, name)
        if name in ("topic", "name") and isinstance(held, str):
            setattr(value, name, topic)
        elif name == "topic_id" and id_of_topic:
            setattr(value, name, id_of_topic)
        elif name in ("partition", "index", "partition_index"):
            setattr(value, name, held % 4 - 1)
        elif name in ("timeout_ms", "max_wait_ms"):
            setattr(value, name, min(held, 1000))
        else:
            aim(held, topic, id_of_topic)
