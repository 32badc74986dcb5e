"""A caller without any right calls every method of every service, on each port of a node.

What a port answers stands in a table. A method that is new in the IDL has no row, and the test of
the table fails until somebody has said what the method answers to such a caller.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from chaos.sim.world.network import SimNetwork
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import (
    admin_pb2,
    controller_pb2,
    groups_pb2,
    log_pb2,
    login_pb2,
    raft_pb2,
    transactions_pb2,
)
from stele.world import RpcError
from tests.broker.grpc.grpc_needs import ASKED
from tests.support.authorization import told_errors
from tests.support.one_node import HOST, on_a_node
from world.world import World

METHODS: Final[dict[str, MethodDescriptor]] = {
    f"{service.name}/{method.name}": method
    for file in (
        admin_pb2,
        controller_pb2,
        groups_pb2,
        log_pb2,
        login_pb2,
        raft_pb2,
        transactions_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""By service and name."""

REQUESTS: Final[dict[str, Message]] = {
    # Of two requests of one method that is left which needs a permission.
    **{f"{each.service}/{each.method}": each.request for each in ASKED},
    **{f"{each.service}/{each.method}": each.request for each in ASKED if each.denied is not None},
    "Log/Publish": log_pb2.PublishRequest(
        records=[log_pb2.PublishRecord(topic="there", value=b"v")]
    ),
    "Log/FindPartitions": log_pb2.FindPartitionsRequest(topic="there", keys=[b"k"]),
    "Log/Subscribe": log_pb2.SubscribeRequest(
        start=log_pb2.SubscribeStart(partitions=[log_pb2.PartitionStart(topic="there")])
    ),
}
"""Requests that name something. Others are empty."""


async def outcome(world: World, port: int, name: str) -> str:
    """The status, or the errors in the answer; "": neither."""
    assert isinstance(world.network, SimNetwork)
    method = METHODS[name]
    request = REQUESTS.get(name) or GetMessageClass(method.input_type)()
    channel = world.network.identified("User:mallory").channel(Address(HOST, port))
    path = f"/stele.v1.{name}"
    try:
        if method.client_streaming:
            stream = channel.stream(path)
            await stream.send(request.SerializeToString())
            answer = await stream.receive() or b""
        else:
            answer = await channel.call(path, request.SerializeToString(), timeout_s=10)
    except RpcError as error:
        reason = "" if error.info is None else f" {error.info.reason}"
        return error.code.name + reason
    finally:
        await channel.close()
    told: Any = GetMessageClass(method.output_type).FromString(answer)
    if isinstance(told, log_pb2.PublishResponse):  # its errors have names and not numbers
        return " ".join(ErrorCode(each.error.code).name for each in told.results)
    return " ".join(sorted({each.name for each in told_errors(told)}))


_CLUSTER: Final = "CLUSTER_AUTHORIZATION_FAILED"
_TOPIC: Final = "TOPIC_AUTHORIZATION_FAILED"
_GROUP: Final = "GROUP_AUTHORIZATION_FAILED"
_TRANSACTION: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
_TOKEN: Final = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
_DENIED_CLUSTER: Final = "PERMISSION_DENIED CLUSTER_AUTHORIZATION_FAILED"
_DENIED_TOPIC: Final = "PERMISSION_DENIED TOPIC_AUTHORIZATION_FAILED"
_ABSENT: Final = "UNIMPLEMENTED"
_NOTHING: Final = ""  # no error: what the caller may not know is left out
_NO_TOKEN: Final = "DELEGATION_TOKEN_NOT_FOUND"

