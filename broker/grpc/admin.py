"""stele.v1.Admin on a broker: changes go to the active controller, questions are answered here.

What describes topics, brokers, configs and features is read from this broker's own image, which may
be a moment behind; a broker that has lost the controllers refuses then, for another one knows
better. A linearizable read asks the active controller first how far the image has to be.
DescribeQuorum and TransferLeadership go to the quorum's leader, ListPartitionReassignments too:
what an image lacks may just have been started. DescribeLogDirs and AlterReplicaLogDirs are about
this broker alone, and DeleteRecords about the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from broker.grpc.answers import check_count
from broker.grpc.certificates import ListenerCertificates
from broker.grpc.connections import ClientConnections
from broker.grpc.log_dirs import LogDirs
from broker.grpc.messages import unary
from broker.service import acls, client_quotas, delegation_tokens, records
from broker.service.changes import ask, change
from broker.service.cluster import active_controller
from broker.service.config_resources import list_resources
from broker.service.config_view import RESOURCES_AT_ONCE, describe_resource, set_on_topic
from broker.service.context import BrokerContext
from broker.service.metadata import MissingTopic, all_topics, find_topics, present_image
from broker.service.metadata_log import read_metadata_log
from broker.service.records import Asked
from broker.service.scram_credentials import describe_users
from metadata.acl import AclFilter
from metadata.brokers import BrokerRegistration, Plane
from metadata.client_quotas import CONNECTION_CREATION_RATE
from metadata.features import describe as describe_features
from metadata.image import MetadataImage
from metadata.topics import Topic
from runtime.administration.acls import (
    check_operation,
    check_principal,
    filter_of,
    message_of,
    operation_of,
    resource_of,
)
from runtime.administration.changes import CHANGES
from runtime.administration.client_quotas import parts_of
from runtime.authorization.authorizer import Operation
from runtime.authorization.caller import Caller
from runtime.quota.addresses import AddressQuota, AddressUsage
from runtime.quota.precedence import Client
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1.raft_pb2 import (
    AddVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
    VoterChangeResponse,
)
from stele.world import ErrorInfo, RpcCode, RpcError
from storage.turns import SLICE_STEPS, Slices, in_slices
from world.network import Service

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_TIMEOUT_S = 30.0

_ANSWER_S = 4.5
"""A client waits 5 s for one broker. With less than that it is told the reason."""


class AdminService:
    """The service for the clients of one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        log_dirs = LogDirs(self._context)
        methods: dict[str, tuple[Any, Any]] = {
            **{each.name: (each.request, self._change(each.response)) for each in CHANGES},
            "CreateDelegationToken": (
                pb.CreateDelegationTokenRequest,
                self._create_delegation_token,
            ),
            "DescribeDelegationTokens": (
                pb.DescribeDelegationTokensRequest,
                self._describe_delegation_tokens,
            ),
            "ListPartitionReassignments": (
                pb.ListPartitionReassignmentsRequest,
                self._ask(Operation.DESCRIBE, pb.ListPartitionReassignmentsResponse),
            ),
            "DescribeQuorum": (
                DescribeQuorumRequest,
                self._ask(Operation.DESCRIBE, DescribeQuorumResponse),
            ),
            "TransferLeadership": (
                TransferLeadershipRequest,
                self._ask(Operation.ALTER, TransferLeadershipResponse),
            ),
            "AddVoter": (AddVoterRequest, self._add_voter),
            "RemoveVoter": (RemoveVoterRequest, self._ask(Operation.ALTER, VoterChangeResponse)),
            "DescribeCluster": (pb.DescribeClusterRequest, self._describe_cluster),
            "DescribeTopics": (pb.DescribeTopicsRequest, self._describe_topics),
            "DescribeConfigs": (pb.DescribeConfigsRequest, self._describe_configs),
            "DescribeConnections": (
                pb.DescribeConnectionsRequest,
                ClientConnections(self._context).describe,
            ),
            "DescribeCertificates": (
                pb.DescribeCertificatesRequest,
                ListenerCertificates(self._context).describe,
            ),
            "ListConfigResources": (pb.ListConfigResourcesRequest, self._list_config_resources),
            "DescribeFeatures": (pb.DescribeFeaturesRequest, self._describe_features),
            "DescribeUserScramCredentials": (
                pb.DescribeUserScramCredentialsRequest,
                self._describe_scram_credentials,
            ),
            "DescribeClientQuotas": (
                pb.DescribeClientQuotasRequest,
                self._describe_client_quotas,
            ),
            "ExplainClientQuotas": (pb.ExplainClientQuotasRequest, self._explain_client_quotas),
            "ReadMetadataLog": (pb.ReadMetadataLogRequest, self._read_metadata_log),
            "DescribeLogDirs": (pb.DescribeLogDirsRequest, log_dirs.describe),
            "AlterReplicaLogDirs": (pb.AlterReplicaLogDirsRequest, log_dirs.alter),
            "DeleteRecords": (pb.DeleteRecordsRequest, self._delete_records),
            "DescribeAcls": (pb.DescribeAclsRequest, self._describe_acls),
            "TestAccess": (pb.TestAccessRequest, self._test_access),
        }
        return Service(
            unary={
                f"/stele.v1.Admin/{name}": unary(self._listener, *method)
                for name, method in methods.items()
            }
        )

    def _change(self, response_type: type[R]) -> Callable[[Caller, Q], Awaitable[R]]:
        async def handle(caller: Caller, request: Q) -> R:
            try:
                return cast(R, await change(self._context, caller, request, timeout_s=_ANSWER_S))
            except ApiError as error:
                answer: Any = response_type()
                answer.error, answer.message, answer.leader_id = error.code, error.message, -1
                return cast(R, answer)

        return handle

    def _ask(
        self, operation: Operation, response_type: type[R]
    ) -> Callable[[Caller, Q], Awaitable[R]]:
        async def handle(caller: Caller, request: Q) -> R:
            with _unavailable():
                return await ask(
                    self._context, caller, operation, request, response_type, timeout_s=_TIMEOUT_S
                )

        return handle

    async def _create_delegation_token(
        self, caller: Caller, request: pb.CreateDelegationTokenRequest
    ) -> pb.CreateDelegationTokenResponse:
        answer = pb.CreateDelegationTokenResponse()
        try:
            delegation_tokens.check_served(self._context, caller)
            answer = await change(self._context, caller, request, timeout_s=_ANSWER_S)
            if answer.error == ErrorCode.NONE:
                delegation_tokens.add_hmac(self._context, caller, answer)
        except ApiError as error:
            answer = pb.CreateDelegationTokenResponse(
                error=error.code, message=error.message, leader_id=-1
            )
        return answer

    async def _add_voter(self, caller: Caller, request: AddVoterRequest) -> VoterChangeResponse:
        """Waits as long as the voter may take to catch up, and asks nobody else meanwhile."""
        timeout_s = request.timeout_ms / 1000 + _TIMEOUT_S
        with _unavailable():
            return await ask(
                self._context,
                caller,
                Operation.ALTER,
                request,
                VoterChangeResponse,
                timeout_s=timeout_s,
                attempt_s=timeout_s,
            )

    # ------------------------------------------------------------------ from the image

    async def _present_image(self, request: Any) -> MetadataImage:
        with _unavailable():
            return await present_image(
                self._context,
                min_offset=request.min_metadata_offset,
                linearizable=request.linearizable,
                patience_s=_ANSWER_S,
            )

    async def _delete_records(
        self, caller: Caller, request: pb.DeleteRecordsRequest
    ) -> pb.DeleteRecordsResponse:
        if not self._context.caught_up():  # it would say that every topic is gone
            raise RpcError(
                RpcCode.UNAVAILABLE,
                f"broker {self._context.broker_id} has not caught up with the metadata yet",
            )
        check_count(len(request.partitions), "partitions")
        asked = [Asked(each.topic, each.partition, each.offset) for each in request.partitions]
        results = await records.delete_records(self._context, caller, asked, request.timeout_ms)
        return pb.DeleteRecordsResponse(
            partitions=[
                pb.DeleteRecordsResponse.Partition(
                    topic=partition.topic,
                    partition=partition.partition,
                    error=result.error,
                    low_watermark=result.low_watermark,
                    message=result.message or explain(result.error),
                )
                for partition, result in zip(asked, results, strict=True)
            ]
        )

    async def _describe_cluster(
        self, caller: Caller, request: pb.DescribeClusterRequest
    ) -> pb.DescribeClusterResponse:
        image = await self._present_image(request)
        return pb.DescribeClusterResponse(
            cluster_id=self._context.cluster_id,
            controller_id=active_controller(self._context),
            brokers=[
                _broker(caller.listener, registration) for registration in image.sorted_brokers()
            ],
            metadata_offset=image.offset,
        )

    async def _describe_topics(
        self, caller: Caller, request: pb.DescribeTopicsRequest
    ) -> pb.DescribeTopicsResponse:
        await self._present_image(request)
        if request.names:
            found = await find_topics(self._context, caller, request.names)
        else:
            found = await all_topics(self._context, caller)
        answer = pb.DescribeTopicsResponse()
        slices = Slices(SLICE_STEPS)
        for each in found.topics:
            if isinstance(each, MissingTopic):
                answer.topics.append(_missing(each))
                await slices.step()
            else:
                configs = set_on_topic(self._context, caller, found.image, each.name)
                answer.topics.append(_topic(found.image, each, configs))
                await slices.step(1 + len(each.partitions))
        return answer

    async def _read_metadata_log(
        self, caller: Caller, request: pb.ReadMetadataLogRequest
    ) -> pb.ReadMetadataLogResponse:
        with _unavailable():
            piece = await read_metadata_log(self._context, caller, request.offset)
        snapshot = piece.snapshot
        return pb.ReadMetadataLogResponse(
            snapshot=None
            if snapshot is None
            else pb.ReadMetadataLogResponse.Snapshot(
                end_offset=snapshot.id.end_offset,
                timestamp_ms=snapshot.timestamp_ms,
                records=snapshot.records,
            ),
            decisions=[
                pb.ReadMetadataLogResponse.Decision(
                    base_offset=batch.base_offset,
                    epoch=batch.epoch,
                    timestamp_ms=batch.timestamp_ms,
                    records=batch.records,
                )
                for batch in piece.batches
            ],
            next_offset=piece.next_offset,
            high_watermark=self._context.metadata_log.high_watermark,
        )

    async def _describe_scram_credentials(
        self, caller: Caller, request: pb.DescribeUserScramCredentialsRequest
    ) -> pb.DescribeUserScramCredentialsResponse:
        image = await self._present_image(request)
        try:
            found = describe_users(self._context, caller, image, request.users)
        except ApiError as error:
            return pb.DescribeUserScramCredentialsResponse(error=error.code, message=error.message)
        answer = pb.DescribeUserScramCredentialsResponse()
        for user, credentials in found.items():
            if isinstance(credentials, ApiError):
                answer.users.add(user=user, error=credentials.code, message=credentials.message)
                continue
            told = answer.users.add(user=user)
            for mechanism, iterations in credentials:
                told.credentials.add(mechanism=mechanism.number, iterations=iterations)
        return answer

    async def _describe_client_quotas(
        self, caller: Caller, request: pb.DescribeClientQuotasRequest
    ) -> pb.DescribeClientQuotasResponse:
        image = await self._present_image(request)
        try:
            found = await client_quotas.describe(
                self._context, caller, image, request.components, is_strict=request.strict
            )
        except ApiError as error:
            return pb.DescribeClientQuotasResponse(error=error.code, message=error.message)
        answer = pb.DescribeClientQuotasResponse()
        for entity, values in found:
            entry = answer.entries.add(entity=parts_of(entity))
            for key in sorted(values):
                entry.quotas.add(key=key, value=values[key])
        return answer

    async def _explain_client_quotas(
        self, caller: Caller, request: pb.ExplainClientQuotasRequest
    ) -> pb.ExplainClientQuotasResponse:
        image = await self._present_image(request)
        client = Client(request.user, request.client_id)
        try:
            if request.ip:
                return _explained_address(
                    client_quotas.explain_address(self._context, caller, image, request.ip)
                )
            explained = client_quotas.explain(self._context, caller, image, client)
        except ApiError as error:
            return pb.ExplainClientQuotasResponse(error=error.code, message=error.message)
        answer = pb.ExplainClientQuotasResponse()
        for key, found, usage in explained:
            answer.quotas.add(
                key=key,
                entity=parts_of(found.entity),
                value=found.bound,
                usage=0.0 if usage is None else usage.rate,
                throttles=0 if usage is None else usage.throttles,
                throttled_seconds=0.0 if usage is None else usage.throttled_s,
                is_shared_by_user=found.bucket.user is not None,
                is_shared_by_client_id=found.bucket.client_id is not None,
            )
        return answer

    async def _describe_features(
        self, caller: Caller, request: pb.DescribeFeaturesRequest
    ) -> pb.DescribeFeaturesResponse:
        image = await self._present_image(request)
        return describe_features(image, self._context.controller_features())

    async def _describe_configs(
        self, caller: Caller, request: pb.DescribeConfigsRequest
    ) -> pb.DescribeConfigsResponse:
        await self._present_image(request)
        check_count(len(request.resources), "resources")
        answer = pb.DescribeConfigsResponse()

        def describe(resource: pb.ConfigResource) -> None:
            described = answer.resources.add(resource=resource)
            try:
                entries = describe_resource(self._context, caller, resource.type, resource.name)
            except ApiError as error:
                described.error, described.message = error.code, error.message
                return
            for entry in entries:
                described.entries.add(
                    name=entry.key.name,
                    value=entry.value,
                    source=entry.source,
                    type=entry.key.type.value,
                    documentation=entry.key.doc,
                    read_only=entry.read_only,
                )

        once = {(each.type, each.name): each for each in request.resources}
        await in_slices(describe, once.values(), RESOURCES_AT_ONCE)
        return answer

    async def _list_config_resources(
        self, caller: Caller, request: pb.ListConfigResourcesRequest
    ) -> pb.ListConfigResourcesResponse:
        await self._present_image(request)
        try:
            found = await list_resources(self._context, caller, request.types)
        except ApiError as error:
            return pb.ListConfigResourcesResponse(error=error.code, message=error.message)
        return pb.ListConfigResourcesResponse(
            resources=await in_slices(
                lambda each: pb.ConfigResource(type=each.type, name=each.name), found
            )
        )

    async def _describe_acls(
        self, caller: Caller, request: pb.DescribeAclsRequest
    ) -> pb.DescribeAclsResponse:
        image = await self._present_image(request)
        try:
            acls.check_described(self._context, caller)
            wanted = filter_of(request.filter) if request.HasField("filter") else AclFilter()
            found = await acls.describe(self._context, caller, wanted)
        except ApiError as error:
            return pb.DescribeAclsResponse(error=error.code, message=error.message)
        return pb.DescribeAclsResponse(
            acls=[message_of(each) for each in found], metadata_offset=image.offset
        )

    async def _describe_delegation_tokens(
        self, caller: Caller, request: pb.DescribeDelegationTokensRequest
    ) -> pb.DescribeDelegationTokensResponse:
        image = await self._present_image(request)
        try:
            found = await delegation_tokens.describe(
                self._context, caller, image, request.owners or None
            )
        except ApiError as error:
            return pb.DescribeDelegationTokensResponse(error=error.code, message=error.message)
        return pb.DescribeDelegationTokensResponse(
            tokens=[pb.DelegationToken(**each.token._asdict(), hmac=each.hmac) for each in found],
            metadata_offset=image.offset,
        )

    async def _test_access(
        self, caller: Caller, request: pb.TestAccessRequest
    ) -> pb.TestAccessResponse:
        await self._present_image(request)
        try:
            acls.check_described(self._context, caller)
            check_principal(request.principal)
            operation = operation_of(request.operation)
            resource = resource_of(request.resource_type, request.resource_name)
            check_operation(operation, resource.type)
            verdict = acls.verdict_on(
                self._context, caller, request.principal, request.host, operation, resource
            )
        except ApiError as error:
            return pb.TestAccessResponse(error=error.code, message=error.message)
        return pb.TestAccessResponse(
            allowed=verdict.is_allowed,
            reason=verdict.reason.value,
            rule=None if verdict.acl is None else message_of(verdict.acl),
        )


