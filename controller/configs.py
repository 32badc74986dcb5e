"""Changes and descriptions of the dynamic configuration of topics, groups, brokers and the cluster,
and of subscriptions to clients' metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import changes, is_leaderless
from metadata.client_metrics import CLIENT_METRICS_CONFIGS
from metadata.config_keys import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    NODE_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    Scope,
    Type,
    is_kept_on_cluster,
    validate_broker_config,
    validate_client_metrics,
    validate_group_config,
    validate_together,
    validate_topic_config,
)
from metadata.configs import CLUSTER, ConfigResource
from metadata.connection_settings import listener_limit
from metadata.effective import client_metrics_layers, sourced
from metadata.features import (
    DEAD_LETTERS,
    GROUP_CONFIGS,
    SHARE_VERSION,
    SUPPORTED,
    require,
    require_feature,
)
from metadata.group_config import GroupConfig, check_group
from metadata.image import MetadataImage
from metadata.internal_topics import CLEANUP, check_cleanup
from metadata.records import METADATA_VERSION
from metadata.scram_credentials import SECRET_BYTES, secret_record
from metadata.security_settings import store_key
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import ListOperation

# A change of one of these may allow an election, or end the eligibility of a replica.
_ELECTION = frozenset(
    {
        TopicConfig.min_insync_replicas.key.name,
        TopicConfig.unclean_leader_election_enable.key.name,
    }
)


_NAME_BYTES_MAX: Final = 32_767
"""As long as a string of Kafka's protocol can be, so no group and no subscription has a longer
name."""

_OF_NAMES: Mapping[int, tuple[str, str]] = {
    pb.ConfigResourceType.GROUP: ("group id", "there are no defaults for all groups"),
    pb.ConfigResourceType.CLIENT_METRICS: (
        "name of a subscription",
        "a subscription to clients' metrics needs a name",
    ),
}
"""Resources of any name, which need not exist: what the name is, and why it must not be empty."""

_KEYS: Mapping[int, Mapping[str, ConfigKey]] = {
    pb.ConfigResourceType.TOPIC: TOPIC_KEYS,
    pb.ConfigResourceType.BROKER: NODE_KEYS,
    pb.ConfigResourceType.GROUP: GROUP_KEYS,
    pb.ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""The configs that can be set on a resource, by its type."""


def bootstrap(context: Context, users: Sequence[pb.MetadataRecord] = ()) -> ControllerResult[None]:
    """The first records of a cluster: the highest level of every feature, and the
    min.insync.replicas on which controllers and leaders must agree (KIP-966).

    ``users``: the credentials of the first users of a new cluster (KIP-900).
    """
    decision = Decision(context)
    if METADATA_VERSION not in context.image.features:
        for name, supported in sorted(SUPPORTED.items()):
            level = pb.FeatureLevelRecord(name=name, level=supported.max_level)
            decision.add(pb.MetadataRecord(feature_level=level))
        if users:
            decision.add(secret_record(context.rng.randbytes(SECRET_BYTES)), *users)
    key = NODE_KEYS[TopicConfig.min_insync_replicas.key.name]
    if key.name not in context.image.config(CLUSTER):
        value = context.static.get(key.name, key.default)
        decision.add(_record(CLUSTER, key.name, value))
    return decision.result(None)


def _record(resource: ConfigResource, name: str, value: str | None) -> pb.MetadataRecord:
    record = pb.ConfigRecord(
        resource_type=cast("pb.ConfigResourceType", resource.type),
        resource_name=resource.name,
        name=name,
    )
    if value is not None:
        record.value = value
    return pb.MetadataRecord(config=record)


# ---------------------------------------------------------------------------------- altering


