"""A broker, put together: log directories, replicas, control plane, listeners; its life and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from broker.api import KafkaApis
from broker.api.logins import logins_of, sessions_of
from broker.api.server import KafkaServer, endpoints
from broker.connections.open_connections import OpenConnections
from broker.coordinator.groups import GroupCoordinators
from broker.coordinator.markers import MarkerSender
from broker.coordinator.node_requests import NodeConnections
from broker.coordinator.transactions import TransactionCoordinators
from broker.coordinator.verification import Verification
from broker.gateway.gateway import Gateway
from broker.gateway.own_broker import OwnBroker
from broker.grpc.server import DRAIN_S, GrpcServer
from broker.membership.certificates import CertificateChanges
from broker.membership.controller_client import ControllerClient
from broker.membership.deposed import VisibleImage
from broker.membership.directories import BrokerDirectories
from broker.membership.identity import BrokerIdentity
from broker.membership.lifecycle import BrokerLifecycle, BrokerState, OwnState, Timing
from broker.membership.publisher import MetadataPublisher
from broker.membership.room import Rooms
from broker.metrics import BrokerMetrics
from broker.replication.fetch_session import FetchSessions
from broker.replication.manager import ReplicaManager
from broker.service.context import BrokerContext, MetadataLog
from broker.service.letter_topics import make_letter_topic
from broker.service.producer_ids import ProducerIds
from broker.service.quotas import BrokerQuotas
from broker.service.telemetry import ClientTelemetry
from broker.service.telemetry_export import security_of
from broker.sharing.sharing import Sharing
from metadata.directories import REPLICA_DIRECTORIES
from metadata.features import metadata_version
from metadata.image import MetadataImage
from metadata.outcomes import REQUEST_ID_BYTES
from raft.api import LeaderAndEpoch, MetadataQuorum, QuorumListener
from runtime.authorization.authorizer import Authorizer
from runtime.config.addresses import NamedAddress
from runtime.config.node import NodeConfig
from runtime.kafka.turns import Turns
from runtime.metrics.health import Check
from runtime.metrics.registry import MetricsRegistry
from runtime.orderly_end import OrderlyEnd
from runtime.tls.listeners import TlsListeners
from stele.config import ClientWorld
from stele.errors import ApiError
from storage.directory import LogDirectory
from world.world import World

logger = logging.getLogger(__name__)

_CONTROLLED_SHUTDOWN_S = 10.0
"""How long stopping waits for the controller to move this broker's leaders elsewhere."""

_NODE_REQUEST_S = 10.0
"""How long a coordinator of this broker waits for an answer of another broker."""


class ObservedQuorum(MetadataQuorum, MetadataLog, Protocol):
    """What a broker needs of ``runtime.quorum.quorum.Quorum``."""

    def add_listener(self, listener: QuorumListener) -> None: ...

    def endpoint(self, node_id: int) -> NamedAddress | None:
        """The listener by which this node reaches a controller; None if it is not known here."""
        ...


