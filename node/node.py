"""The composition root: a controller, a broker or both, put together over one world."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from broker.broker import Broker
from controller.service import ControllerService
from metadata.acls import Acls
from metadata.features import SUPPORTED
from node.directories import read_identity
from node.first_users import read_first_users
from node.restart_safety import RestartSafety, of_controllers
from raft.quorum import FeatureLevels
from runtime.authorization.acl_authorizer import AclAuthorizer
from runtime.authorization.authorizer import AllowAll, Authorizer, Operation
from runtime.authorization.forwarding import ControllerPort
from runtime.authorization.nodes import for_nodes
from runtime.config.addresses import NamedAddress, endpoint_text
from runtime.config.node import ConfigError, NodeConfig
from runtime.config.security import security_table
from runtime.metrics.controller import declare_controller_metrics
from runtime.metrics.health import Check, ServingStatus, is_well
from runtime.metrics.http import MetricsServer
from runtime.metrics.quorum import declare_quorum_metrics
from runtime.metrics.registry import LoopLagProbe, MetricsRegistry
from runtime.orderly_end import OrderlyEnd
from runtime.quorum.config import QuorumConfig, QuorumVoter
from runtime.quorum.messages import parse_request
from runtime.quorum.quorum import Quorum
from runtime.tls.listeners import TlsListeners
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.raft_pb2 import (
    AddVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    VoterChangeResponse,
)
from storage.errors import LogDirectoryError
from storage.formatted import LOCK_FILE
from world.network import Peer, Service, UnaryHandler
from world.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

Features = tuple[FeatureLevels, ...]

SUPPORTED_FEATURES: Features = tuple(SUPPORTED[name] for name in sorted(SUPPORTED))


class _QuorumRequest(NamedTuple):
    """A request to the quorum's leader, and what it is to the authorizer."""

    request: type[Message]
    response: type[Message]
    operation: Operation