@contextmanager
def _unavailable() -> Iterator[None]:
    """Turn an ApiError into UNAVAILABLE with its message: the client tries another broker. If the
    client lacks a permission, no other broker serves it either."""
    try:
        yield
    except ApiError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            info = ErrorInfo(error.code.name)
            raise RpcError(RpcCode.PERMISSION_DENIED, error.message, info) from error
        raise RpcError(RpcCode.UNAVAILABLE, error.message) from error


def _broker(listener: str, registration: BrokerRegistration) -> pb.BrokerDescription:
    kafka = registration.endpoint(listener, Plane.KAFKA)
    grpc = registration.endpoint(listener, Plane.GRPC)
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


def _missing(topic: MissingTopic) -> pb.DescribeTopicsResponse.Topic:
    message = explain(topic.error)
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        message = f"there is no topic {topic.name}"
    return pb.DescribeTopicsResponse.Topic(name=topic.name, error=topic.error, message=message)


def _topic(
    image: MetadataImage, topic: Topic, configs: dict[str, str]
) -> pb.DescribeTopicsResponse.Topic:
    return pb.DescribeTopicsResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=configs,
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
                offline_replicas=image.offline_replicas(state),
            )
            for number, state in enumerate(topic.partitions)
        ],
    )


def _explained_address(
    explained: tuple[AddressQuota, AddressUsage] | None,
) -> pb.ExplainClientQuotasResponse:
    answer = pb.ExplainClientQuotasResponse()
    if explained is not None:
        quota, usage = explained
        answer.quotas.add(
            key=CONNECTION_CREATION_RATE,
            entity=parts_of(quota.entity),
            value=quota.rate,
            usage=usage.rate,
            throttles=usage.throttles,
            throttled_seconds=usage.throttled_s,
            is_shared_by_ip=True,
        )
    return answer
