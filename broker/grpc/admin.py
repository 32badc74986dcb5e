"""stele.v1.Admin on a broker: changes go to the active controller, questions are answered here.

What describes topics, brokers, configs and features is read from this broker's own image, which may
be a moment behind; a broker that has lost the controllers refuses then, for another one knows
better. A linearizable read asks the active controller first how far the image has to be.
DescribeQuorum and TransferLeadership go to the quorum's leader, ListPartitionReassignments too:
what an image lacks may just have been started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from broker.grpc.messages import unary
from broker.service.caller import Caller
from broker.service.changes import forward_change
from broker.service.config_view import describe_resource
from broker.service.context import BrokerContext
from metadata.features import describe as describe_features
from metadata.image import (
    GRPC,
    PLAINTEXT,
    BrokerRegistration,
    ConfigResource,
    MetadataImage,
)
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1.controller_pb2 import ReadIndexRequest, ReadIndexResponse
from stele.wire.v1.raft_pb2 import (
    AddVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    VoterChangeResponse,
)
from stele.world import RpcCode, RpcError
from world.network import Service

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_TIMEOUT_S = 30.0

_ANSWER_S = 4.5
"""Less than the 5 s that a client waits for one broker, so that it hears what is the matter."""

_CHANGES: tuple[tuple[str, Any, Any], ...] = (
    ("CreateTopics", pb.CreateTopicsRequest, pb.CreateTopicsResponse),
    ("DeleteTopics", pb.DeleteTopicsRequest, pb.DeleteTopicsResponse),
    ("CreatePartitions", pb.CreatePartitionsRequest, pb.CreatePartitionsResponse),
    ("UnregisterBroker", pb.UnregisterBrokerRequest, pb.UnregisterBrokerResponse),
    ("AlterConfigs", pb.AlterConfigsRequest, pb.AlterConfigsResponse),
    ("ElectLeaders", pb.ElectLeadersRequest, pb.ElectLeadersResponse),
    (
        "AlterPartitionReassignments",
        pb.AlterPartitionReassignmentsRequest,
        pb.AlterPartitionReassignmentsResponse,
    ),
    ("UpdateFeatures", pb.UpdateFeaturesRequest, pb.UpdateFeaturesResponse),
)


class AdminService:
    """The service as it is given to those who came in over one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        forward = self._forward
        methods: dict[str, tuple[Any, Any]] = {
            **{
                name: (request_type, self._change(name, response_type))
                for name, request_type, response_type in _CHANGES
            },
            "ListPartitionReassignments": (
                pb.ListPartitionReassignmentsRequest,
                forward("ListPartitionReassignments", pb.ListPartitionReassignmentsResponse),
            ),
            "DescribeQuorum": (
                DescribeQuorumRequest,
                forward("DescribeQuorum", DescribeQuorumResponse),
            ),
            "TransferLeadership": (
                TransferLeadershipRequest,
                forward("TransferLeadership", TransferLeadershipResponse),
            ),
            "AddVoter": (AddVoterRequest, self._add_voter),
            "RemoveVoter": (RemoveVoterRequest, forward("RemoveVoter", VoterChangeResponse)),
            "DescribeCluster": (pb.DescribeClusterRequest, self._describe_cluster),
            "DescribeTopics": (pb.DescribeTopicsRequest, self._describe_topics),
            "DescribeConfigs": (pb.DescribeConfigsRequest, self._describe_configs),
            "DescribeFeatures": (pb.DescribeFeaturesRequest, self._describe_features),
        }
        return Service(
            unary={
                f"/stele.v1.Admin/{name}": unary(self._listener, *method)
                for name, method in methods.items()
            }
        )

    def _change(self, name: str, response_type: type[R]) -> Callable[[Caller, Q], Awaitable[R]]:
        async def change(caller: Caller, request: Q) -> R:
            try:
                return await forward_change(
                    self._context, name, request, response_type, timeout_s=_ANSWER_S
                )
            except ApiError as error:
                answer: Any = response_type()
                answer.error, answer.message, answer.leader_id = error.code, error.message, -1
                return cast(R, answer)

        return change

    def _forward(self, name: str, response_type: type[R]) -> Callable[[Caller, Q], Awaitable[R]]:
        method = f"/stele.v1.Admin/{name}"

        async def ask(caller: Caller, request: Q) -> R:
            try:
                return await self._context.controller.call(
                    method, request, response_type, timeout_s=_TIMEOUT_S
                )
            except ApiError as error:
                # What the client may try again, in its own words.
                raise RpcError(RpcCode.UNAVAILABLE, error.message) from error

        return ask

    async def _add_voter(self, caller: Caller, request: AddVoterRequest) -> VoterChangeResponse:
        """Waits as long as the voter may take to catch up, and asks nobody else meanwhile."""
        timeout_s = request.timeout_ms / 1000 + _TIMEOUT_S
        try:
            return await self._context.controller.call(
                "/stele.v1.Admin/AddVoter",
                request,
                VoterChangeResponse,
                timeout_s=timeout_s,
                attempt_s=timeout_s,
            )
        except ApiError as error:
            raise RpcError(RpcCode.UNAVAILABLE, error.message) from error

    # ------------------------------------------------------------------ from the image

    async def _present_image(self, request: Any) -> MetadataImage:
        """The image once it has what the request needs to see: ``min_metadata_offset``, and for a
        linearizable read everything that was acknowledged before.

        Raises RpcError UNAVAILABLE where the controllers were not heard of late.
        """
        deadline = self._context.clock.monotonic() + _ANSWER_S
        min_offset = request.min_metadata_offset
        if request.linearizable:
            min_offset = max(min_offset, await self._read_index())
        left_s = max(0.0, deadline - self._context.clock.monotonic())
        await self._context.wait_until(lambda image: image.offset >= min_offset, left_s)
        if not request.linearizable and not self._context.lease_valid():
            raise RpcError(
                RpcCode.UNAVAILABLE,
                f"broker {self._context.broker_id} has no contact to the active controller, "
                "so what it knows may be outdated",
            )
        image = self._context.image()
        if image.offset < min_offset:
            raise RpcError(
                RpcCode.UNAVAILABLE,
                f"broker {self._context.broker_id} has not applied metadata up to {min_offset}",
            )
        return image

    async def _read_index(self) -> int:
        """What has to be applied to see every change acknowledged before this call."""
        try:
            answer = await self._context.controller.call(
                "/stele.v1.Controller/ReadIndex",
                ReadIndexRequest(),
                ReadIndexResponse,
                timeout_s=_ANSWER_S,
            )
        except ApiError as error:
            raise RpcError(RpcCode.UNAVAILABLE, error.message) from error
        if answer.error != ErrorCode.NONE:
            raise RpcError(RpcCode.UNAVAILABLE, f"the controller answers {answer.error}")
        return answer.metadata_offset

    async def _describe_cluster(
        self, caller: Caller, request: pb.DescribeClusterRequest
    ) -> pb.DescribeClusterResponse:
        image = await self._present_image(request)
        controller_id = self._context.controller.active_controller
        return pb.DescribeClusterResponse(
            cluster_id=self._context.cluster_id,
            controller_id=-1 if controller_id is None else controller_id,
            brokers=[
                _broker(caller.listener, registration) for registration in image.sorted_brokers()
            ],
            metadata_offset=image.offset,
        )

    async def _describe_topics(
        self, caller: Caller, request: pb.DescribeTopicsRequest
    ) -> pb.DescribeTopicsResponse:
        image = await self._present_image(request)
        names = list(request.names) or [topic.name for topic in image.sorted_topics()]
        return pb.DescribeTopicsResponse(topics=[_topic(image, name) for name in names])

    async def _describe_features(
        self, caller: Caller, request: pb.DescribeFeaturesRequest
    ) -> pb.DescribeFeaturesResponse:
        image = await self._present_image(request)
        return describe_features(image, self._context.controller_features())

    async def _describe_configs(
        self, caller: Caller, request: pb.DescribeConfigsRequest
    ) -> pb.DescribeConfigsResponse:
        await self._present_image(request)
        answer = pb.DescribeConfigsResponse()
        for resource in request.resources:
            described = answer.resources.add(resource=resource)
            try:
                entries = describe_resource(self._context, resource.type, resource.name)
            except ApiError as error:
                described.error, described.message = error.code, error.message
                continue
            for entry in entries:
                described.entries.add(
                    name=entry.key.name,
                    value=entry.value,
                    source=entry.source,
                    type=entry.key.type.value,
                    documentation=entry.key.doc,
                    read_only=entry.read_only,
                )
        return answer


def _broker(listener: str, registration: BrokerRegistration) -> pb.BrokerDescription:
    kafka = registration.endpoint(listener, PLAINTEXT)
    grpc = registration.endpoint(listener, GRPC)
    return pb.BrokerDescription(
        broker_id=registration.broker_id,
        host=kafka.host if kafka else "",
        port=kafka.port if kafka else -1,
        rack=registration.rack or "",
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
        broker_epoch=registration.broker_epoch,
        grpc_host=grpc.host if grpc else "",
        grpc_port=grpc.port if grpc else -1,
    )


def _topic(image: MetadataImage, name: str) -> pb.DescribeTopicsResponse.Topic:
    topic = image.topic(name)
    if topic is None:
        return pb.DescribeTopicsResponse.Topic(
            name=name,
            error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            message=f"there is no topic {name}",
        )
    configs = image.config(ConfigResource.topic(name))
    return pb.DescribeTopicsResponse.Topic(
        name=name,
        topic_id=topic.topic_id,
        configs=dict(sorted(configs.items())),
        partitions=[
            pb.PartitionDescription(
                partition=number,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                elr=state.elr,
                unclean_elections=state.unclean_elections,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
            )
            for number, state in enumerate(topic.partitions)
        ],
    )