def alter_configs(
    context: Context, request: admin.AlterConfigsRequest
) -> ControllerResult[admin.AlterConfigsResponse]:
    """Set and remove single keys, or replace all. A resource changes as a whole or not at all.

    Raises ApiError POLICY_VIOLATION for a request of too many changes.
    """
    check_size(len(request.resources), "resources")
    check_size(sum(len(resource.changes) for resource in request.resources), "changes")
    decision = Decision(context)
    named = Counter((each.resource.type, each.resource.name) for each in request.resources)
    answers = []
    for resource in request.resources:
        answer = admin.AlterConfigsResponse.Resource(resource=resource.resource)
        try:
            if named[resource.resource.type, resource.resource.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            _alter(decision, resource)
        except ApiError as error:
            answer.error, answer.message = error.code, error.message
        answers.append(answer)
    response = admin.AlterConfigsResponse(resources=answers)
    return decision.nothing(response) if request.validate_only else decision.result(response)


def _alter(decision: Decision, request: admin.AlterConfigsRequest.Resource) -> None:
    resource = ConfigResource(request.resource.type, request.resource.name)
    _check_resource(decision.image, resource)
    _check_broker(decision.image, resource)
    before = decision.image.config(resource)
    values: dict[str, str | None] = {}
    if request.replace_all:
        kept = is_kept_on_cluster if resource == CLUSTER else (lambda name: False)
        values = dict.fromkeys(name for name in sorted(before) if not kept(name))
    named = Counter(change.name for change in request.changes)
    for change in request.changes:
        if named[change.name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice")
        values[change.name] = _new_value(decision, resource, change)
    for name, value in values.items():
        _check_change(decision.image, resource, name, value)
    after = {key: value for key, value in {**before, **values}.items() if value is not None}
    if resource.type == pb.ConfigResourceType.TOPIC:
        validate_together(after)
        if values.keys() & CLEANUP.get(resource.name, {}).keys():
            check_cleanup(resource.name, after)
    elif resource.type == pb.ConfigResourceType.GROUP:
        require(decision.image, GROUP_CONFIGS, "a configuration of a group")
        check_group(after, decision.context.static)
        if after.get(GroupConfig.errors_deadletterqueue_topic_name.key.name):
            require_feature(decision.image, SHARE_VERSION, DEAD_LETTERS, "a dead letter topic")
    elif resource.type == pb.ConfigResourceType.CLIENT_METRICS:
        require(decision.image, CLIENT_METRICS_CONFIGS, "a subscription to clients' metrics")
        validate_client_metrics(after)
    # A store's file may have changed though its name has not: the broker is told all the same.
    changed = {
        name: value
        for name, value in values.items()
        if before.get(name) != value or (value is not None and store_key(name) is not None)
    }
    decision.extend_asked([_record(resource, name, value) for name, value in changed.items()])
    if _ELECTION.intersection(values):
        _elect_anew(decision, resource)


def _new_value(
    decision: Decision, resource: ConfigResource, change: admin.AlterConfigsRequest.Change
) -> str | None:
    """The key's value after a change. None restores the default (KIP-339)."""
    value = change.value if change.HasField("value") else None
    if change.list_operation == ListOperation.REPLACE:
        return value
    verb = "appended to" if change.list_operation == ListOperation.APPEND else "subtracted from"
    key = _KEYS[resource.type].get(change.name)
    if key is None or value is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG if value is not None else ErrorCode.INVALID_REQUEST,
            f"{change.name}: only a value can be {verb} a key, and the key must exist",
        )
    if key.type is not Type.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name} is not a list: nothing can be {verb} it",
        )
    present = _items(_present_value(decision, resource, key))
    wanted = _items(value)
    if change.list_operation == ListOperation.APPEND:
        return ",".join({**present, **wanted})
    return ",".join(item for item in present if item not in wanted)


def _present_value(decision: Decision, resource: ConfigResource, key: ConfigKey) -> str:
    if resource.type == pb.ConfigResourceType.CLIENT_METRICS:
        return client_metrics_layers(decision.image, key, resource.name)[0].value
    return sourced(
        decision.image,
        key,
        static=decision.context.static,
        topic=resource.name if resource.type == pb.ConfigResourceType.TOPIC else None,
        broker_id=_broker_id(resource) if resource.type == pb.ConfigResourceType.BROKER else None,
    ).value


def _items(text: str) -> dict[str, None]:
    """The items of a comma-separated list, in order, each once."""
    return dict.fromkeys(item.strip() for item in text.split(",") if item.strip())


def _check_broker(image: MetadataImage, resource: ConfigResource) -> None:
    """Only a registered broker can have values of its own."""
    if resource.type == pb.ConfigResourceType.BROKER and resource != CLUSTER:
        broker_id = _broker_id(resource)
        if broker_id is None or image.broker(broker_id) is None:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {resource.name} is not registered"
            )


def _check_resource(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type == pb.ConfigResourceType.TOPIC:
        if image.topic(resource.name) is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name}"
            )
    elif resource.type in _OF_NAMES:
        kind, no_name = _OF_NAMES[resource.type]
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, no_name)
        size = len(resource.name.encode())
        if size > _NAME_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"a {kind} of {size} bytes: {_NAME_BYTES_MAX} are the most",
            )
    elif resource.type != pb.ConfigResourceType.BROKER:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"configurations of type {resource.type} are not known"
        )
    elif resource != CLUSTER and _broker_id(resource) is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{resource.name!r} is not a broker's number; empty it means all brokers",
        )


