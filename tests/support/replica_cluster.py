"""Replica managers of several brokers over the simulated network, under a toy controller."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from broker.api import fetch as fetch_api
from broker.api.handler import RequestContext
from broker.api.topic_views import TopicViews
from broker.membership.directories import Unopened
from broker.membership.room import Rooms
from broker.metrics import BrokerMetrics
from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.fetch_session import FetchSessions
from broker.replication.manager import ReplicaManager
from broker.replication.replica import Replica
from broker.replication.types import (
    FetchEntry,
    FetchResult,
    Marker,
    ProduceEntry,
    ProduceResult,
    TransactionalWrite,
)
from broker.service.context import BrokerContext
from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.partitions import PartitionState
from runtime.authorization.authorizer import AllowAll
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from runtime.config.node import from_settings
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.requests import PendingRequest, Queue, Timing
from runtime.metrics.registry import MetricsRegistry
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.ids import PartitionId, encode_uuid
from stele.wire import kafka
from stele.wire.kafka import ApiKey
from stele.wire.kafka.messages.fetch import FetchRequest
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirectoriesRequest,
    AssignReplicasToDirectoriesResponse,
)
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch, Done
from world.tracing import Tracer

T = TypeVar("T")

TOPIC = "orders"
TOPIC_ID = b"orders-topic-id!"
P0 = PartitionId(TOPIC_ID, 0)
PORT = 9092
LISTENER = "INTERNAL"
DIRECTORY = "/data"
OTHER_DIRECTORY = "/other"


class Node:
    """One broker: its process, replica manager, and the image it has applied."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.process: Process
        self.manager: ReplicaManager
        self.sessions: FetchSessions
        self.directory: LogDirectory  # the first one
        self.directories: list[LogDirectory] = []
        self.unopened: list[Unopened] = []  # directories that cannot be opened at the next start
        self.image: MetadataImage = EMPTY
        self.epoch = -1
        self.lease = True
        self.tracer: Tracer | None = None  # from its next start on
        self.deposed = False  # leads nothing, though its image may say that it does
        self.failed_directories: list[str] = []
        self.corrupt: list[PartitionId] = []  # what had to be reported, each time there was more
        self.subscribers: list[Callable[[MetadataDelta, MetadataImage], None]] = []

    def directory_id(self, path: str) -> str:
        return encode_uuid(f"{self.name}{path}".encode().ljust(16, b"."))

    def replica(self, partition: PartitionId = P0) -> Replica:
        replica = self.manager.get(partition)
        assert replica is not None, partition
        return replica

    def holds(self, partition: PartitionId = P0) -> bool:
        """Whether it has applied the metadata that give it a replica of the partition."""
        return self.manager.get(partition) is not None

    @property
    def disk(self) -> Any:
        return self.process.machine.disk

    # ------------------------------------------------------------------------- life

    async def start(self) -> None:
        self.process = self.cluster.simulation.process(self.name)
        await self.process.run(self._start())

    async def _start(self) -> None:
        world = replace(self.process.world, tracer=self.tracer)
        lost = {each.path for each in self.unopened}
        paths = [path for path in self.cluster.directories if path not in lost]
        self.directories = [self._open(path) for path in paths]
        self.directory = self.directories[0]
        self.manager = ReplicaManager(
            broker_id=self.broker_id,
            world=world,
            directories=self.directories,
            unopened=self.unopened,
            config=self.cluster.config,
            metadata=self,
            broker_epoch=lambda: self.epoch,
            alter_partition=self._alter_partition,
            assign_replicas=self._assign_replicas,
            lease_valid=lambda: self.lease,
            deposed=lambda: self.deposed,
            directory_failed=self.failed_directories.append,
            corruption_found=lambda: self.corrupt.extend(self.manager.reports.corrupt()),
            rooms=Rooms(world.disk, world.clock, self.cluster.directories),
            answer_share=lambda: sys.maxsize,
        )
        self.manager.start()
        self.sessions = FetchSessions(world.rng)
        metrics = BrokerMetrics(MetricsRegistry())
        context = SimpleNamespace(
            image=lambda: self.image,
            sessions=self.sessions,
            replicas=self.manager,
            metrics=metrics,
            authorizer=AllowAll(),
        )
        dispatch = _FetchOnly(cast(BrokerContext, context))
        await world.network.listen(
            Address(self.name, PORT),
            lambda: KafkaServerProtocol(
                dispatch,
                max_request_bytes=1 << 20,
                listener_name=LISTENER,
                on_close=self.sessions.forget,
            ),
        )

    def _open(self, path: str) -> LogDirectory:
        world = self.process.world
        if not world.disk.exists(f"{path}/meta.properties"):
            properties = MetaProperties("cluster", self.broker_id, self.directory_id(path))
            format_directory(world.disk, path, properties)
        return LogDirectory.open(world.disk, path, world.clock, LogConfig(), cluster_id="cluster")

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await asyncio.sleep(0.002)
        return self.cluster.alter_partition(request)

    async def _assign_replicas(
        self, request: AssignReplicasToDirectoriesRequest
    ) -> AssignReplicasToDirectoriesResponse:
        await asyncio.sleep(0.002)
        return self.cluster.assign_replicas(request)

    async def stop(self) -> None:
        await self.process.run(self.manager.stop())
        self.cluster.simulation.kill(self.process)

    def kill(self) -> None:
        self.cluster.simulation.kill(self.process)

    def learn(self, records: Sequence[tuple[int, pb.MetadataRecord]]) -> None:
        """Apply metadata, in the broker's own process."""
        if not self.process.dead:
            self.process.loop.call_soon(self._learn, list(records))

    def _learn(self, records: Sequence[tuple[int, pb.MetadataRecord]]) -> None:
        delta = MetadataDelta(self.image)
        for offset, record in records:
            if offset > self.image.offset:
                delta.replay(offset, record)
        self.image = delta.apply()
        for _ in self.manager.apply(delta, self.image):
            pass  # in one turn
        for apply in self.subscribers:
            apply(delta, self.image)

    # --------------------------------------------------------------------- requests

    async def do(self, action: Callable[[Callable[[T], None]], object]) -> T:
        """Call a function that answers through a callback, in the broker's process."""

        async def inside() -> T:
            answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            action(answer.set_result)
            return await answer

        return await self.process.run(inside())

    async def produce(
        self,
        batch: bytearray | None = None,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        partition: PartitionId = P0,
        transaction: TransactionalWrite | None = None,
    ) -> ProduceResult:
        entry = ProduceEntry(partition, make_batch() if batch is None else batch, transaction)
        results: list[ProduceResult] = await self.do(
            lambda done: self.manager.produce.begin([entry], acks, timeout_ms, done)
        )
        return results[0]

    async def fetch(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        epoch: int = -1,
        last_epoch: int = -1,
        partition: PartitionId = P0,
        replica_id: int = -1,
        replica_epoch: int = -1,
        read_committed: bool = False,
        any_replica: bool = False,
    ) -> FetchResult:
        entry = FetchEntry(
            partition,
            offset,
            1 << 20,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )

        def begin(done: Done) -> None:
            asked = AskedFetch(
                [entry],
                done,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                replica_id=replica_id,
                replica_epoch=replica_epoch,
                read_committed=read_committed,
                any_replica=any_replica,
            )
            self.manager.fetch.begin(asked)

        results = await self.do(begin)
        return results[0]

    async def mark(self, *markers: Marker) -> list[ErrorCode]:
        """End transactions, as their coordinator does."""
        return await self.do(lambda done: self.manager.markers.write(markers, done))

    async def delete(
        self, offset: int, *, timeout_ms: int = 30_000, partition: PartitionId = P0
    ) -> DeletionResult:
        """Delete records of one partition."""
        asked = [Deletion(partition, offset)]
        (result,) = await self.process.run(self.manager.deletion.delete(asked, timeout_ms))
        return result

    def starts(self, partition: PartitionId = P0) -> tuple[int, int]:
        """The start of the replica's log, and its start on disk."""
        log = self.replica(partition).log
        return log.start_offset, self.directory.durable_start_offset(log)