# By the names of voters and of administrators.
_OF_THE_QUORUM = {
    "DescribeQuorum": _QuorumRequest(
        DescribeQuorumRequest, DescribeQuorumResponse, Operation.DESCRIBE
    ),
    "TransferLeadership": _QuorumRequest(
        TransferLeadershipRequest, TransferLeadershipResponse, Operation.ALTER
    ),
    "AddVoter": _QuorumRequest(AddVoterRequest, VoterChangeResponse, Operation.ALTER),
    "RemoveVoter": _QuorumRequest(RemoveVoterRequest, VoterChangeResponse, Operation.ALTER),
}


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that a started node has bound. Listeners by their names."""

    kafka: Mapping[str, int] = field(default_factory=dict)
    grpc: Mapping[str, int] = field(default_factory=dict)
    controller: int | None = None  # the first of the controllers' listeners
    metrics: int | None = None


class Node:
    """One node. Life: ``start``, ``wait_ready``, in the end ``stop``.

    ``wait_failed`` ends when the node cannot go on (a broken disk, a log that cannot be followed).
    The caller then stops it.
    """

    def __init__(
        self, config: NodeConfig, world: World, features: Features, authorizer: Authorizer | None
    ) -> None:
        self.config = config
        self._features = features
        self._world = world
        self._authorizer = authorizer or self._configured_authorizer()
        self._knows_acls = False
        self.registry = MetricsRegistry()
        self.quorum: Quorum | None = None  # the three are made by `start`
        self.controller: ControllerService | None = None
        self.broker: Broker | None = None  # once its logs are open and its ports bound
        self._own_broker: Broker | None = None  # also while it opens its logs
        self._restart_safety = RestartSafety(config.node_id, config.raw)
        self._ports = Ports()
        self._undo = OrderlyEnd()
        self._probe = LoopLagProbe(world.clock, self.registry)
        self._tls = TlsListeners(world.network, world.clock, self.registry)
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()

    @property
    def ports(self) -> Ports:
        return self._ports

    @property
    def ready(self) -> bool:
        """Whether each role has begun its work; ``readiness`` looks more closely."""
        if self.quorum is None or self._failure is not None:
            return False
        if self.config.is_broker and (self.broker is None or not self.broker.serving):
            return False
        return self.controller is None or self.quorum.in_touch

    def liveness(self) -> list[Check]:
        """Whether the process works. An answer alone proves that its event loop turns."""
        failure = self._failure
        lag_s = self._probe.last_s
        return [
            Check("event loop", True, f"its latest timer ran {lag_s:.3f} s late"),
            Check("node", failure is None, "it goes on" if failure is None else str(failure)),
        ]

    def readiness(self) -> list[Check]:
        """Whether the node does the work of all its roles, and why not."""
        checks = self.liveness()
        if self.quorum is None:
            return [*checks, Check("start", False, "it has not started")]
        checks.append(self._quorum_check(self.quorum))
        if self.controller is not None:
            checks.append(self._room_check(self.quorum))
        if self.config.is_broker:
            starting = Check("broker", False, "it has not begun to start")
            checks += [starting] if self._own_broker is None else self._own_broker.health()
        return checks

    def safe_to_restart(self) -> list[Check]:
        """Whether nobody would notice if the node went down now, and why not."""
        if self.quorum is None:
            return [Check("start", False, "it has not started")]
        checks = [self._quorum_check(self.quorum)]  # otherwise what it knows may be old
        if self.controller is not None:
            leader_id = self.quorum.leader.leader_id
            heard = self.quorum.heard_voters
            checks.append(of_controllers(self.config.node_id, heard, leader_id))
        if self._own_broker is not None:
            checks.append(self._restart_safety.of_partitions(self._own_broker.image))
        return checks

    def _is_safe_to_restart(self) -> bool:
        return is_well(self.safe_to_restart())

    def _quorum_check(self, quorum: Quorum) -> Check:
        leader = quorum.leader
        if quorum.hears_leader:
            reason = f"controller {leader.leader_id} leads epoch {leader.epoch}"
            return Check("quorum", True, reason)
        timeout_s = self.config.controller_quorum_fetch_timeout_ms / 1000
        return Check("quorum", False, f"no active controller answered for {timeout_s:g} s")

    def _room_check(self, quorum: Quorum) -> Check:
        path = self.config.metadata_log_dir
        try:
            has_room = quorum.has_room
        except OSError as error:
            return Check("metadata room", False, f"{path}: {error.strerror or error}")
        said = "has room" if has_room else "is full"
        return Check("metadata room", has_room, f"{path} {said}")

    async def start(self) -> None:
        """Join the quorum, open the logs, bind every port, join the cluster.

        A controller votes and leads while the logs of its broker are opened. Cancelled meanwhile,
        it leaves the log directories as they were.
        Raises SteleError or OSError, each with one line for a person. Nothing is left open then.
        """
        try:
            await self._start()
        except (Exception, asyncio.CancelledError):
            await self._undo.run()
            raise

    async def wait_ready(self) -> None:
        """Wait until the broker, if there is one, is unfenced and serves."""
        if self.broker is not None:
            await self.broker.wait_ready()

    async def wait_failed(self) -> BaseException:
        """Wait for the error that keeps the node from going on; there may never be one."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    async def stop(self) -> None:
        """End in good order: leaderships handed over, logs flushed and marked clean."""
        await self._undo.run()

    def halt(self) -> None:
        """Decide nothing more: called before a disorderly end, whose signs must decide nothing."""
        if self.controller is not None:
            self.controller.halt()

    # ---------------------------------------------------------------------------- authorization

    def _configured_authorizer(self) -> Authorizer:
        policy = self.config.access_policy
        if policy is None:
            return AllowAll()
        return AclAuthorizer(policy, self._newest_acls, self._world.clock)

    def _newest_acls(self) -> Acls | None:
        """The ACLs of the committed metadata. While a node starts it replays an old part of the
        metadata log, whose ACLs may allow what is forbidden now. A broker has the present ACLs when
        it has its registration, a controller when it becomes active."""
        controller, broker = self.controller, self._own_broker
        if not self._knows_acls:
            self._knows_acls = (controller is not None and controller.active) or (
                broker is not None and broker.image.offset >= 0
            )
            if not self._knows_acls:
                return None
        if controller is not None:
            return controller.image.acls  # a broker of the same node has them later
        return None if broker is None else broker.image.acls

    # ---------------------------------------------------------------------------- starting

    async def _start(self) -> None:
        config, world = self.config, self._world
        identity = read_identity(world.disk, config)
        self._read_certificates()
        self._lock_metadata_directory()
        quorum = self.quorum = Quorum(
            quorum_config(
                config, identity.cluster_id, identity.metadata_directory_id, self._features
            ),
            world,
            config.metadata_log_dir,
            on_fatal=self._fail,
        )
        declare_quorum_metrics(self.registry, quorum)
        # Parts stop in the reverse order of their starts: broker, controller, quorum, ports.
        await self._serve_metrics()
        if config.is_controller:
            await self._serve_controller(quorum, identity.cluster_id)
        self._undo.push(quorum.stop)
        if self.controller is not None:
            self._undo.push(self.controller.stop)
        broker = self._claim_broker(quorum, identity.cluster_id) if config.is_broker else None
        await quorum.start()
        if broker is not None:
            await self._start_broker(broker)
        for line in security_table(config.security, config.is_broker, config.is_controller):
            logger.info("%s", line)
        logger.info("node %d has started as %s", config.node_id, " and ".join(config.roles))

    def _read_certificates(self) -> None:
        config = self.config
        for advertised in config.controller_advertised_listeners:
            of_controllers = config.security.controllers[advertised.name]
            self._tls.add(of_controllers, [advertised.host], is_shown_to_nodes=True)
        for name, security in config.security.listeners.items():
            both = (*config.advertised_listeners, *config.grpc_advertised_listeners)
            self._tls.add(
                security,
                [address.host for address in both if address.name == name],
                is_shown_to_nodes=name == config.inter_broker_listener_name,
            )
        self._tls.start()
        self._undo.push(self._tls.stop)

    def _lock_metadata_directory(self) -> None:
        """Where it is also a broker's log directory, the broker locks it."""
        path = self.config.metadata_log_dir
        if self.config.is_broker and path in self.config.log_dirs:
            return
        try:
            release = self._world.disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirectoryError(
                f"{path} is in use by another process; stop that node first"
            ) from None
        self._undo.push(release)

    async def _serve_metrics(self) -> None:
        address = self.config.metrics_listener
        self._probe.start()
        self._undo.push(self._probe.stop)
        if address is None:
            return
        server = MetricsServer(
            self.registry,
            live=self.liveness,
            ready=self.readiness,
            safe_to_restart=self.safe_to_restart,
        )
        port = await _bound(
            "metrics.listener", server.start(self._world.network, address.host, address.port)
        )
        self._undo.push(server.stop)
        self._ports = Ports(metrics=port)

    async def _serve_controller(self, quorum: Quorum, cluster_id: str) -> None:
        config = self.config
        port = ControllerPort(self._authorizer, cluster_id)
        controller = ControllerService(
            config,
            cluster_id,
            self._world,
            port=port,
            on_fatal=self._fail,
            first_users=read_first_users(self._world.disk, config.metadata_log_dir, cluster_id),
        )
        controller.attach(quorum)
        quorum.add_listener(controller)
        quorum.check_voters_by(controller.voter_refusal)
        quorum.begin_requests_by(controller.begin_request)
        quorum.take_snapshots_of(controller.snapshot_records)
        declare_controller_metrics(self.registry, controller.metrics)
        controller.changes.mutations.declare(self.registry)
        service = controller_port_service(quorum, controller, port)
        bound = {
            each.name: await self._listen_for_nodes(each, service, quorum)
            for each in config.controller_listeners
        }
        first = config.controller_listeners[0].name
        self._ports = Ports(controller=bound[first], metrics=self._ports.metrics)
        self.controller = controller

    async def _listen_for_nodes(
        self, address: NamedAddress, service: Service, quorum: Quorum
    ) -> int:
        """Serve one of the controllers' listeners, and return its port."""
        listener = await _bound(
            "controller.listener",
            self._world.network.serve(
                address.address,
                service.on_listener(address.name),
                health=ServingStatus(
                    ("stele.v1.Admin", "stele.v1.Controller"),
                    ("stele.v1.Raft",),
                    lambda: quorum.in_touch,
                    self._is_safe_to_restart,
                ),
                tls=self._tls.of(address.name),
                max_connections=self.config.connections.listener_max.get(address.name),
            ),
        )
        self._undo.push(listener.close)
        return listener.port

    def _claim_broker(self, quorum: Quorum, cluster_id: str) -> Broker:
        broker = self._own_broker = Broker(
            self.config,
            self._world,
            quorum,
            cluster_id=cluster_id,
            registry=self.registry,
            authorizer=self._authorizer,
            tls=self._tls,
            on_fatal=self._fail,
            is_safe_to_restart=self._is_safe_to_restart,
        )
        self._undo.push(broker.stop)
        broker.claim()
        if self.controller is None:
            quorum.take_snapshots_of(broker.snapshot_records)
        return broker

    async def _start_broker(self, broker: Broker) -> None:
        await broker.start()
        self.broker = broker
        self._ports = Ports(
            kafka=broker.kafka_ports,
            grpc=broker.grpc_ports,
            controller=self._ports.controller,
            metrics=self._ports.metrics,
        )

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()