def _check_change(
    image: MetadataImage, resource: ConfigResource, name: str, value: str | None
) -> None:
    if resource.type == pb.ConfigResourceType.BROKER:
        validate_broker_config(name, value, one_broker=resource != CLUSTER)
        if value is not None:
            _check_listener(image, resource, name)
    elif resource.type == pb.ConfigResourceType.CLIENT_METRICS:
        pass  # they are checked all together
    elif value is not None or name not in _KEYS[resource.type]:
        is_topic = resource.type == pb.ConfigResourceType.TOPIC
        (validate_topic_config if is_topic else validate_group_config)(name, value or "")


def _check_listener(image: MetadataImage, resource: ConfigResource, name: str) -> None:
    """A limit of a listener that nobody has would do nothing."""
    limit = listener_limit(name)
    if limit is None:
        return
    brokers = [
        broker
        for broker in image.sorted_brokers()
        if resource == CLUSTER or broker.broker_id == _broker_id(resource)
    ]
    known = {each.listener.lower() for broker in brokers for each in broker.endpoints}
    if limit.listener not in known:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name}: there is no listener {limit.listener}: there are {', '.join(sorted(known))}",
        )


def _broker_id(resource: ConfigResource) -> int | None:
    name = resource.name
    return int(name) if name.isdecimal() and name.isascii() else None


def _elect_anew(decision: Decision, resource: ConfigResource) -> None:
    """Apply changed rules of election to the partitions.

    An unclean election may be allowed now. If fewer in-sync replicas are required, an ISR that was
    too small may commit again, and the replicas that left it are no longer eligible. The records
    that say so are in the same batch as the change, so no leader acts on the change before them.
    """
    image = decision.image
    topics = None
    if resource.type == pb.ConfigResourceType.TOPIC:
        topic = image.topic(resource.name)
        topics = [] if topic is None else [topic]
    decision.extend(
        changes(
            image,
            decision.context.static,
            lambda state: is_leaderless(state) or bool(state.elr or state.last_known_elr),
            topics=topics,
        )
    )


# ---------------------------------------------------------------------------------- describing


def describe_configs(
    image: MetadataImage,
    static: Mapping[str, str],
    request: admin.DescribeConfigsRequest,
    refusal: Callable[[admin.ConfigResource], ApiError | None],
) -> admin.DescribeConfigsResponse:
    """Every key of each resource with its value and the source of the value.

    ``static`` is the server.properties of the answering node. It does not know those of other
    nodes. ``refusal`` says why the caller may not see the configuration of a resource.
    """
    answers = []
    for wanted in request.resources:
        answer = admin.DescribeConfigsResponse.Resource(resource=wanted)
        try:
            if (why := refusal(wanted)) is not None:
                raise why
            answer.entries.extend(_entries(image, static, ConfigResource(wanted.type, wanted.name)))
        except ApiError as error:
            answer.error, answer.message = error.code, error.message
        answers.append(answer)
    return admin.DescribeConfigsResponse(resources=answers)


def _entries(
    image: MetadataImage, static: Mapping[str, str], resource: ConfigResource
) -> Iterable[admin.ConfigEntry]:
    _check_resource(image, resource)
    if resource.type == pb.ConfigResourceType.TOPIC:
        for key in TOPIC_KEYS.values():
            yield _entry(key, *sourced(image, key, static=static, topic=resource.name))
        return
    if resource.type == pb.ConfigResourceType.GROUP:
        for key in GROUP_KEYS.values():
            yield _entry(key, *sourced(image, key, static=static, group=resource.name))
        return
    if resource.type == pb.ConfigResourceType.CLIENT_METRICS:
        for key in CLIENT_METRICS_KEYS.values():
            first = client_metrics_layers(image, key, resource.name)[0]
            yield _entry(key, first.value, first.source)
        return
    for key in NODE_KEYS.values():
        found = sourced(image, key, static=static, broker_id=_broker_id(resource))
        yield _entry(key, *found)


def _entry(key: ConfigKey, value: str, source: str) -> admin.ConfigEntry:
    return admin.ConfigEntry(
        name=key.name,
        value=value,
        source=source,
        type=key.type.value,
        documentation=key.doc,
        read_only=key.scope is Scope.STATIC,
    )
