from stele.wire.v1 import caller_pb2 as _caller_pb2
from stele.wire.v1 import errors_pb2 as _errors_pb2
from stele.wire.v1 import raft_pb2 as _raft_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLACE: _ClassVar[ListOperation]
    APPEND: _ClassVar[ListOperation]
    SUBTRACT: _ClassVar[ListOperation]

class UpgradeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPGRADE_TYPE_UNSPECIFIED: _ClassVar[UpgradeType]
    UPGRADE: _ClassVar[UpgradeType]
    SAFE_DOWNGRADE: _ClassVar[UpgradeType]
    UNSAFE_DOWNGRADE: _ClassVar[UpgradeType]
REPLACE: ListOperation
APPEND: ListOperation
SUBTRACT: ListOperation
UPGRADE_TYPE_UNSPECIFIED: UpgradeType
UPGRADE: UpgradeType
SAFE_DOWNGRADE: UpgradeType
UNSAFE_DOWNGRADE: UpgradeType

class DescribeLogDirsRequest(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("topic", "partition")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DescribeLogDirsRequest.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[DescribeLogDirsRequest.Partition, _Mapping]]] = ...) -> None: ...

class DescribeLogDirsResponse(_message.Message):
    __slots__ = ("error", "message", "directories")
    class Replica(_message.Message):
        __slots__ = ("topic", "partition", "size_bytes", "offset_lag", "is_future")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
        OFFSET_LAG_FIELD_NUMBER: _ClassVar[int]
        IS_FUTURE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        size_bytes: int
        offset_lag: int
        is_future: bool
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., size_bytes: _Optional[int] = ..., offset_lag: _Optional[int] = ..., is_future: _Optional[bool] = ...) -> None: ...
    class Directory(_message.Message):
        __slots__ = ("path", "error", "total_bytes", "usable_bytes", "replicas", "message")
        PATH_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
        USABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        path: str
        error: int
        total_bytes: int
        usable_bytes: int
        replicas: _containers.RepeatedCompositeFieldContainer[DescribeLogDirsResponse.Replica]
        message: str
        def __init__(self, path: _Optional[str] = ..., error: _Optional[int] = ..., total_bytes: _Optional[int] = ..., usable_bytes: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[DescribeLogDirsResponse.Replica, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    directories: _containers.RepeatedCompositeFieldContainer[DescribeLogDirsResponse.Directory]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., directories: _Optional[_Iterable[_Union[DescribeLogDirsResponse.Directory, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDirsRequest(_message.Message):
    __slots__ = ("replicas",)
    class Replica(_message.Message):
        __slots__ = ("topic", "partition", "path")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        PATH_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        path: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDirsRequest.Replica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[AlterReplicaLogDirsRequest.Replica, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDirsResponse(_message.Message):
    __slots__ = ("replicas",)
    class Replica(_message.Message):
        __slots__ = ("topic", "partition", "error", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        message: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDirsResponse.Replica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[AlterReplicaLogDirsResponse.Replica, _Mapping]]] = ...) -> None: ...

class ReadMetadataLogRequest(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ReadMetadataLogResponse(_message.Message):
    __slots__ = ("snapshot", "decisions", "next_offset", "high_watermark")
    class Decision(_message.Message):
        __slots__ = ("base_offset", "epoch", "timestamp_ms", "records")
        BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        base_offset: int
        epoch: int
        timestamp_ms: int
        records: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, base_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...
    class Snapshot(_message.Message):
        __slots__ = ("end_offset", "timestamp_ms", "records")
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        end_offset: int
        timestamp_ms: int
        records: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, end_offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    snapshot: ReadMetadataLogResponse.Snapshot
    decisions: _containers.RepeatedCompositeFieldContainer[ReadMetadataLogResponse.Decision]
    next_offset: int
    high_watermark: int
    def __init__(self, snapshot: _Optional[_Union[ReadMetadataLogResponse.Snapshot, _Mapping]] = ..., decisions: _Optional[_Iterable[_Union[ReadMetadataLogResponse.Decision, _Mapping]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class NewTopic(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "assignments", "configs")
    class Assignment(_message.Message):
        __slots__ = ("partition", "replicas")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        partition: int
        replicas: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[NewTopic.Assignment]
    configs: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[NewTopic.Assignment, _Mapping]]] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "validate_only", "on_behalf_of", "request_id")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[NewTopic]
    validate_only: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[NewTopic, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "topics", "metadata_offset", "message", "already_done", "throttle_time_ms")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "error", "message", "partitions", "replication_factor")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: bytes
        error: int
        message: str
        partitions: int
        replication_factor: int
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[CreateTopicsResponse.Topic]
    metadata_offset: int
    message: str
    already_done: bool
    throttle_time_ms: int
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[CreateTopicsResponse.Topic, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("names", "topic_ids", "on_behalf_of", "request_id")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    topic_ids: _containers.RepeatedScalarFieldContainer[bytes]
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, names: _Optional[_Iterable[str]] = ..., topic_ids: _Optional[_Iterable[bytes]] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "topics", "metadata_offset", "message", "already_done", "throttle_time_ms")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "error", "message")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: bytes
        error: int
        message: str
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[DeleteTopicsResponse.Topic]
    metadata_offset: int
    message: str
    already_done: bool
    throttle_time_ms: int
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[DeleteTopicsResponse.Topic, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "validate_only", "on_behalf_of", "request_id")
    class Replicas(_message.Message):
        __slots__ = ("ids",)
        IDS_FIELD_NUMBER: _ClassVar[int]
        ids: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...
    class Assignments(_message.Message):
        __slots__ = ("partitions",)
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        partitions: _containers.RepeatedCompositeFieldContainer[CreatePartitionsRequest.Replicas]
        def __init__(self, partitions: _Optional[_Iterable[_Union[CreatePartitionsRequest.Replicas, _Mapping]]] = ...) -> None: ...
    class Topic(_message.Message):
        __slots__ = ("name", "count", "assignments")
        NAME_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
        name: str
        count: int
        assignments: CreatePartitionsRequest.Assignments
        def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Union[CreatePartitionsRequest.Assignments, _Mapping]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreatePartitionsRequest.Topic]
    validate_only: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[CreatePartitionsRequest.Topic, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "topics", "metadata_offset", "message", "already_done", "throttle_time_ms")
    class Topic(_message.Message):
        __slots__ = ("name", "error", "message", "partitions")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        name: str
        error: int
        message: str
        partitions: int
        def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    topics: _containers.RepeatedCompositeFieldContainer[CreatePartitionsResponse.Topic]
    metadata_offset: int
    message: str
    already_done: bool
    throttle_time_ms: int
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[CreatePartitionsResponse.Topic, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: int
    name: str
    def __init__(self, type: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "validate_only", "on_behalf_of", "request_id")
    class Change(_message.Message):
        __slots__ = ("name", "value", "list_operation")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        LIST_OPERATION_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: str
        list_operation: ListOperation
        def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., list_operation: _Optional[_Union[ListOperation, str]] = ...) -> None: ...
    class Resource(_message.Message):
        __slots__ = ("resource", "changes", "replace_all")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        CHANGES_FIELD_NUMBER: _ClassVar[int]
        REPLACE_ALL_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        changes: _containers.RepeatedCompositeFieldContainer[AlterConfigsRequest.Change]
        replace_all: bool
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[AlterConfigsRequest.Change, _Mapping]]] = ..., replace_all: _Optional[bool] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsRequest.Resource]
    validate_only: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, resources: _Optional[_Iterable[_Union[AlterConfigsRequest.Resource, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "resources", "metadata_offset", "message", "already_done")
    class Resource(_message.Message):
        __slots__ = ("resource", "error", "message")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        error: int
        message: str
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsResponse.Resource]
    metadata_offset: int
    message: str
    already_done: bool
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[AlterConfigsResponse.Resource, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("resources", "min_metadata_offset", "linearizable")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ConfigResource]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[ConfigResource, _Mapping]]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value", "source", "type", "documentation", "read_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    type: str
    documentation: str
    read_only: bool
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ..., type: _Optional[str] = ..., documentation: _Optional[str] = ..., read_only: _Optional[bool] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("resources",)
    class Resource(_message.Message):
        __slots__ = ("resource", "error", "message", "entries")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        error: int
        message: str
        entries: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[DescribeConfigsResponse.Resource]
    def __init__(self, resources: _Optional[_Iterable[_Union[DescribeConfigsResponse.Resource, _Mapping]]] = ...) -> None: ...