ANSWERS: Final = {
    "Admin/CreateTopics": (_TOPIC, _TOPIC),
    "Admin/DeleteTopics": (_TOPIC, _TOPIC),
    "Admin/CreatePartitions": (_TOPIC, _TOPIC),
    "Admin/AlterConfigs": (_CLUSTER, _CLUSTER),
    "Admin/DescribeConfigs": (_CLUSTER, _CLUSTER),
    "Admin/ListConfigResources": (_CLUSTER, _ABSENT),
    "Admin/ElectLeaders": (_CLUSTER, _CLUSTER),
    "Admin/AlterPartitionReassignments": (_CLUSTER, _CLUSTER),
    "Admin/ListPartitionReassignments": (_CLUSTER, _CLUSTER),
    "Admin/UpdateFeatures": (_CLUSTER, _CLUSTER),
    "Admin/DescribeFeatures": (_NOTHING, _CLUSTER),
    "Admin/AlterUserScramCredentials": (_CLUSTER, _CLUSTER),
    "Admin/DescribeUserScramCredentials": (_CLUSTER, _ABSENT),
    "Admin/AlterClientQuotas": (_CLUSTER, _CLUSTER),
    "Admin/DescribeClientQuotas": (_CLUSTER, _ABSENT),
    "Admin/ExplainClientQuotas": (_CLUSTER, _ABSENT),
    "Admin/DescribeConnections": (_CLUSTER, _ABSENT),
    "Admin/DescribeCertificates": (_CLUSTER, _ABSENT),
    "Admin/UnregisterBroker": (_CLUSTER, _CLUSTER),
    "Admin/DescribeCluster": (_NOTHING, _CLUSTER),
    "Admin/DescribeTopics": (_TOPIC, _TOPIC),
    "Admin/DescribeQuorum": (_CLUSTER, _CLUSTER),
    "Admin/TransferLeadership": (_CLUSTER, _CLUSTER),
    "Admin/ReadMetadataLog": (_DENIED_CLUSTER, _ABSENT),
    "Admin/DescribeLogDirs": (_CLUSTER, _ABSENT),
    "Admin/AlterReplicaLogDirs": (_CLUSTER, _ABSENT),
    "Admin/DeleteRecords": (_TOPIC, _ABSENT),
    "Admin/CreateAcls": (_CLUSTER, _CLUSTER),
    "Admin/DeleteAcls": (_CLUSTER, _CLUSTER),
    "Admin/DescribeAcls": (_CLUSTER, _ABSENT),
    "Admin/TestAccess": (_CLUSTER, _ABSENT),
    "Admin/CreateDelegationToken": (_TOKEN, _TOKEN),
    "Admin/RenewDelegationToken": (_NO_TOKEN, _NO_TOKEN),
    "Admin/ExpireDelegationToken": (_NO_TOKEN, _NO_TOKEN),
    "Admin/DescribeDelegationTokens": (_NOTHING, _ABSENT),
    "Controller/RegisterBroker": (_ABSENT, _DENIED_CLUSTER),
    "Controller/Heartbeat": (_ABSENT, _DENIED_CLUSTER),
    "Controller/AlterPartition": (_ABSENT, _DENIED_CLUSTER),
    "Controller/AssignReplicasToDirectories": (_ABSENT, _DENIED_CLUSTER),
    "Controller/AllocateProducerIds": (_ABSENT, _DENIED_CLUSTER),
    "Controller/ReadIndex": (_ABSENT, _DENIED_CLUSTER),
    "BrokerControl/Probe": (_DENIED_CLUSTER, _ABSENT),
    "Groups/FindCoordinator": (_GROUP, _ABSENT),
    "Groups/OffsetCommit": (_GROUP, _ABSENT),
    "Groups/OffsetFetch": (_GROUP, _ABSENT),
    "Groups/ListGroups": (_NOTHING, _ABSENT),
    "Groups/DescribeGroups": (_GROUP, _ABSENT),
    "Groups/DeleteGroups": (_GROUP, _ABSENT),
    "Groups/OffsetDelete": (_GROUP, _ABSENT),
    "Groups/DescribeShareGroupOffsets": (_GROUP, _ABSENT),
    "Groups/AlterShareGroupOffsets": (_GROUP, _ABSENT),
    "Groups/DeleteShareGroupOffsets": (_GROUP, _ABSENT),
    "Groups/DescribeShareWindow": (_GROUP, _ABSENT),
    "Log/Publish": (_TOPIC, _ABSENT),
    "Log/CreatePublisher": (_DENIED_CLUSTER, _ABSENT),
    "Log/FindPartitions": (_DENIED_TOPIC, _ABSENT),
    "Log/Subscribe": (_DENIED_TOPIC, _ABSENT),
    "Logins/LogIn": (_ABSENT, _ABSENT),
    "Raft/Vote": (_ABSENT, _DENIED_CLUSTER),
    "Raft/BeginQuorumEpoch": (_ABSENT, _DENIED_CLUSTER),
    "Raft/EndQuorumEpoch": (_ABSENT, _DENIED_CLUSTER),
    "Raft/Fetch": (_ABSENT, _DENIED_CLUSTER),
    "Raft/FetchSnapshot": (_ABSENT, _DENIED_CLUSTER),
    "Raft/DescribeQuorum": (_ABSENT, _CLUSTER),
    "Raft/TransferLeadership": (_ABSENT, _CLUSTER),
    "Raft/AddVoter": (_ABSENT, _CLUSTER),
    "Raft/RemoveVoter": (_ABSENT, _CLUSTER),
    "Raft/UpdateVoter": (_ABSENT, _DENIED_CLUSTER),
    "Raft/SupportedFeatures": (_ABSENT, _DENIED_CLUSTER),
    "Transactions/FindTransactionCoordinators": (_TRANSACTION, _ABSENT),
    "Transactions/InitTransactions": (_TRANSACTION, _ABSENT),
    "Transactions/DescribeTransactions": (_TRANSACTION, _ABSENT),
    "Transactions/ListTransactions": (_NOTHING, _ABSENT),
    "Transactions/ForgetTransactionalIds": (_TRANSACTION, _ABSENT),
    "Transactions/DescribeProducers": (_TOPIC, _ABSENT),
    "Transactions/AbortHangingTransaction": (_CLUSTER, _ABSENT),
}
"""On the broker's listener and on that of the controllers: a status, with the reason, or the errors
in the answer."""

SETTINGS: Final = {
    "listeners": f"PLAINTEXT://{HOST}:9092,LOGINS://{HOST}:9094",
    "grpc_listeners": f"PLAINTEXT://{HOST}:9192,LOGINS://{HOST}:9194",
    "listener_security_protocol_map": (
        "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter_broker_listener_name": "PLAINTEXT",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256",
    "delegation_token_secret_key": "secret",
    "authorizer_class_name": "stele",
    "super_users": "User:ANONYMOUS",
}


def test_every_method_has_a_row() -> None:
    assert ANSWERS.keys() == METHODS.keys()


@on_a_node.having(**SETTINGS)
async def test_a_caller_without_rights_gets_what_the_table_says(world: World) -> None:
    for name, expected in ANSWERS.items():
        assert (await outcome(world, 9192, name), await outcome(world, 9093, name)) == expected, (
            name
        )


@on_a_node.having(**SETTINGS)
async def test_a_stranger_gets_nothing_where_clients_log_in(world: World) -> None:
    for name, (at_broker, _) in ANSWERS.items():
        refused = "UNIMPLEMENTED" if at_broker == _ABSENT else "UNAUTHENTICATED"
        if name == "Logins/LogIn":
            refused = "INVALID_ARGUMENT"  # a login is in the metadata of its call
        assert await outcome(world, 9194, name) == refused, name
