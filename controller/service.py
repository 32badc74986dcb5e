"""The controller of a node: gRPC handlers, the quorum's listener, periodic duties."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from controller import (
    cluster,
    configs,
    delegation_tokens,
    directories,
    elections,
    isr,
    producer_ids,
    reassignment,
)
from controller.active import DecisionMaker
from controller.changes import Changes
from controller.describe import describe_cluster, describe_topics
from controller.heartbeats import Heartbeats
from controller.machine import Context, ControllerResult
from controller.metrics import ControllerMetrics
from controller.request_ids import begin
from controller.token_expiry import TokenExpiry
from metadata.features import describe as describe_features
from metadata.image import MetadataImage
from metadata.snapshot import records_of
from raft.api import CommittedBatch, LeaderAndEpoch, MetadataQuorum
from raft.membership import Refusal
from raft.quorum import Voter
from runtime.administration.changes import CHANGES
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    config_resource,
    refusal,
    topic_resource,
)
from runtime.authorization.caller import Caller
from runtime.authorization.forwarding import (
    ControllerPort,
    check_cluster,
)
from runtime.config.node import NodeConfig
from runtime.grpc.requests import ADMIN_BYTES_MAX, NODE_ELEMENTS_MAX, parse_in_slices
from runtime.silence import STALL_S
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1.metadata_pb2 import MetadataRecord
from stele.world import RpcCode, RpcError
from world.network import Peer, Service, UnaryHandler
from world.world import World

logger = logging.getLogger(__name__)


class ControllerService:
    """One controller. Make it, ``attach`` the quorum, add it as the quorum's listener, and serve
    ``service()``. ``stop`` it before the quorum stops.

    Brokers and administrators may ask any controller. A controller that is not active answers
    NOT_CONTROLLER and names the leader, but it answers descriptions from its committed image.
    """

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        world: World,
        *,
        port: ControllerPort,
        on_fatal: Callable[[BaseException], None],
        first_users: Sequence[MetadataRecord] = (),
    ) -> None:
        """``port`` knows the callers and their rights. ``on_fatal`` is called when the committed
        metadata cannot be applied any further. ``first_users``: the credentials with which a new
        cluster begins."""
        self._config = config
        self._cluster_id = cluster_id
        self._world = world
        self._port = port
        self._first_users = first_users
        self._quorum: MetadataQuorum | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._has_resumed = False  # at the last duties: this process had stood still
        self._rebalance_at: float | None = None
        self._stopped = False
        self._decisions = DecisionMaker(
            cluster_id=cluster_id,
            static=config.raw,
            rng=world.rng,
            clock=world.clock,
            on_fatal=on_fatal,
            on_decided=self._decided,
        )
        self._token_expiry = TokenExpiry(config.delegation_token_expiry_check_interval_ms)
        self._heartbeats = Heartbeats(
            self._decisions,
            session_timeout_ms=config.broker_session_timeout_ms,
            listener=config.inter_broker_listener_name,
            clock=world.clock,
            brokers=world.network.secured(config.security.to_brokers),
            leader_id=lambda: self.leader_id,
            wake=self._schedule,
        )
        self.changes: Final = Changes(port, self._decisions, self._heartbeats, world.clock)

    # ---------------------------------------------------------------- what others see

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._decisions.committed

    @property
    def metrics(self) -> ControllerMetrics:
        return self._decisions.metrics

    @property
    def active(self) -> bool:
        """Whether this is the active controller."""
        return self._decisions.active

    @property
    def leader_id(self) -> int:
        """The node id of the active controller as far as this node knows; -1 if there is none."""
        leader = None if self._quorum is None else self._quorum.leader.leader_id
        return -1 if leader is None else leader

    @property
    def voter_refusal(self) -> Callable[[Voter], Refusal | None]:
        """Says why a controller with a voter's features cannot vote; see ``DecisionMaker``. The
        quorum asks before a controller becomes a voter."""
        return self._decisions.voter_refusal

    async def check_right(self, caller: Caller, operation: Operation) -> None:
        """On the active controller: raises ApiError CLUSTER_AUTHORIZATION_FAILED unless the caller
        may do it to the cluster after everything decided so far, and NOT_CONTROLLER. For what is
        done to the quorum, which is no decision of its own."""
        if not self.active:
            return

        def checked(context: Context) -> ControllerResult[None]:
            self._port.over(context.image.acls).check_right(caller, operation)
            return ControllerResult((), context.image, None)

        await self._decisions.decide(checked)

    async def begin_request(self, method: str, request_id: bytes, content: bytes) -> bool:
        """As ``controller.request_ids.begin``, but returns once that is committed. Raises
        ApiError."""
        return await self._decisions.decide(
            lambda context: begin(context, method, request_id, content), request_id=request_id
        )

    # ---------------------------------------------------------------- life

    def attach(self, quorum: MetadataQuorum) -> None:
        """Give it its quorum, before that starts."""
        self._quorum = quorum
        self._decisions.attach(quorum)

    async def stop(self) -> None:
        """Decide nothing more, and end the streams. The outcome of proposed batches is unknown."""
        self.halt()
        await self._heartbeats.stop()

    def halt(self) -> None:
        """The part of ``stop`` that does not wait: decide nothing more."""
        self._stopped = True
        self._step_down()

    def _step_down(self) -> None:
        self._rebalance_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._decisions.resigned()
        self._heartbeats.resigned()
        self._token_expiry.resigned()

    # ---------------------------------------------------------------- QuorumListener

    def on_commit(self, batches: Sequence[CommittedBatch], end_offset: int) -> None:
        self._decisions.commit(batches, end_offset)

    def on_snapshot(self, end_offset: int, records: Sequence[bytes]) -> None:
        self._decisions.reset(end_offset, records)

    def snapshot_records(self) -> Iterable[bytes] | None:
        """The records of the committed image. None if a committed batch could not be applied."""
        return None if self._decisions.failed else records_of(self.image)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing to do: ``leader_id`` reads the leader from the quorum."""

    def on_claimed(self, epoch: int) -> None:
        if self._stopped:
            return
        logger.info("controller %d is active in epoch %d", self._config.node_id, epoch)
        self._decisions.claimed(epoch)
        try:
            self._decisions.submit(lambda context: configs.bootstrap(context, self._first_users))
            self._decisions.submit(elections.elect_leaderless)
        except ApiError as error:
            # The disk is full, or leadership is already lost again (then on_resigned comes next).
            logger.warning("nothing could be written in epoch %d: %s", epoch, error)
        if self._config.auto_leader_rebalance_enable:
            self._rebalance_at = self._world.clock.monotonic() + self._rebalance_interval_s
        self._token_expiry.claimed(
            self._world.clock.monotonic(), self._decisions.newest.delegation_tokens
        )
        self._heartbeats.claimed()

    def on_resigned(self, epoch: int) -> None:
        logger.info("controller %d is no longer active (epoch %d)", self._config.node_id, epoch)
        self._step_down()

    # ---------------------------------------------------------------- duties

    @property
    def _rebalance_interval_s(self) -> int:
        return self._config.leader_imbalance_check_interval_seconds

    def _schedule(self) -> None:
        """Set the timer to the next duty."""
        times = [
            self._heartbeats.deadline(),
            self._rebalance_at,
            self._token_expiry.deadline(),
        ]
        nearest = min((at for at in times if at is not None), default=None)
        if self._timer is not None:
            if nearest == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        if nearest is None or not self._decisions.active:
            return
        delay = max(0.0, nearest - self._world.clock.monotonic())
        self._timer_at = nearest
        self._timer = asyncio.get_running_loop().call_later(delay, self._run_duties)

    def _run_duties(self) -> None:
        self._timer = None
        now = self._world.clock.monotonic()
        # Not twice in a row: else a busy machine would never fence anybody.
        self._has_resumed = not self._has_resumed and now > self._timer_at + STALL_S
        if self._has_resumed:
            logger.warning("this process stood still for %.1f s", now - self._timer_at)
            self._heartbeats.resumed()
        self._heartbeats.run_due()
        if self._rebalance_at is not None and now >= self._rebalance_at:
            self._rebalance_at = now + self._rebalance_interval_s
            self._rebalance()
        self._remove_expired_tokens()
        self._schedule()

    def _rebalance(self) -> None:
        percentage = self._config.leader_imbalance_per_broker_percentage
        try:
            count = self._decisions.submit(
                lambda context: elections.rebalance(context, percentage=percentage)
            )
        except ApiError as error:
            logger.info("no rebalancing of leaders: %s", error)
            return
        if count:
            logger.info("%d partitions go back to their preferred leaders", count)

    def _decided(self, image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
        now_s = self._world.clock.monotonic()
        self._token_expiry.decided(now_s, image.delegation_tokens, records)
        self._schedule()

    def _remove_expired_tokens(self) -> None:
        clock = self._world.clock
        due = self._token_expiry.take_due(clock.monotonic(), clock.time_ms())
        if not due:
            return
        try:
            count = self._decisions.submit(
                lambda context: delegation_tokens.remove_expired(context, due)
            )
        except ApiError as error:
            logger.warning("%d expired delegation tokens stay for now: %s", len(due), error)
            self._token_expiry.put_back(clock.monotonic(), clock.time_ms(), due)
            return
        logger.info("%d delegation tokens have expired and are removed", count)

    # ---------------------------------------------------------------- handlers

    def service(self) -> Service:
        """The handlers of ``stele.v1.Controller`` and of most of ``stele.v1.Admin``. The quorum has
        handlers for the rest, such as DescribeQuorum."""
        decide = self._decisions.decide
        controller, administration = "/stele.v1.Controller/", "/stele.v1.Admin/"
        return Service(
            unary={
                controller + "RegisterBroker": self._unary(
                    pb.RegisterBrokerRequest, pb.RegisterBrokerResponse, self._register
                ),
                controller + "AlterPartition": self._unary(
                    pb.AlterPartitionRequest,
                    pb.AlterPartitionResponse,
                    lambda request, _: decide(lambda ctx: isr.alter_partitions(ctx, request)),
                ),
                controller + "AssignReplicasToDirectories": self._unary(
                    pb.AssignReplicasToDirectoriesRequest,
                    pb.AssignReplicasToDirectoriesResponse,
                    lambda request, _: decide(
                        lambda ctx: directories.assign_replicas(ctx, request)
                    ),
                ),
                controller + "AllocateProducerIds": self._unary(
                    pb.AllocateProducerIdsRequest,
                    pb.AllocateProducerIdsResponse,
                    self._allocate_producer_ids,
                ),
                controller + "ReadIndex": self._unary(
                    pb.ReadIndexRequest, pb.ReadIndexResponse, self._read_index
                ),
                **self._changes(),
                administration + "ListPartitionReassignments": self._unary(
                    admin.ListPartitionReassignmentsRequest,
                    admin.ListPartitionReassignmentsResponse,
                    self._list_reassignments,
                ),
                **self._descriptions(),
            },
            streams={controller + "Heartbeat": self._heartbeats.serve},
        )

    def _changes(self) -> dict[str, UnaryHandler]:
        """The handlers of changes by administrators."""
        return {
            each.method: self._unary(each.request, each.response, partial(self.changes.make, each))
            for each in CHANGES
        }

    def _descriptions(self) -> dict[str, UnaryHandler]:
        prefix = "/stele.v1.Admin/"
        return {
            prefix + "DescribeConfigs": self._description(
                admin.DescribeConfigsRequest, self._describe_configs
            ),
            prefix + "DescribeCluster": self._description(
                admin.DescribeClusterRequest, self._describe_cluster
            ),
            prefix + "DescribeTopics": self._description(
                admin.DescribeTopicsRequest, self._describe_topics
            ),
            prefix + "DescribeFeatures": self._description(
                admin.DescribeFeaturesRequest, self._describe_features
            ),
        }

    def _description(
        self, request_type: Any, describe: Callable[[Any, MetadataImage, Caller], Any]
    ) -> UnaryHandler:
        """Brokers answer descriptions from their own images and do not forward them. So the sender
        of a request is its caller."""

        async def handle(request: Any, peer: Peer) -> Any:
            image = await self._image_for(request)
            return describe(request, image, self._port.sender(peer))

        return self._unary(request_type, None, handle)

    def _unary(
        self,
        request_type: Any,
        response_type: Any | None,
        handle: Callable[[Any, Peer], Awaitable[Any]],
    ) -> UnaryHandler:
        """A handler of bytes. ``response_type`` has the fields ``error`` and ``leader_id``. It is
        None for a description, whose handler puts refusals into its answer; any other failure of it
        is RpcError UNAVAILABLE."""

        from_nodes = request_type.DESCRIPTOR.file.name.endswith("controller.proto")
        elements_max = NODE_ELEMENTS_MAX if from_nodes else REQUEST_ELEMENTS_MAX

        async def handler(payload: bytes, peer: Peer) -> bytes:
            request = await parse_in_slices(
                request_type, payload, bytes_max=ADMIN_BYTES_MAX, elements_max=elements_max
            )
            try:
                response = await handle(request, peer)
            except ApiError as error:
                if response_type is None:
                    raise RpcError(RpcCode.UNAVAILABLE, error.message) from error
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    logger.error("%s is refused: %s", request_type.DESCRIPTOR.name, error)
                response = response_type(error=self._code(response_type, error))
                if "message" in response_type.DESCRIPTOR.fields_by_name:
                    response.message = explain(error.code, error.message)
            if response_type is not None:
                response.leader_id = self.leader_id
                if "metadata_offset" in response_type.DESCRIPTOR.fields_by_name:
                    # The change committed before this reply: a node that has applied this offset
                    # sees the change.
                    response.metadata_offset = max(0, self.image.offset)
            return bytes(response.SerializeToString(deterministic=True))

        return handler

    @staticmethod
    def _code(response_type: Any, error: ApiError) -> ErrorCode:
        """Brokers get NOT_CONTROLLER if the outcome is unknown, so that they repeat the request.
        Brokers' requests may take effect twice."""
        from_broker = response_type.DESCRIPTOR.file.name.endswith("controller.proto")
        if isinstance(error, OutcomeUnknownError) and from_broker:
            return ErrorCode.NOT_CONTROLLER
        return error.code

    async def _register(
        self, request: pb.RegisterBrokerRequest, _: Peer
    ) -> pb.RegisterBrokerResponse:
        existing = self._decisions.newest.broker(request.broker_id)
        if (
            self._decisions.active
            and existing is not None
            and not existing.fenced
            and existing.incarnation_id != request.incarnation_id
            and self._heartbeats.alive(existing)
        ):
            # Most often the earlier process was killed, and this controller has not noticed yet.
            await self._heartbeats.probe(existing)
        epoch = await self._decisions.decide(
            lambda context: cluster.register(context, request, session_alive=self._alive(request))
        )
        logger.info("broker %d is registered with epoch %d", request.broker_id, epoch)
        return pb.RegisterBrokerResponse(broker_epoch=epoch)

    def _alive(self, request: pb.RegisterBrokerRequest) -> bool:
        existing = self._decisions.newest.broker(request.broker_id)
        return existing is not None and self._heartbeats.alive(existing)

    async def _allocate_producer_ids(
        self, request: pb.AllocateProducerIdsRequest, _: Peer
    ) -> pb.AllocateProducerIdsResponse:
        block = await self._decisions.decide(
            lambda context: producer_ids.allocate(context, request)
        )
        return pb.AllocateProducerIdsResponse(first=block.first, count=block.size)

    async def _list_reassignments(
        self, request: admin.ListPartitionReassignmentsRequest, peer: Peer
    ) -> admin.ListPartitionReassignmentsResponse:
        await self._decisions.linearizable()

        def listed(context: Context) -> ControllerResult[admin.ListPartitionReassignmentsResponse]:
            self._port.over(context.image.acls).check(request, peer, Operation.DESCRIBE)
            return reassignment.list_partition_reassignments(context, request)

        return await self._decisions.decide(listed)

    async def _read_index(self, request: pb.ReadIndexRequest, _: Peer) -> pb.ReadIndexResponse:
        check_cluster(request.cluster_id, self._cluster_id)
        image = await self._decisions.linearizable()
        return pb.ReadIndexResponse(metadata_offset=image.offset)

    async def _image_for(self, request: Any) -> MetadataImage:
        """The committed image. A linearizable read first waits until it has every change that was
        acknowledged before the request."""
        return await self._decisions.linearizable() if request.linearizable else self.image

    # ---------------------------------------------------------------- descriptions

    def _refusal(self, caller: Caller, operation: Operation, resource: Resource) -> ApiError | None:
        return refusal(self._port.authorizer, caller, operation, resource)

    def _describe_configs(
        self, request: admin.DescribeConfigsRequest, image: MetadataImage, caller: Caller
    ) -> admin.DescribeConfigsResponse:
        def why_not(resource: admin.ConfigResource) -> ApiError | None:
            of = config_resource(resource.type, resource.name)
            return self._refusal(caller, Operation.DESCRIBE_CONFIGS, of)

        return configs.describe_configs(image, self._config.raw, request, why_not)

    def _describe_topics(
        self, request: admin.DescribeTopicsRequest, image: MetadataImage, caller: Caller
    ) -> admin.DescribeTopicsResponse:
        allows = self._port.authorizer.allows
        return describe_topics(
            image,
            request,
            lambda name: allows(caller, Operation.DESCRIBE, topic_resource(name)),
            lambda name: self._refusal(caller, Operation.DESCRIBE, topic_resource(name)),
            lambda name: allows(caller, Operation.DESCRIBE_CONFIGS, topic_resource(name)),
        )

    def _describe_cluster(
        self, _: admin.DescribeClusterRequest, image: MetadataImage, caller: Caller
    ) -> admin.DescribeClusterResponse:
        why = self._refusal(caller, Operation.DESCRIBE, CLUSTER)
        if why is not None:
            return admin.DescribeClusterResponse(
                error=why.code, message=why.message, controller_id=-1
            )
        return describe_cluster(
            image,
            cluster_id=self._cluster_id,
            controller_id=self.leader_id,
            listener=self._config.inter_broker_listener_name,
        )

    def _describe_features(
        self, _: admin.DescribeFeaturesRequest, image: MetadataImage, caller: Caller
    ) -> admin.DescribeFeaturesResponse:
        why = self._refusal(caller, Operation.DESCRIBE, CLUSTER)
        if why is not None:
            return admin.DescribeFeaturesResponse(error=why.code, message=why.message)
        return describe_features(
            image, {} if self._quorum is None else self._quorum.controller_features
        )