class ListConfigResourcesRequest(_message.Message):
    __slots__ = ("types", "min_metadata_offset", "linearizable")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[int]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, types: _Optional[_Iterable[int]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class ListConfigResourcesResponse(_message.Message):
    __slots__ = ("error", "message", "resources")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    resources: _containers.RepeatedCompositeFieldContainer[ConfigResource]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[ConfigResource, _Mapping]]] = ...) -> None: ...

class DescribeConnectionsRequest(_message.Message):
    __slots__ = ("after", "client_id")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    after: str
    client_id: str
    def __init__(self, after: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class DescribeConnectionsResponse(_message.Message):
    __slots__ = ("error", "message", "connections", "next")
    class Connection(_message.Message):
        __slots__ = ("principal", "client_id", "software_name", "software_version", "listener", "peer", "connected_ms", "idle_ms", "bytes_in", "bytes_out", "requests", "in_flight", "errors", "throttles", "throttled_ms", "is_throttled", "pushed_lag", "pushed_latency_ms", "denials")
        PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        SOFTWARE_NAME_FIELD_NUMBER: _ClassVar[int]
        SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
        LISTENER_FIELD_NUMBER: _ClassVar[int]
        PEER_FIELD_NUMBER: _ClassVar[int]
        CONNECTED_MS_FIELD_NUMBER: _ClassVar[int]
        IDLE_MS_FIELD_NUMBER: _ClassVar[int]
        BYTES_IN_FIELD_NUMBER: _ClassVar[int]
        BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
        REQUESTS_FIELD_NUMBER: _ClassVar[int]
        IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
        ERRORS_FIELD_NUMBER: _ClassVar[int]
        THROTTLES_FIELD_NUMBER: _ClassVar[int]
        THROTTLED_MS_FIELD_NUMBER: _ClassVar[int]
        IS_THROTTLED_FIELD_NUMBER: _ClassVar[int]
        PUSHED_LAG_FIELD_NUMBER: _ClassVar[int]
        PUSHED_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
        DENIALS_FIELD_NUMBER: _ClassVar[int]
        principal: str
        client_id: str
        software_name: str
        software_version: str
        listener: str
        peer: str
        connected_ms: int
        idle_ms: int
        bytes_in: int
        bytes_out: int
        requests: int
        in_flight: int
        errors: int
        throttles: int
        throttled_ms: int
        is_throttled: bool
        pushed_lag: int
        pushed_latency_ms: float
        denials: DescribeConnectionsResponse.Denials
        def __init__(self, principal: _Optional[str] = ..., client_id: _Optional[str] = ..., software_name: _Optional[str] = ..., software_version: _Optional[str] = ..., listener: _Optional[str] = ..., peer: _Optional[str] = ..., connected_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., requests: _Optional[int] = ..., in_flight: _Optional[int] = ..., errors: _Optional[int] = ..., throttles: _Optional[int] = ..., throttled_ms: _Optional[int] = ..., is_throttled: _Optional[bool] = ..., pushed_lag: _Optional[int] = ..., pushed_latency_ms: _Optional[float] = ..., denials: _Optional[_Union[DescribeConnectionsResponse.Denials, _Mapping]] = ...) -> None: ...
    class Denials(_message.Message):
        __slots__ = ("times", "operation", "resource_type", "resource_name", "ago_ms", "rule")
        TIMES_FIELD_NUMBER: _ClassVar[int]
        OPERATION_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
        RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
        AGO_MS_FIELD_NUMBER: _ClassVar[int]
        RULE_FIELD_NUMBER: _ClassVar[int]
        times: int
        operation: str
        resource_type: str
        resource_name: str
        ago_ms: int
        rule: str
        def __init__(self, times: _Optional[int] = ..., operation: _Optional[str] = ..., resource_type: _Optional[str] = ..., resource_name: _Optional[str] = ..., ago_ms: _Optional[int] = ..., rule: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    connections: _containers.RepeatedCompositeFieldContainer[DescribeConnectionsResponse.Connection]
    next: str
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[DescribeConnectionsResponse.Connection, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DescribeCertificatesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeCertificatesResponse(_message.Message):
    __slots__ = ("error", "message", "certificates")
    class Certificate(_message.Message):
        __slots__ = ("listener", "valid_until_ms", "refusal")
        LISTENER_FIELD_NUMBER: _ClassVar[int]
        VALID_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
        REFUSAL_FIELD_NUMBER: _ClassVar[int]
        listener: str
        valid_until_ms: int
        refusal: str
        def __init__(self, listener: _Optional[str] = ..., valid_until_ms: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    certificates: _containers.RepeatedCompositeFieldContainer[DescribeCertificatesResponse.Certificate]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., certificates: _Optional[_Iterable[_Union[DescribeCertificatesResponse.Certificate, _Mapping]]] = ...) -> None: ...

class TopicPartitionName(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("partitions", "unclean", "on_behalf_of", "request_id")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitionName]
    unclean: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartitionName, _Mapping]]] = ..., unclean: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("error", "leader_id", "partitions", "metadata_offset", "message", "already_done")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        message: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[ElectLeadersResponse.Partition]
    metadata_offset: int
    message: str
    already_done: bool
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ElectLeadersResponse.Partition, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ...) -> None: ...

class AlterPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "keep_replication_factor", "on_behalf_of", "request_id")
    class Replicas(_message.Message):
        __slots__ = ("ids",)
        IDS_FIELD_NUMBER: _ClassVar[int]
        ids: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "target")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        TARGET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        target: AlterPartitionReassignmentsRequest.Replicas
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., target: _Optional[_Union[AlterPartitionReassignmentsRequest.Replicas, _Mapping]] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEEP_REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionReassignmentsRequest.Partition]
    keep_replication_factor: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, partitions: _Optional[_Iterable[_Union[AlterPartitionReassignmentsRequest.Partition, _Mapping]]] = ..., keep_replication_factor: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "partitions", "metadata_offset", "message", "already_done")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        message: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionReassignmentsResponse.Partition]
    metadata_offset: int
    message: str
    already_done: bool
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionReassignmentsResponse.Partition, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ...) -> None: ...

class ListPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "on_behalf_of")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitionName]
    on_behalf_of: _caller_pb2.OnBehalfOf
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartitionName, _Mapping]]] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ...) -> None: ...

class ListPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "partitions", "metadata_offset", "message")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "replicas", "adding_replicas", "removing_replicas")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
        REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        replicas: _containers.RepeatedScalarFieldContainer[int]
        adding_replicas: _containers.RepeatedScalarFieldContainer[int]
        removing_replicas: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[ListPartitionReassignmentsResponse.Partition]
    metadata_offset: int
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[ListPartitionReassignmentsResponse.Partition, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AlterUserScramCredentialsRequest(_message.Message):
    __slots__ = ("deletions", "upsertions", "on_behalf_of", "request_id")
    class Deletion(_message.Message):
        __slots__ = ("user", "mechanism")
        USER_FIELD_NUMBER: _ClassVar[int]
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        user: str
        mechanism: int
        def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...
    class Upsertion(_message.Message):
        __slots__ = ("user", "mechanism", "iterations", "salt", "salted_password")
        USER_FIELD_NUMBER: _ClassVar[int]
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        ITERATIONS_FIELD_NUMBER: _ClassVar[int]
        SALT_FIELD_NUMBER: _ClassVar[int]
        SALTED_PASSWORD_FIELD_NUMBER: _ClassVar[int]
        user: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[int] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., salted_password: _Optional[bytes] = ...) -> None: ...
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UPSERTIONS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    deletions: _containers.RepeatedCompositeFieldContainer[AlterUserScramCredentialsRequest.Deletion]
    upsertions: _containers.RepeatedCompositeFieldContainer[AlterUserScramCredentialsRequest.Upsertion]
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, deletions: _Optional[_Iterable[_Union[AlterUserScramCredentialsRequest.Deletion, _Mapping]]] = ..., upsertions: _Optional[_Iterable[_Union[AlterUserScramCredentialsRequest.Upsertion, _Mapping]]] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterUserScramCredentialsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "users", "metadata_offset", "message", "already_done", "lagging_brokers")
    class User(_message.Message):
        __slots__ = ("user", "error", "message")
        USER_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        user: str
        error: int
        message: str
        def __init__(self, user: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    users: _containers.RepeatedCompositeFieldContainer[AlterUserScramCredentialsResponse.User]
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., users: _Optional[_Iterable[_Union[AlterUserScramCredentialsResponse.User, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeUserScramCredentialsRequest(_message.Message):
    __slots__ = ("users", "min_metadata_offset", "linearizable")
    USERS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, users: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class DescribeUserScramCredentialsResponse(_message.Message):
    __slots__ = ("error", "message", "users")
    class Credential(_message.Message):
        __slots__ = ("mechanism", "iterations")
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        ITERATIONS_FIELD_NUMBER: _ClassVar[int]
        mechanism: int
        iterations: int
        def __init__(self, mechanism: _Optional[int] = ..., iterations: _Optional[int] = ...) -> None: ...
    class User(_message.Message):
        __slots__ = ("user", "error", "message", "credentials")
        USER_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
        user: str
        error: int
        message: str
        credentials: _containers.RepeatedCompositeFieldContainer[DescribeUserScramCredentialsResponse.Credential]
        def __init__(self, user: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., credentials: _Optional[_Iterable[_Union[DescribeUserScramCredentialsResponse.Credential, _Mapping]]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    users: _containers.RepeatedCompositeFieldContainer[DescribeUserScramCredentialsResponse.User]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., users: _Optional[_Iterable[_Union[DescribeUserScramCredentialsResponse.User, _Mapping]]] = ...) -> None: ...

class QuotaEntity(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ClientQuota(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("entries", "validate_only", "on_behalf_of", "request_id")
    class Op(_message.Message):
        __slots__ = ("key", "value", "remove")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        REMOVE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        remove: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ..., remove: _Optional[bool] = ...) -> None: ...
    class Entry(_message.Message):
        __slots__ = ("entity", "ops")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        OPS_FIELD_NUMBER: _ClassVar[int]
        entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
        ops: _containers.RepeatedCompositeFieldContainer[AlterClientQuotasRequest.Op]
        def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping]]] = ..., ops: _Optional[_Iterable[_Union[AlterClientQuotasRequest.Op, _Mapping]]] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AlterClientQuotasRequest.Entry]
    validate_only: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, entries: _Optional[_Iterable[_Union[AlterClientQuotasRequest.Entry, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterClientQuotasResponse(_message.Message):
    __slots__ = ("error", "leader_id", "entries", "metadata_offset", "message", "already_done", "lagging_brokers")
    class Entry(_message.Message):
        __slots__ = ("entity", "error", "message")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
        error: int
        message: str
        def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping]]] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    entries: _containers.RepeatedCompositeFieldContainer[AlterClientQuotasResponse.Entry]
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[AlterClientQuotasResponse.Entry, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeClientQuotasRequest(_message.Message):
    __slots__ = ("components", "strict", "min_metadata_offset", "linearizable")
    class Component(_message.Message):
        __slots__ = ("type", "match_type", "match")
        TYPE_FIELD_NUMBER: _ClassVar[int]
        MATCH_TYPE_FIELD_NUMBER: _ClassVar[int]
        MATCH_FIELD_NUMBER: _ClassVar[int]
        type: str
        match_type: int
        match: str
        def __init__(self, type: _Optional[str] = ..., match_type: _Optional[int] = ..., match: _Optional[str] = ...) -> None: ...
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    components: _containers.RepeatedCompositeFieldContainer[DescribeClientQuotasRequest.Component]
    strict: bool
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, components: _Optional[_Iterable[_Union[DescribeClientQuotasRequest.Component, _Mapping]]] = ..., strict: _Optional[bool] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class DescribeClientQuotasResponse(_message.Message):
    __slots__ = ("error", "message", "entries")
    class Entry(_message.Message):
        __slots__ = ("entity", "quotas")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        QUOTAS_FIELD_NUMBER: _ClassVar[int]
        entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
        quotas: _containers.RepeatedCompositeFieldContainer[ClientQuota]
        def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[ClientQuota, _Mapping]]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    entries: _containers.RepeatedCompositeFieldContainer[DescribeClientQuotasResponse.Entry]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[DescribeClientQuotasResponse.Entry, _Mapping]]] = ...) -> None: ...