def build(
    config: NodeConfig,
    world: World,
    *,
    features: Features = SUPPORTED_FEATURES,
    authorizer: Authorizer | None = None,
) -> Node:
    """Put a node together; nothing runs before ``Node.start``.

    ``features``: the levels that it reports to the quorum, where it may vote. ``authorizer``: asked
    in all roles of the node. Without one the node's configuration says how callers are authorized.
    """
    return Node(config, world, features, authorizer)


def quorum_config(
    config: NodeConfig, cluster_id: str, directory_id: bytes, features: Features
) -> QuorumConfig:
    """The quorum's part of a node's configuration."""
    return QuorumConfig(
        cluster_id=cluster_id,
        node_id=config.node_id,
        directory_id=directory_id,
        voters=tuple(QuorumVoter(voter.id, voter.host, voter.port) for voter in config.voters),
        bootstrap=config.bootstrap_controllers,
        is_controller=config.is_controller,
        endpoint=endpoint_text(config.controller_advertised_listeners),
        controllers=config.security.to_controllers,
        features=features,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        snapshot_after_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )


def controller_port_service(
    quorum: Quorum, controller: ControllerService, port: ControllerPort
) -> Service:
    """Everything that is served on a controller's port. The controller itself asks what
    administrators may do (``stele.v1.Admin``)."""
    of_quorum, of_controller = quorum.service(), controller.service()
    service = Service()
    for name, asked in _OF_THE_QUORUM.items():
        of_raft = f"/stele.v1.Raft/{name}"
        handler = of_quorum.unary.pop(of_raft)
        authorized = service.unary[of_raft] = _authorized(handler, asked, controller, port)
        service.unary[f"/stele.v1.Admin/{name}"] = _for_administrators(authorized, asked)
    for name in [name for name in of_controller.unary if name.startswith("/stele.v1.Admin/")]:
        service.unary[name] = of_controller.unary.pop(name)
    for of_nodes in (of_quorum, of_controller):
        service.include(for_nodes(of_nodes, port.authorizer))
    return service


