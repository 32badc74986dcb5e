"""What each unary method of the control plane for clients needs: a request, and the permissions for
it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from runtime.administration.acls import message_of
from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from runtime.authorization.caller import ANONYMOUS
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import groups_pb2 as groups
from stele.wire.v1 import raft_pb2 as raft
from stele.wire.v1 import transactions_pb2 as transactions
from tests.broker.service.asked import ANN, BOB, C31, D64, D65, G30, T29, X53, G, X
from tests.support.acls import acl
from tests.support.authorizer import Need

Way = tuple[Need, ...]
THERE: Final = topic_resource("there")
NEW: Final = topic_resource("new")
O = Operation  # noqa: E741
_TOPIC, _GROUP, _BROKER, _METRICS = 2, 32, 4, 16


class Asked(NamedTuple):
    """As ``tests.broker.service.asked.Asked``."""

    service: str
    method: str
    request: Message
    ways: tuple[Way, ...]
    denied: ErrorCode | None
    principal: str = ANONYMOUS


def _cluster(*operations: Operation) -> tuple[Way, ...]:
    """Any of them."""
    return tuple(((each, CLUSTER),) for each in operations)


def _of(*needs: Need) -> tuple[Way, ...]:
    return (needs,)


def _admin(
    name: str,
    request: Message,
    ways: tuple[Way, ...],
    denied: ErrorCode | None,
    principal: str = ANONYMOUS,
) -> Asked:
    return Asked("Admin", name, request, ways, denied, principal)


def _altered(kind: int, name: str) -> Any:
    return admin.AlterConfigsRequest(
        resources=[
            admin.AlterConfigsRequest.Resource(resource=admin.ConfigResource(type=kind, name=name))
        ]
    )


def _described(kind: int, name: str) -> Any:
    return admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=kind, name=name)])


_ADMIN: Final = (
    _admin(
        "CreateTopics", admin.CreateTopicsRequest(topics=[admin.NewTopic(name="new")]),
        (((O.CREATE, NEW),), ((O.CREATE, CLUSTER),)), T29,
    ),
    _admin(
        "DeleteTopics", admin.DeleteTopicsRequest(names=["there"]),
        (((O.DELETE, THERE),), ((O.DELETE, CLUSTER),)), T29,
    ),
    _admin(
        "CreatePartitions",
        admin.CreatePartitionsRequest(
            topics=[admin.CreatePartitionsRequest.Topic(name="there", count=2)]
        ),
        _of((O.ALTER, THERE)), T29,
    ),
    _admin("AlterConfigs", _altered(_TOPIC, "there"), _of((O.ALTER_CONFIGS, THERE)), T29),
    _admin("AlterConfigs", _altered(_GROUP, "g"), _of((O.ALTER_CONFIGS, G)), G30),
    _admin("AlterConfigs", _altered(_BROKER, "1"), _cluster(O.ALTER_CONFIGS), C31),
    _admin("DescribeConfigs", _described(_TOPIC, "there"), _of((O.DESCRIBE_CONFIGS, THERE)), T29),
    _admin("DescribeConfigs", _described(_GROUP, "g"), _of((O.DESCRIBE_CONFIGS, G)), G30),
    _admin("DescribeConfigs", _described(_BROKER, "1"), _cluster(O.DESCRIBE_CONFIGS), C31),
    _admin("DescribeConfigs", _described(_METRICS, "m"), _cluster(O.DESCRIBE_CONFIGS), C31),
    _admin(
        "ListConfigResources", admin.ListConfigResourcesRequest(),
        _cluster(O.DESCRIBE_CONFIGS), C31,
    ),
    _admin(
        "DescribeConnections", admin.DescribeConnectionsRequest(),
        _cluster(O.DESCRIBE), C31,
    ),
    _admin(
        "DescribeCertificates", admin.DescribeCertificatesRequest(),
        _cluster(O.DESCRIBE), C31,
    ),
    _admin("ElectLeaders", admin.ElectLeadersRequest(), _cluster(O.ALTER), C31),
    _admin(
        "AlterPartitionReassignments", admin.AlterPartitionReassignmentsRequest(),
        _cluster(O.ALTER), C31,
    ),
    _admin(
        "ListPartitionReassignments", admin.ListPartitionReassignmentsRequest(),
        _cluster(O.DESCRIBE), C31,
    ),
    _admin("UpdateFeatures", admin.UpdateFeaturesRequest(), _cluster(O.ALTER), C31),
    _admin("DescribeFeatures", admin.DescribeFeaturesRequest(), (), None),
    _admin(
        "AlterUserScramCredentials", admin.AlterUserScramCredentialsRequest(),
        _cluster(O.ALTER), C31,
    ),
    _admin(
        "DescribeUserScramCredentials", admin.DescribeUserScramCredentialsRequest(),
        _cluster(O.DESCRIBE), C31,
    ),
    _admin(
        "CreateDelegationToken", admin.CreateDelegationTokenRequest(owner="User:bob"),
        _of((O.CREATE_TOKENS, BOB)), D65, ANN,
    ),
    _admin("CreateDelegationToken", admin.CreateDelegationTokenRequest(), (), None, ANN),
    _admin("RenewDelegationToken", admin.RenewDelegationTokenRequest(), (), D64),
    _admin("ExpireDelegationToken", admin.ExpireDelegationTokenRequest(), (), D64),
    _admin("DescribeDelegationTokens", admin.DescribeDelegationTokensRequest(), (), None, ANN),
    _admin(
        "AlterClientQuotas", admin.AlterClientQuotasRequest(),
        _cluster(O.ALTER_CONFIGS), C31,
    ),
    _admin(
        "DescribeClientQuotas", admin.DescribeClientQuotasRequest(),
        _cluster(O.DESCRIBE_CONFIGS), C31,
    ),
    _admin(
        "ExplainClientQuotas", admin.ExplainClientQuotasRequest(),
        _cluster(O.DESCRIBE_CONFIGS), C31,
    ),
    _admin(
        "UnregisterBroker", admin.UnregisterBrokerRequest(broker_id=99), _cluster(O.ALTER), C31
    ),
    _admin("DescribeCluster", admin.DescribeClusterRequest(), (), None),
    _admin(
        "DescribeTopics", admin.DescribeTopicsRequest(names=["there"]),
        _of((O.DESCRIBE, THERE)), T29,
    ),
    _admin("DescribeQuorum", raft.DescribeQuorumRequest(), _cluster(O.DESCRIBE), C31),
    _admin("TransferLeadership", raft.TransferLeadershipRequest(), _cluster(O.ALTER), C31),
    _admin("AddVoter", raft.AddVoterRequest(), _cluster(O.ALTER), C31),
    _admin("RemoveVoter", raft.RemoveVoterRequest(), _cluster(O.ALTER), C31),
    _admin(
        "ReadMetadataLog", admin.ReadMetadataLogRequest(),
        _of((O.DESCRIBE, CLUSTER), (O.DESCRIBE_CONFIGS, CLUSTER)), C31,
    ),
    _admin("DescribeLogDirs", admin.DescribeLogDirsRequest(), _cluster(O.DESCRIBE), C31),
    _admin(
        "AlterReplicaLogDirs",
        admin.AlterReplicaLogDirsRequest(
            replicas=[admin.AlterReplicaLogDirsRequest.Replica(topic="there", path="/data/a")]
        ),
        _cluster(O.ALTER), C31,
    ),
    _admin(
        "DeleteRecords",
        admin.DeleteRecordsRequest(
            partitions=[admin.DeleteRecordsRequest.Partition(topic="there")]
        ),
        _of((O.DELETE, THERE)), T29,
    ),
    _admin(
        "CreateAcls", admin.CreateAclsRequest(acls=[message_of(acl())]), _cluster(O.ALTER), C31
    ),
    _admin("DeleteAcls", admin.DeleteAclsRequest(), _cluster(O.ALTER), C31),
    _admin("DescribeAcls", admin.DescribeAclsRequest(), _cluster(O.DESCRIBE), C31),
    _admin(
        "TestAccess",
        admin.TestAccessRequest(
            principal="User:a", operation=3, resource_type=2, resource_name="there"
        ),
        _cluster(O.DESCRIBE), C31,
    ),
)  # fmt: skip


def _groups(name: str, request: Message, ways: tuple[Way, ...], denied: ErrorCode | None) -> Asked:
    return Asked("Groups", name, request, ways, denied)


_GROUPS: Final = (
    _groups(
        "FindCoordinator", groups.FindCoordinatorRequest(groups=["g"]), _of((O.DESCRIBE, G)), G30
    ),
    _groups(
        "OffsetCommit",
        groups.OffsetCommitRequest(
            group="g",
            partitions=[groups.OffsetCommitRequest.Partition(topic="there", offset=1)],
        ),
        _of((O.READ, G), (O.READ, THERE)), G30,
    ),
    _groups(
        "OffsetFetch",
        groups.OffsetFetchRequest(
            group="g", topics=[groups.OffsetFetchRequest.Topic(topic="there", partitions=[0])]
        ),
        _of((O.DESCRIBE, G), (O.DESCRIBE, THERE)), G30,
    ),
    _groups("ListGroups", groups.ListGroupsRequest(), (), None),
    _groups(
        "DescribeGroups", groups.DescribeGroupsRequest(groups=["g"]), _of((O.DESCRIBE, G)), G30
    ),
    _groups("DeleteGroups", groups.DeleteGroupsRequest(groups=["g"]), _of((O.DELETE, G)), G30),
    _groups(
        "OffsetDelete",
        groups.OffsetDeleteRequest(
            group="g", topics=[groups.OffsetDeleteRequest.Topic(topic="there", partitions=[0])]
        ),
        _of((O.DELETE, G), (O.READ, THERE)), G30,
    ),
    _groups(
        "DescribeShareGroupOffsets",
        groups.DescribeShareGroupOffsetsRequest(
            group="g",
            topics=[
                groups.DescribeShareGroupOffsetsRequest.Topic(topic="there", partitions=[0])
            ],
        ),
        _of((O.DESCRIBE, G), (O.DESCRIBE, THERE)), G30,
    ),
    _groups(
        "AlterShareGroupOffsets",
        groups.AlterShareGroupOffsetsRequest(
            group="g",
            partitions=[
                groups.AlterShareGroupOffsetsRequest.Partition(topic="there", start_offset=1)
            ],
        ),
        _of((O.READ, G), (O.READ, THERE)), G30,
    ),
    _groups(
        "DeleteShareGroupOffsets",
        groups.DeleteShareGroupOffsetsRequest(group="g", topics=["there"]),
        _of((O.DELETE, G), (O.READ, THERE)), G30,
    ),
    _groups(
        "DescribeShareWindow",
        groups.DescribeShareWindowRequest(group="g", topic="there"),
        _of((O.DESCRIBE, G), (O.DESCRIBE, THERE)), G30,
    ),
)  # fmt: skip


def _transactions(
    name: str, request: Message, ways: tuple[Way, ...], denied: ErrorCode | None
) -> Asked:
    return Asked("Transactions", name, request, ways, denied)


_TRANSACTIONS: Final = (
    _transactions(
        "FindTransactionCoordinators",
        transactions.FindTransactionCoordinatorsRequest(transactional_ids=["x"]),
        _of((O.DESCRIBE, X)), X53,
    ),
    _transactions(
        "InitTransactions",
        transactions.InitTransactionsRequest(transactional_id="x", transaction_timeout_ms=1000),
        _of((O.WRITE, X)), X53,
    ),
    _transactions(
        "DescribeTransactions", transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
        _of((O.DESCRIBE, X)), X53,
    ),
    _transactions("ListTransactions", transactions.ListTransactionsRequest(), (), None),
    _transactions(
        "ForgetTransactionalIds",
        transactions.ForgetTransactionalIdsRequest(transactional_ids=["x"]),
        _of((O.WRITE, X)), X53,
    ),
    _transactions(
        "DescribeProducers",
        transactions.DescribeProducersRequest(
            topics=[transactions.DescribeProducersRequest.Topic(topic="there", partitions=[0])]
        ),
        _of((O.READ, THERE)), T29,
    ),
    _transactions(
        "AbortHangingTransaction",
        transactions.AbortHangingTransactionRequest(topic="there", producer_id=1),
        _of((O.ALTER, CLUSTER), (O.READ, THERE)), C31,
    ),
)  # fmt: skip

ASKED: Final = (*_ADMIN, *_GROUPS, *_TRANSACTIONS)

OF_THE_GATEWAY: Final = frozenset(("CreatePublisher", "FindPartitions", "Publish", "Subscribe"))
"""The methods of Log, which need a whole node: tests/broker/gateway/test_thin_authorization.py."""
