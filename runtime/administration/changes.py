"""The changes that administrators make: the one table of them.

Both faces of a broker (Kafka's protocol and gRPC), the controller and the simulator read it: the
messages of a change, how a request names its items, who may change an item, and how many items are
one decision. ``controller.administration`` has what the controller decides about each of them. A
new change is an entry here and one there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from metadata.topics import metric_name
from runtime.administration import client_quotas, permissions
from runtime.administration.permissions import Asked
from stele.errors import ApiError
from stele.wire.v1 import admin_pb2 as pb

Permission = Callable[[Asked, Any], ApiError | None]


def _one(_: Any) -> int:
    return 1


def _nothing(_: Any) -> int:
    return 0


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """How a change names the things that it changes. The answer has a result for each item, in
    order."""

    what: str
    """The plural, for errors."""
    lists: tuple[str, ...]
    """Fields of the request. An item is in one of them."""
    results: str
    """The field of the answer."""
    named: Callable[[Any], dict[str, Any]]
    """The fields of an item's result that tell which item it is of."""
    permission: Permission | None = None
    """Why a caller may not change an item; None: the permission is one of the whole cluster."""
    key: Callable[[Any], Hashable] = repr
    """Items of one key may collide. The controller has to see them together."""
    work: Callable[[Any], int] = _one
    at_once: int | None = None
    """How much work is one decision, which brokers apply and the controller makes in a turn of
    some milliseconds. None: every request is one decision."""
    made: Callable[[Any], int] = _nothing
    """How many partitions the result of an item tells of."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One kind of change."""

    request: type[Any]
    response: type[Any]
    items: Items | None = None
    """None: of the cluster as such."""
    permission: Permission = permissions.of_cluster
    """Why a caller may not make the change at all. Not asked where it depends on the item."""
    waits_for_brokers: bool = False
    """Whether the answer comes when every live broker has applied the decision: a change of what
    callers may do or are."""

    @property
    def name(self) -> str:
        return str(self.request.DESCRIPTOR.name).removesuffix("Request")

    @property
    def method(self) -> str:
        """The gRPC method."""
        return f"/stele.v1.Admin/{self.name}"


def _topic(item: Any) -> dict[str, Any]:
    return {"name": item.name}


def _content(item: Message) -> bytes:
    return item.SerializeToString(deterministic=True)


def _partition(item: Any) -> dict[str, Any]:
    return {"topic": item.topic, "partition": item.partition}


CREATE_TOPICS: Final = Change(
    pb.CreateTopicsRequest,
    pb.CreateTopicsResponse,
    Items(
        "topics",
        ("topics",),
        "topics",
        _topic,
        permissions.creation,
        key=lambda topic: metric_name(topic.name),
        work=lambda topic: max(1, topic.partitions, len(topic.assignments)),
        at_once=64,
        made=lambda result: result.partitions,
    ),
)
DELETE_TOPICS: Final = Change(
    pb.DeleteTopicsRequest,
    pb.DeleteTopicsResponse,
    Items(
        "topics",
        ("names", "topic_ids"),
        "topics",
        lambda item: {"name": item} if isinstance(item, str) else {"topic_id": item},
        permissions.deletion,
        key=lambda item: item,
        at_once=64,
    ),
)
CREATE_PARTITIONS: Final = Change(
    pb.CreatePartitionsRequest,
    pb.CreatePartitionsResponse,
    Items(
        "topics",
        ("topics",),
        "topics",
        _topic,
        permissions.growth,
        key=lambda wish: wish.name,
        work=lambda wish: max(1, wish.count),
        at_once=64,
        made=lambda result: result.partitions,
    ),
)
ALTER_CONFIGS: Final = Change(
    pb.AlterConfigsRequest,
    pb.AlterConfigsResponse,
    Items(
        "resources",
        ("resources",),
        "resources",
        lambda altered: {"resource": altered.resource},
        permissions.alteration,
        key=lambda altered: (altered.resource.type, altered.resource.name),
        work=lambda altered: 1 + len(altered.changes),
        at_once=256,
    ),
)
ELECT_LEADERS: Final = Change(
    pb.ElectLeadersRequest,
    pb.ElectLeadersResponse,
    Items(
        "partitions",
        ("partitions",),
        "partitions",
        _partition,
        key=lambda wish: (wish.topic, wish.partition),
        at_once=500,
    ),
)
ALTER_PARTITION_REASSIGNMENTS: Final = Change(
    pb.AlterPartitionReassignmentsRequest,
    pb.AlterPartitionReassignmentsResponse,
    Items(
        "partitions",
        ("partitions",),
        "partitions",
        _partition,
        key=lambda wish: (wish.topic, wish.partition),
        at_once=500,
    ),
)
UNREGISTER_BROKER: Final = Change(pb.UnregisterBrokerRequest, pb.UnregisterBrokerResponse)
UPDATE_FEATURES: Final = Change(pb.UpdateFeaturesRequest, pb.UpdateFeaturesResponse)
CREATE_ACLS: Final = Change(
    pb.CreateAclsRequest,
    pb.CreateAclsResponse,
    Items("ACLs", ("acls",), "results", lambda acl: {}, key=_content, at_once=256),
    permission=permissions.of_acls,
    waits_for_brokers=True,
)
DELETE_ACLS: Final = Change(
    pb.DeleteAclsRequest,
    pb.DeleteAclsResponse,
    Items("filters of ACLs", ("filters",), "results", lambda wanted: {}),
    permission=permissions.of_acls,
    waits_for_brokers=True,
)
ALTER_USER_SCRAM_CREDENTIALS: Final = Change(
    pb.AlterUserScramCredentialsRequest,
    pb.AlterUserScramCredentialsResponse,
    waits_for_brokers=True,
)
ALTER_CLIENT_QUOTAS: Final = Change(
    pb.AlterClientQuotasRequest,
    pb.AlterClientQuotasResponse,
    Items(
        "entities of quotas",
        ("entries",),
        "entries",
        lambda entry: {"entity": entry.entity},
        key=client_quotas.collision_key,
        work=lambda entry: 1 + len(entry.ops),
        at_once=256,
    ),
    permission=permissions.of_quotas,
    waits_for_brokers=True,
)
CREATE_DELEGATION_TOKEN: Final = Change(
    pb.CreateDelegationTokenRequest,
    pb.CreateDelegationTokenResponse,
    permission=permissions.token_creation,
    waits_for_brokers=True,
)
RENEW_DELEGATION_TOKEN: Final = Change(
    pb.RenewDelegationTokenRequest,
    pb.RenewDelegationTokenResponse,
    permission=permissions.of_tokens,
    waits_for_brokers=True,
)
EXPIRE_DELEGATION_TOKEN: Final = Change(
    pb.ExpireDelegationTokenRequest,
    pb.ExpireDelegationTokenResponse,
    permission=permissions.of_tokens,
    waits_for_brokers=True,
)

CHANGES: Final = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    UNREGISTER_BROKER,
    ALTER_CONFIGS,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    UPDATE_FEATURES,
    CREATE_ACLS,
    DELETE_ACLS,
    ALTER_USER_SCRAM_CREDENTIALS,
    ALTER_CLIENT_QUOTAS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)

_BY_REQUEST: Final = {each.request: each for each in CHANGES}


def change_of(request: Message) -> Change:
    """The kind of change that a request asks for."""
    return _BY_REQUEST[type(request)]