def _authorized(
    handler: UnaryHandler,
    asked: _QuorumRequest,
    controller: ControllerService,
    port: ControllerPort,
) -> UnaryHandler:
    """The quorum's handler behind the authorizer. The authorizer is asked first, on a leader and on
    others: a caller that is refused does not learn who leads. A change is asked for once more, over
    the ACLs that are decided and not committed yet."""

    async def handle(payload: bytes, peer: Peer) -> bytes:
        request: Any = parse_request(asked.request, payload)
        try:
            caller = port.check(request, peer, asked.operation)
            if asked.operation is Operation.ALTER:
                await controller.check_right(caller, asked.operation)
        except ApiError as why:
            refused: Any = asked.response()
            refused.error, refused.leader_id, refused.message = why.code, -1, why.message
            return bytes(refused.SerializeToString())
        return await handler(request.SerializeToString(), peer)

    return handle


def _for_administrators(handler: UnaryHandler, asked: _QuorumRequest) -> UnaryHandler:
    """The quorum's answer in administrators' words: NOT_CONTROLLER sends them to the leader."""

    async def handle(payload: bytes, peer: Peer) -> bytes:
        answer: Any = asked.response.FromString(await handler(payload, peer))
        if answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            answer.error = ErrorCode.NOT_CONTROLLER
        answer.message = explain(answer.error, answer.message)
        return bytes(answer.SerializeToString())

    return handle


async def _bound(key: str, binding: Awaitable[T]) -> T:
    """The result of binding a port; its failure names the key to change."""
    try:
        return await binding
    except OSError as error:
        raise ConfigError(f"{key}: {error.args[-1]}") from error