class Broker:
    """One broker of the cluster.

    Life: make it, ``claim``, start the quorum, ``start``, ``wait_ready``; in the end ``stop`` it,
    whatever of this was done, then the quorum. ``on_fatal`` is called once, on the event loop, with
    why the broker can go on no more; the node is then to be stopped.
    """

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        quorum: ObservedQuorum,
        *,
        cluster_id: str,
        registry: MetricsRegistry,
        authorizer: Authorizer,
        tls: TlsListeners,
        on_fatal: Callable[[BaseException], None],
        is_safe_to_restart: Callable[[], bool] = lambda: False,
    ) -> None:
        """``quorum`` is an observer, or this node's voter where it is a controller too; it is
        not started yet. ``cluster_id`` is the one the log directories were formatted for.
        ``is_safe_to_restart`` is what gRPC's health service tells of the node.
        """
        self._config = config
        self._world = world
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._authorizer = authorizer
        self._on_fatal = on_fatal
        self._is_safe_to_restart = is_safe_to_restart
        self._incarnation_id = world.rng.randbytes(16)
        self._metrics = BrokerMetrics(registry)
        self._tls = tls
        self._certificates = CertificateChanges(config.node_id, config.security, tls)
        self._quotas = BrokerQuotas(config, authorizer, world.clock, registry)
        self._telemetry = ClientTelemetry.of(
            config, world.clock, world.rng, registry, world.network.secured(security_of(config))
        )
        self._kafka = KafkaServer(
            config, world.network, registry, tls, self._quotas.addresses, world.clock
        )
        self._grpc = GrpcServer(world, tls)
        self._directories = BrokerDirectories(config, world, cluster_id)
        self._rooms = Rooms(world.disk, world.clock, [*config.log_dirs, config.metadata_log_dir])
        self._serving = False
        self._becoming_ready: asyncio.Task[None] | None = None
        self._controller = _controller_of(config, world, cluster_id, quorum)
        self._publisher = MetadataPublisher(
            broker_id=config.node_id,
            incarnation_id=self._incarnation_id,
            on_published=self._published,
            on_leader_change=self._leader_changed,
            on_fatal=on_fatal,
        )
        sessions = sessions_of(config, self._publisher, world)
        self._publisher.subscribe(sessions)
        self._logins = logins_of(config, self._publisher, world, registry, sessions)
        self._access = self.image.waited_for  # as applied last
        # Made by `start`.
        self._replicas: ReplicaManager
        self._groups: GroupCoordinators
        self._transactions: TransactionCoordinators
        self._sharing: Sharing
        self._markers: MarkerSender
        self._verification: Verification
        self._lifecycle: BrokerLifecycle
        self._context: BrokerContext
        self._gateway: Gateway
        self._apis: KafkaApis

    # ------------------------------------------------------------------ what others ask

    @property
    def kafka_ports(self) -> dict[str, int]:
        """The bound Kafka port of each listener, by its name."""
        return self._kafka.ports

    @property
    def grpc_ports(self) -> dict[str, int]:
        """The bound gRPC port of each listener, by its name."""
        return self._grpc.ports

    @property
    def incarnation_id(self) -> bytes:
        return self._incarnation_id

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    def snapshot_records(self) -> Iterable[bytes] | None:
        """The records of a snapshot of the metadata; None when there is none to be had."""
        return self._publisher.snapshot_records()

    @property
    def fetch_sessions(self) -> FetchSessions:
        """To be looked at only."""
        return self._context.sessions

    @property
    def connections(self) -> OpenConnections:
        """To be looked at only."""
        return self._kafka.connections

    @property
    def turns(self) -> Turns:
        """To be looked at only."""
        return self._kafka.turns

    @property
    def replicas(self) -> ReplicaManager:
        return self._replicas

    @property
    def groups(self) -> GroupCoordinators:
        """To be looked at only."""
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinators:
        """To be looked at only."""
        return self._transactions

    @property
    def sharing(self) -> Sharing:
        """To be looked at only."""
        return self._sharing

    @property
    def directories(self) -> Sequence[LogDirectory]:
        return self._directories.opened

    @property
    def has_begun(self) -> bool:
        """Whether its logs are open and it registers, or did."""
        return self._becoming_ready is not None

    @property
    def state(self) -> BrokerState:
        return self._lifecycle.state

    @property
    def lease_valid(self) -> bool:
        """As ``BrokerLifecycle.lease_valid``."""
        return self._lifecycle.lease_valid()

    @property
    def heartbeats_to(self) -> LeaderAndEpoch | None:
        """As ``BrokerLifecycle.followed``."""
        return self._lifecycle.followed

    @property
    def acknowledged_ago_s(self) -> float | None:
        """As ``BrokerLifecycle.acknowledged_ago_s``."""
        return self._lifecycle.acknowledged_ago_s

    @property
    def deposed(self) -> bool:
        """As ``BrokerLifecycle.deposed``."""
        return self._lifecycle.deposed()

    @property
    def serving(self) -> bool:
        """Whether it answers clients: ready, and not fenced since."""
        return self._serving and not self._lifecycle.fenced

    def health(self) -> list[Check]:
        """What readiness goes by."""
        if self._becoming_ready is None:
            opening = [each.progress for each in self.directories if not each.is_loaded]
            return [Check("broker", False, (opening or ["its ports are being bound"])[0])]
        lifecycle = self._lifecycle
        offline = [each.path for each in self.directories if each.offline is not None]
        offline += [each.path for each in self._directories.unopened]
        full = self._rooms.full
        return [
            Check("broker", self.serving, f"the broker is {lifecycle.state.value}"),
            Check("heartbeat", lifecycle.lease_valid(), self._heartbeat_reason()),
            Check(
                "directories",
                not offline,
                f"offline: {', '.join(offline)}" if offline else "all log directories are online",
            ),
            Check("room", not full, f"full: {', '.join(full)}" if full else "the disks have room"),
        ]

    def _heartbeat_reason(self) -> str:
        ago_s = self._lifecycle.acknowledged_ago_s
        if ago_s is None:
            return "no heartbeat has been acknowledged"
        timeout_s = self._config.broker_session_timeout_ms / 1000
        return f"acknowledged of {ago_s:.1f} s ago; the session lasts {timeout_s:g} s"

    # ------------------------------------------------------------------ start

    def claim(self) -> None:
        """Lock the log directories, and listen to the quorum, which may start then.

        Raises SteleError with one line for a person: a directory of another cluster, or in use, or
        none that can be used.
        """
        self._directories.claim()
        self._quorum.add_listener(self._publisher)

    async def start(self) -> None:
        """Open the logs, which may take long, bind every port, and begin to join the cluster.

        What the quorum tells meanwhile is held back by the publisher until the registration.
        Raises SteleError with one line for a person: a disk that fails, a port in use. ``stop``
        gives back what was opened.
        """
        await self._directories.load(self._incarnation_id)
        self._assemble()
        await self._grpc.bind(
            self._context,
            self._gateway,
            self._lifecycle.service(),
            self._logins,
            is_serving=lambda: self.serving and self._lifecycle.lease_valid(),
            is_safe_to_restart=self._is_safe_to_restart,
        )
        await self._kafka.bind(self._apis, self._logins)
        self._replicas.start()
        self._lifecycle.start()
        self._becoming_ready = asyncio.get_running_loop().create_task(
            self._become_ready(), name=f"broker-{self._config.node_id}-start"
        )

    async def wait_ready(self) -> None:
        """Wait until the broker is unfenced and answers. Raises ApiError if it never will be."""
        assert self._becoming_ready is not None, "start comes first"
        await asyncio.shield(self._becoming_ready)

    def _assemble(self) -> None:
        config, world = self._config, self._world
        self._replicas = ReplicaManager(
            broker_id=config.node_id,
            world=world,
            directories=self.directories,
            unopened=self._directories.unopened,
            config=config,
            metadata=self._publisher,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            alter_partition=self._controller.alter_partition,
            assign_replicas=self._controller.assign_replicas,
            lease_valid=self._lease_valid,
            deposed=self._deposed,
            directory_failed=self._directory_failed,
            corruption_found=self._corruption_found,
            answer_share=self._kafka.memory.answer_share,
            rooms=self._rooms,
        )
        self._lifecycle = self._make_lifecycle()
        self._rooms.on_change = self._lifecycle.disks_changed
        self._metrics.read_replicas(self._replicas.measures.counters)
        self._metrics.read_fetches(lambda: self._replicas.fetch.waiting)
        unopened = [each.path for each in self._directories.unopened]
        self._metrics.read_directories(self.directories, unopened, self._rooms)
        self._metrics.read_cleaner(self._replicas.cleaner, self.directories)
        self._metrics.read_moves(self._replicas.moves)
        self._publisher.subscribe(self._replicas)
        hosting = self._replicas.hosting
        self._groups = GroupCoordinators(config, hosting, clock=world.clock, rng=world.rng)
        self._publisher.subscribe(self._groups)
        self._publisher.subscribe(self._certificates)
        self._producer_ids = ProducerIds(
            broker_id=config.node_id,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            allocate=self._controller.allocate_producer_ids,
        )
        self._assemble_transactions_and_sharing()
        self._metrics.read_groups(self._groups)
        self._metrics.read_partitions(self._replicas.measures, config.metrics_offsets_max)
        self._metrics.read_lags(
            self._groups, self._replicas.measures.high_watermarks, config.metrics_offsets_max
        )
        self._context = self._make_context()
        brokers = world.network.secured(self._config.security.to_brokers)
        own = OwnBroker(self._context, brokers, self._kafka.accept)
        self._gateway = Gateway(self._context, ClientWorld(world.clock, own, world.rng))
        self._metrics.read_thin_streams(self._gateway.streams)
        self._apis = KafkaApis(self._context)

    def _make_context(self) -> BrokerContext:
        config, world = self._config, self._world
        self._publisher.subscribe(self._quotas)
        self._publisher.subscribe(self._kafka.connections)
        if self._telemetry is not None:
            self._publisher.subscribe(self._telemetry)
        deposed = self._lifecycle.deposed
        return BrokerContext(
            config=config,
            cluster_id=self._cluster_id,
            clock=world.clock,
            image=VisibleImage(config.node_id, self._publisher, deposed),
            wait_until=self._publisher.wait_until,
            replicas=self._replicas,
            sessions=FetchSessions(world.rng),
            controller=self._controller,
            producer_ids=self._producer_ids,
            groups=self._groups,
            transactions=self._transactions,
            sharing=self._sharing,
            metrics=self._metrics,
            lease_valid=self._lease_valid,
            deposed=deposed,
            controller_features=lambda: self._quorum.controller_features,
            new_request_id=lambda: world.rng.randbytes(REQUEST_ID_BYTES),
            caught_up=lambda: self._serving,
            authorizer=self._authorizer,
            metadata_log=self._quorum,
            quotas=self._quotas,
            why_not_certificates=self._certificates.why_not,
            telemetry=self._telemetry,
            connections=lambda: self._kafka.connections.open,
            encrypted_listeners=self._tls.by_name,
            tracer=world.tracer,
        )

    def _assemble_transactions_and_sharing(self) -> None:
        config, world = self._config, self._world

        def image() -> MetadataImage:
            return self._publisher.image

        self._transactions = TransactionCoordinators(
            config, self._replicas.hosting, clock=world.clock, image=image
        )
        self._markers = MarkerSender(
            self._transactions,
            self._replicas.markers,
            self._node_connections("markers"),
            broker_id=config.node_id,
            image=image,
            clock=world.clock,
        )
        self._verification = Verification(
            self._transactions,
            self._node_connections("verification"),
            broker_id=config.node_id,
            image=image,
            clock=world.clock,
        )
        self._replicas.produce.transactional.verifier = self._verification
        self._metrics.read_transactions(self._transactions, self._markers)
        self._publisher.subscribe(self._transactions)
        self._publisher.subscribe(self._markers)
        self._sharing = Sharing(
            config,
            self._replicas,
            self._replicas.hosting,
            self._node_connections("share-states"),
            image=image,
            clock=world.clock,
            answer_share=self._kafka.memory.answer_share,
            letter_nodes=self._node_connections("dead-letters"),
            new_producer_id=self._producer_ids.take,
            make_letter_topic=lambda name: make_letter_topic(self._context, name),
        )
        self._publisher.subscribe(self._sharing)
        self._metrics.read_sharing(self._sharing.partitions)

    def _node_connections(self, purpose: str) -> NodeConnections:
        config = self._config
        return NodeConnections(
            self._world.network.secured(config.security.to_brokers),
            lambda: self._publisher.image,
            listener=config.inter_broker_listener_name,
            client_id=f"broker-{config.node_id}-{purpose}",
            timeout_s=_NODE_REQUEST_S,
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        config = self._config
        return BrokerLifecycle(
            BrokerIdentity(
                cluster_id=self._cluster_id,
                broker_id=config.node_id,
                incarnation_id=self._incarnation_id,
                rack=config.rack or "",
                histories=self._directories.histories(),
                directories_marked=self._directories.are_marked,
                unopened_directories=len(self._directories.unopened),
                inter_broker_listener=config.inter_broker_listener_name,
            ),
            clock=self._world.clock,
            controller=self._controller,
            timing=Timing(
                heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                session_timeout_ms=config.broker_session_timeout_ms,
                registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            ),
            own=OwnState(
                endpoints=lambda: endpoints(config, self.kafka_ports, self.grpc_ports),
                metadata_offset=lambda: self._publisher.offset,
                corrupt=self._replicas.reports.corrupt,
                unsynced=self._replicas.reports.unsynced,
                held=self._replicas.reports.held,
                room=lambda: self._rooms.room,
                failed_directories=lambda: self._replicas.reports.failed_directories,
            ),
            on_failure=self._on_fatal,
        )

    async def _become_ready(self) -> None:
        try:
            await self._lifecycle.wait_registered()
            await self._directories.forget_earlier(self._incarnation_id)
            await self._lifecycle.wait_unfenced()
        except ApiError:
            return
        self._serving = True
        self._apis.open()
        logger.info("broker %d serves %s", self._config.node_id, self.kafka_ports)

    # ------------------------------------------------------------------ events

    def _published(self) -> None:
        registration = self._publisher.registration
        self._lifecycle.on_metadata(
            unfenced=registration is not None
            and registration.broker_epoch == self._lifecycle.broker_epoch
            and not registration.fenced
        )
        access = self.image.waited_for
        if any(new is not old for new, old in zip(access, self._access, strict=True)):
            self._lifecycle.access_changed()
        self._access = access

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
        if self._becoming_ready is not None:  # else nobody has asked a leader for anything
            self._lifecycle.on_leader_change()

    def _lease_valid(self) -> bool:
        return self._lifecycle.lease_valid()

    def _deposed(self) -> bool:
        return self._lifecycle.deposed()

    def _directory_failed(self, path: str) -> None:
        """Others take over what was in it. If no directory is left, this broker is of no use."""
        if self._replicas.reports.has_online_directory:
            logger.error(
                "broker %d: the log directory %s failed; other brokers take its replicas over, and "
                "those that no other broker has are refused until this one is started again: "
                "replace the disk first, or take the directory out of log.dirs",
                self._config.node_id,
                path,
            )
            if metadata_version(self.image) >= REPLICA_DIRECTORIES:
                self._lifecycle.disks_changed()
            else:
                self._lifecycle.report_replicas()
            return
        logger.error(
            "broker %d: the log directory %s failed; this broker leaves its leaderships to others "
            "until it is started again: free or replace the disk first",
            self._config.node_id,
            path,
        )
        self._lifecycle.fence()

    def _corruption_found(self) -> None:
        self._lifecycle.report_replicas()  # which the replica manager lists when it is asked

    # ------------------------------------------------------------------ stop

    async def stop(self) -> None:
        """Hand leaderships over, stop serving, flush, and leave the mark of a clean shutdown."""
        if self._becoming_ready is None:
            await self._abandon()
            return
        end = OrderlyEnd()
        for step in (
            self._controller.close,
            self._lifecycle.stop,
            self._replicas.stop,
            self._groups.stop,
            self._transactions.stop,
            self._markers.stop,
            self._verification.stop,
            self._sharing.stop,
            self._apis.close,
            self._certificates.stop,
            self._stop_telemetry,
            self._stop_serving,
        ):
            end.push(step)
        if self._config.controlled_shutdown_enable:
            end.push(lambda: self._lifecycle.controlled_shutdown(_CONTROLLED_SHUTDOWN_S))
        end.push(self._gateway.close)  # while there are leaders for what its clients have sent
        await end.run()

    async def _stop_telemetry(self) -> None:
        if self._telemetry is not None:
            await self._telemetry.close()

    async def _stop_serving(self) -> None:
        assert self._becoming_ready is not None
        self._becoming_ready.cancel()
        self._serving = False
        await asyncio.gather(
            asyncio.gather(self._becoming_ready, return_exceptions=True),
            self._kafka.close(),
            self._grpc.close(DRAIN_S),
        )

    async def _abandon(self) -> None:
        """Undo a start that failed, or was broken off, half-way."""
        end = OrderlyEnd()
        end.push(self._controller.close)
        end.push(self._directories.abandon)
        end.push(self._certificates.stop)
        end.push(self._stop_telemetry)
        end.push(lambda: self._grpc.close(0.0))
        end.push(self._kafka.close)
        await end.run()


def _controller_of(
    config: NodeConfig, world: World, cluster_id: str, quorum: ObservedQuorum
) -> ControllerClient:
    return ControllerClient(
        cluster_id=cluster_id,
        connectors={
            listener: world.network.secured(security)
            for listener, security in config.security.to_controllers.items()
        },
        clock=world.clock,
        endpoint=quorum.endpoint,
        leader=lambda: quorum.leader,
    )