class ExplainClientQuotasRequest(_message.Message):
    __slots__ = ("user", "client_id", "min_metadata_offset", "linearizable", "ip")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    user: str
    client_id: str
    min_metadata_offset: int
    linearizable: bool
    ip: str
    def __init__(self, user: _Optional[str] = ..., client_id: _Optional[str] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ..., ip: _Optional[str] = ...) -> None: ...

class ExplainClientQuotasResponse(_message.Message):
    __slots__ = ("error", "message", "quotas")
    class Quota(_message.Message):
        __slots__ = ("key", "entity", "value", "usage", "throttles", "throttled_seconds", "is_shared_by_user", "is_shared_by_client_id", "is_shared_by_ip")
        KEY_FIELD_NUMBER: _ClassVar[int]
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        USAGE_FIELD_NUMBER: _ClassVar[int]
        THROTTLES_FIELD_NUMBER: _ClassVar[int]
        THROTTLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
        IS_SHARED_BY_USER_FIELD_NUMBER: _ClassVar[int]
        IS_SHARED_BY_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        IS_SHARED_BY_IP_FIELD_NUMBER: _ClassVar[int]
        key: str
        entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
        value: float
        usage: float
        throttles: int
        throttled_seconds: float
        is_shared_by_user: bool
        is_shared_by_client_id: bool
        is_shared_by_ip: bool
        def __init__(self, key: _Optional[str] = ..., entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping]]] = ..., value: _Optional[float] = ..., usage: _Optional[float] = ..., throttles: _Optional[int] = ..., throttled_seconds: _Optional[float] = ..., is_shared_by_user: _Optional[bool] = ..., is_shared_by_client_id: _Optional[bool] = ..., is_shared_by_ip: _Optional[bool] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    quotas: _containers.RepeatedCompositeFieldContainer[ExplainClientQuotasResponse.Quota]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., quotas: _Optional[_Iterable[_Union[ExplainClientQuotasResponse.Quota, _Mapping]]] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "on_behalf_of", "request_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, broker_id: _Optional[int] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("error", "leader_id", "metadata_offset", "message", "already_done")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    metadata_offset: int
    message: str
    already_done: bool
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("min_metadata_offset", "linearizable")
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class BrokerDescription(_message.Message):
    __slots__ = ("broker_id", "host", "port", "rack", "fenced", "in_controlled_shutdown", "broker_epoch", "grpc_host", "grpc_port")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GRPC_HOST_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    host: str
    port: int
    rack: str
    fenced: bool
    in_controlled_shutdown: bool
    broker_epoch: int
    grpc_host: str
    grpc_port: int
    def __init__(self, broker_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., rack: _Optional[str] = ..., fenced: _Optional[bool] = ..., in_controlled_shutdown: _Optional[bool] = ..., broker_epoch: _Optional[int] = ..., grpc_host: _Optional[str] = ..., grpc_port: _Optional[int] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("error", "cluster_id", "controller_id", "brokers", "metadata_offset", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    cluster_id: str
    controller_id: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerDescription]
    metadata_offset: int
    message: str
    def __init__(self, error: _Optional[int] = ..., cluster_id: _Optional[str] = ..., controller_id: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerDescription, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("names", "min_metadata_offset", "linearizable")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "elr", "unclean_elections", "adding_replicas", "removing_replicas", "offline_replicas")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_ELECTIONS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    unclean_elections: int
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., unclean_elections: _Optional[int] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("error", "topics", "message")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "error", "message", "partitions", "configs")
        class ConfigsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        CONFIGS_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: bytes
        error: int
        message: str
        partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
        configs: _containers.ScalarMap[str, str]
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    topics: _containers.RepeatedCompositeFieldContainer[DescribeTopicsResponse.Topic]
    message: str
    def __init__(self, error: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[DescribeTopicsResponse.Topic, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("updates", "validate_only", "on_behalf_of", "request_id")
    class Update(_message.Message):
        __slots__ = ("name", "level", "type")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        name: str
        level: int
        type: UpgradeType
        def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., type: _Optional[_Union[UpgradeType, str]] = ...) -> None: ...
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[UpdateFeaturesRequest.Update]
    validate_only: bool
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, updates: _Optional[_Iterable[_Union[UpdateFeaturesRequest.Update, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("error", "leader_id", "features", "metadata_offset", "message", "already_done")
    class Feature(_message.Message):
        __slots__ = ("name", "error", "message", "level_before", "level")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        LEVEL_BEFORE_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        name: str
        error: int
        message: str
        level_before: int
        level: int
        def __init__(self, name: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., level_before: _Optional[int] = ..., level: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    features: _containers.RepeatedCompositeFieldContainer[UpdateFeaturesResponse.Feature]
    metadata_offset: int
    message: str
    already_done: bool
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., features: _Optional[_Iterable[_Union[UpdateFeaturesResponse.Feature, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ("min_metadata_offset", "linearizable")
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("error", "features", "metadata_offset", "message")
    class Supported(_message.Message):
        __slots__ = ("node_id", "min_level", "max_level")
        NODE_ID_FIELD_NUMBER: _ClassVar[int]
        MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
        MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
        node_id: int
        min_level: int
        max_level: int
        def __init__(self, node_id: _Optional[int] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...
    class Feature(_message.Message):
        __slots__ = ("name", "level", "min_level", "max_level", "brokers", "controllers")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
        MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
        BROKERS_FIELD_NUMBER: _ClassVar[int]
        CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
        name: str
        level: int
        min_level: int
        max_level: int
        brokers: _containers.RepeatedCompositeFieldContainer[DescribeFeaturesResponse.Supported]
        controllers: _containers.RepeatedCompositeFieldContainer[DescribeFeaturesResponse.Supported]
        def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[DescribeFeaturesResponse.Supported, _Mapping]]] = ..., controllers: _Optional[_Iterable[_Union[DescribeFeaturesResponse.Supported, _Mapping]]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    features: _containers.RepeatedCompositeFieldContainer[DescribeFeaturesResponse.Feature]
    metadata_offset: int
    message: str
    def __init__(self, error: _Optional[int] = ..., features: _Optional[_Iterable[_Union[DescribeFeaturesResponse.Feature, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("partitions", "timeout_ms")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "offset")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offset: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsRequest.Partition]
    timeout_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[DeleteRecordsRequest.Partition, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "low_watermark", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        low_watermark: int
        message: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., low_watermark: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsResponse.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[DeleteRecordsResponse.Partition, _Mapping]]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class AclFilter(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("acls", "on_behalf_of", "request_id")
    ACLS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[Acl]
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, acls: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreateAclsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "results", "metadata_offset", "message", "already_done", "lagging_brokers")
    class Result(_message.Message):
        __slots__ = ("error", "message")
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        error: int
        message: str
        def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    results: _containers.RepeatedCompositeFieldContainer[CreateAclsResponse.Result]
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[CreateAclsResponse.Result, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("filters", "on_behalf_of", "request_id")
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[AclFilter]
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, filters: _Optional[_Iterable[_Union[AclFilter, _Mapping]]] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class DeleteAclsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "results", "metadata_offset", "message", "already_done", "lagging_brokers")
    class Result(_message.Message):
        __slots__ = ("error", "message", "acls")
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        ACLS_FIELD_NUMBER: _ClassVar[int]
        error: int
        message: str
        acls: _containers.RepeatedCompositeFieldContainer[Acl]
        def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., acls: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    results: _containers.RepeatedCompositeFieldContainer[DeleteAclsResponse.Result]
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[DeleteAclsResponse.Result, _Mapping]]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeAclsRequest(_message.Message):
    __slots__ = ("filter", "min_metadata_offset", "linearizable")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    filter: AclFilter
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, filter: _Optional[_Union[AclFilter, _Mapping]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class DescribeAclsResponse(_message.Message):
    __slots__ = ("error", "message", "acls", "metadata_offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    acls: _containers.RepeatedCompositeFieldContainer[Acl]
    metadata_offset: int
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., acls: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class TestAccessRequest(_message.Message):
    __slots__ = ("principal", "host", "operation", "resource_type", "resource_name", "min_metadata_offset", "linearizable")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    operation: int
    resource_type: int
    resource_name: str
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class TestAccessResponse(_message.Message):
    __slots__ = ("error", "message", "allowed", "reason", "rule")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    allowed: bool
    reason: str
    rule: Acl
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., allowed: _Optional[bool] = ..., reason: _Optional[str] = ..., rule: _Optional[_Union[Acl, _Mapping]] = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("token_id", "owner", "requester", "renewers", "issue_ms", "expiry_ms", "max_ms", "hmac")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REQUESTER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    ISSUE_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    HMAC_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    owner: str
    requester: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes
    def __init__(self, token_id: _Optional[str] = ..., owner: _Optional[str] = ..., requester: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., issue_ms: _Optional[int] = ..., expiry_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., hmac: _Optional[bytes] = ...) -> None: ...

class CreateDelegationTokenRequest(_message.Message):
    __slots__ = ("owner", "renewers", "max_lifetime_ms", "on_behalf_of", "request_id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RENEWERS_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    renewers: _containers.RepeatedScalarFieldContainer[str]
    max_lifetime_ms: int
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, owner: _Optional[str] = ..., renewers: _Optional[_Iterable[str]] = ..., max_lifetime_ms: _Optional[int] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreateDelegationTokenResponse(_message.Message):
    __slots__ = ("error", "leader_id", "token", "metadata_offset", "message", "already_done", "lagging_brokers")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    token: DelegationToken
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., token: _Optional[_Union[DelegationToken, _Mapping]] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class RenewDelegationTokenRequest(_message.Message):
    __slots__ = ("token_id", "renew_period_ms", "on_behalf_of", "request_id")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    RENEW_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    renew_period_ms: int
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, token_id: _Optional[str] = ..., renew_period_ms: _Optional[int] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class RenewDelegationTokenResponse(_message.Message):
    __slots__ = ("error", "leader_id", "expiry_ms", "metadata_offset", "message", "already_done", "lagging_brokers")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    expiry_ms: int
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., expiry_ms: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class ExpireDelegationTokenRequest(_message.Message):
    __slots__ = ("token_id", "expiry_period_ms", "on_behalf_of", "request_id")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    expiry_period_ms: int
    on_behalf_of: _caller_pb2.OnBehalfOf
    request_id: bytes
    def __init__(self, token_id: _Optional[str] = ..., expiry_period_ms: _Optional[int] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class ExpireDelegationTokenResponse(_message.Message):
    __slots__ = ("error", "leader_id", "expiry_ms", "metadata_offset", "message", "already_done", "lagging_brokers")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DONE_FIELD_NUMBER: _ClassVar[int]
    LAGGING_BROKERS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    expiry_ms: int
    metadata_offset: int
    message: str
    already_done: bool
    lagging_brokers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., expiry_ms: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ..., already_done: _Optional[bool] = ..., lagging_brokers: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeDelegationTokensRequest(_message.Message):
    __slots__ = ("owners", "min_metadata_offset", "linearizable")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    linearizable: bool
    def __init__(self, owners: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class DescribeDelegationTokensResponse(_message.Message):
    __slots__ = ("error", "message", "tokens", "metadata_offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    tokens: _containers.RepeatedCompositeFieldContainer[DelegationToken]
    metadata_offset: int
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[DelegationToken, _Mapping]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...