class _FetchOnly:
    """The server's half of a data plane that serves nothing but Fetch."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def serves(self, api_key: int, api_version: int) -> bool:
        return api_key == ApiKey.FETCH

    def prepare(
        self, request: PendingRequest, message: kafka.Struct
    ) -> Generator[None, None, kafka.Struct]:
        yield from ()
        return message

    def takes_turns(self, header: kafka.RequestHeader, message: kafka.Struct) -> bool:
        return False

    def handle(self, request: PendingRequest, message: kafka.Struct) -> None:
        connection, header = request.connection, request.header
        assert isinstance(connection, KafkaServerProtocol)
        caller = Caller(ANONYMOUS, header.client_id, LISTENER, Plane.KAFKA, connection.address)
        request_context = RequestContext(header.api_version, caller, TopicViews(), connection)
        assert isinstance(message, FetchRequest)
        fetch_api.handle(self._context, request_context, message, request.answer)

    @property
    def timing(self) -> Timing:
        return self

    @property
    def turn_clock(self) -> None:
        return None

    def answered(self, request: PendingRequest, message: kafka.Struct | None) -> None:
        pass

    def waited(self, header: kafka.RequestHeader, queue: Queue, waited_s: float) -> None:
        pass


class ReplicaCluster:
    """As many brokers as ``brokers``, from ``first_id`` on, and a controller that is always
    there."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        first_id: int = 1,
        seed: int = 1,
        directories: Sequence[str] = (DIRECTORY,),
        **settings: object,
    ) -> None:
        """``directories``: of each broker. ``settings``: configuration of all nodes, by key with
        underscores for dots."""
        self.simulation = Simulation(seed)
        self.directories = tuple(directories)
        self.config = from_settings(
            {
                "node.id": "1",
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "controller:9093",
                "listeners": f"{LISTENER}://broker:9092",
                "grpc.listeners": f"{LISTENER}://broker:9192",
                "replica.lag.time.max.ms": "10000",
                **{name.replace("_", "."): str(value) for name, value in settings.items()},
            }
        )
        broker_ids = range(first_id, first_id + brokers)
        self.nodes = {broker_id: Node(self, broker_id) for broker_id in broker_ids}
        self.image: MetadataImage = EMPTY
        self.records: list[tuple[int, pb.MetadataRecord]] = []
        self.proposals: list[tuple[PartitionId, tuple[int, ...]]] = []
        self.refuse: ErrorCode | None = None  # the error for every AlterPartition
        # Every reported broker id, directory id and replica.
        self.assignments: list[tuple[int, bytes, PartitionId]] = []

    def __getitem__(self, broker_id: int) -> Node:
        return self.nodes[broker_id]

    def state(self, partition: PartitionId = P0) -> PartitionState:
        state = self.image.partition(*partition)
        assert state is not None
        return state

    def run(self, scenario: Callable[[ReplicaCluster], Any]) -> None:
        """Start the brokers, run a scenario on virtual time, and clear up."""

        async def main() -> None:
            for node in self.nodes.values():
                await node.start()
                self.register(node)
            await scenario(self)

        self.simulation.run(main())

    # ---------------------------------------------------------------------- metadata

    def commit(self, *records: pb.MetadataRecord, to: Sequence[int] | None = None) -> None:
        """Commit one decision, and tell all brokers or only some."""
        delta = MetadataDelta(self.image)
        batch = []
        for number, record in enumerate(records):
            offset = self.image.offset + 1 + number
            delta.replay(offset, record)
            batch.append((offset, record))
        self.image = delta.apply()
        self.records += batch
        for node in self.nodes.values():
            if to is None or node.broker_id in to:
                self.tell(node)

    def tell(self, node: Node) -> None:
        """Tell the broker everything that it does not know yet, once it is registered."""
        if node.epoch >= 0:
            node.learn(self.records)

    def register(self, node: Node) -> None:
        """Register a new incarnation. Its partitions get another leader or a higher epoch. Then it
        is unfenced."""
        epoch = self.image.offset + 1
        endpoint = pb.Endpoint(listener=LISTENER, host=node.name, port=PORT, protocol="PLAINTEXT")
        registration = pb.RegisterBrokerRecord(
            broker_id=node.broker_id,
            incarnation_id=epoch.to_bytes(16, "big"),
            broker_epoch=epoch,
            endpoints=[endpoint],
        )
        node.epoch = epoch
        node.image = EMPTY
        leaving = self._leave(node.broker_id)
        self.commit(pb.MetadataRecord(register_broker=registration), *leaving)
        self.unfence(node.broker_id)

    def fence(self, broker_id: int, *, tell: bool = True) -> None:
        """The broker's session is over: it leaves every ISR, and others lead."""
        node = self.nodes[broker_id]
        others = [other for other in self.nodes if tell or other != broker_id]
        self.commit(_broker_state(node, fenced=True), *self._leave(broker_id), to=others)

    def unfence(self, broker_id: int) -> None:
        """The broker may lead again, and leads partitions for which it is the last one."""
        records = [_broker_state(self.nodes[broker_id], fenced=False)]
        for topic, number, state in self.image.sorted_partitions():
            if state.leader == -1 and broker_id in state.isr:
                change = pb.PartitionChangeRecord(topic_id=topic.topic_id, partition=number)
                change.leader = broker_id
                records.append(pb.MetadataRecord(partition_change=change))
        self.commit(*records)

    def _leave(self, broker_id: int) -> list[pb.MetadataRecord]:
        """The records by which a broker leaves every ISR with another member, and a live member or
        nobody leads instead."""
        records = []
        for topic, number, state in self.image.sorted_partitions():
            if broker_id not in state.isr:
                continue
            change = pb.PartitionChangeRecord(topic_id=topic.topic_id, partition=number)
            isr = [member for member in state.isr if member != broker_id] or [broker_id]
            change.isr.ids.extend(isr)
            if state.leader == broker_id:
                live = [member for member in isr if member != broker_id]
                live = [member for member in live if self.image.is_active(member)]
                change.leader = live[0] if live else -1
            records.append(pb.MetadataRecord(partition_change=change))
        return records

    def create_topic(
        self,
        *replicas: Sequence[int],
        configs: dict[str, str] | None = None,
        min_insync: int = 2,
        topic_id: bytes = TOPIC_ID,
    ) -> None:
        """Create ``orders`` with one partition for each list of replicas, the first of which
        leads."""
        records = [
            pb.MetadataRecord(topic=pb.TopicRecord(name=TOPIC, topic_id=topic_id)),
            *(
                pb.MetadataRecord(
                    config=pb.ConfigRecord(
                        resource_type=pb.ConfigResourceType.TOPIC,
                        resource_name=TOPIC,
                        name=name,
                        value=value,
                    )
                )
                for name, value in sorted(
                    {"min.insync.replicas": str(min_insync), **(configs or {})}.items()
                )
            ),
        ]
        for number, assigned in enumerate(replicas):
            record = pb.PartitionRecord(
                topic_id=topic_id,
                partition=number,
                replicas=assigned,
                isr=assigned,
                leader=assigned[0],
            )
            records.append(pb.MetadataRecord(partition=record))
        self.commit(*records)

    def change(
        self,
        partition: PartitionId = P0,
        *,
        leader: int | None = None,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        to: Sequence[int] | None = None,
        unclean: bool = False,
    ) -> None:
        record = pb.PartitionChangeRecord(
            topic_id=partition.topic_id, partition=partition.partition, unclean=unclean
        )
        if leader is not None:
            record.leader = leader
        if isr is not None:
            record.isr.ids.extend(isr)
        if replicas is not None:
            record.replicas.ids.extend(replicas)
        self.commit(pb.MetadataRecord(partition_change=record), to=to)

    def delete_topic(self) -> None:
        self.commit(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=TOPIC_ID)))

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Decide by compare-and-set, as the controller does."""
        response = AlterPartitionResponse()
        registration = self.image.broker(request.broker_id)
        if registration is None or registration.broker_epoch != request.broker_epoch:
            response.error = ErrorCode.STALE_BROKER_EPOCH
            return response
        for asked in request.partitions:
            answer = response.partitions.add(topic_id=asked.topic_id, partition=asked.partition)
            partition = PartitionId(asked.topic_id, asked.partition)
            isr = tuple(member.broker_id for member in asked.isr)
            self.proposals.append((partition, isr))
            answer.error = self._verdict(asked)
            if answer.error == ErrorCode.NONE:
                self.change(partition, isr=isr)
                state = self.state(partition)
                answer.leader, answer.leader_epoch = state.leader, state.leader_epoch
                answer.partition_epoch = state.partition_epoch
                answer.isr.extend(state.isr)
        return response

    def assign_replicas(
        self, request: AssignReplicasToDirectoriesRequest
    ) -> AssignReplicasToDirectoriesResponse:
        """Believe every broker."""
        for directory in request.directories:
            for each in directory.replicas:
                key = PartitionId(each.topic_id, each.partition)
                self.assignments.append((request.broker_id, directory.directory_id, key))
                told = self.state(key).directories_with(request.broker_id, directory.directory_id)
                record = pb.PartitionChangeRecord(topic_id=key.topic_id, partition=key.partition)
                record.directories.ids.extend(told)
                self.commit(pb.MetadataRecord(partition_change=record))
        return AssignReplicasToDirectoriesResponse()

    def _verdict(self, asked: AlterPartitionRequest.Partition) -> ErrorCode:
        state = self.image.partition(asked.topic_id, asked.partition)
        if self.refuse is not None:
            return self.refuse
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if asked.leader_epoch != state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked.partition_epoch != state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in asked.isr:
            registration = self.image.broker(member.broker_id)
            known = registration is not None and registration.active
            if not known or member.broker_epoch != registration.broker_epoch:  # type: ignore[union-attr]
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE


def _broker_state(node: Node, *, fenced: bool) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        broker_state=pb.BrokerStateRecord(
            broker_id=node.broker_id, broker_epoch=node.epoch, fenced=fenced
        )
    )
