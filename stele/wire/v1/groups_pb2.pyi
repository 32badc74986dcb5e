from stele.wire.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindCoordinatorRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class FindCoordinatorResponse(_message.Message):
    __slots__ = ("coordinators",)
    class Coordinator(_message.Message):
        __slots__ = ("group", "error", "message", "broker_id", "grpc_host", "grpc_port")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        BROKER_ID_FIELD_NUMBER: _ClassVar[int]
        GRPC_HOST_FIELD_NUMBER: _ClassVar[int]
        GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
        group: str
        error: int
        message: str
        broker_id: int
        grpc_host: str
        grpc_port: int
        def __init__(self, group: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., broker_id: _Optional[int] = ..., grpc_host: _Optional[str] = ..., grpc_port: _Optional[int] = ...) -> None: ...
    COORDINATORS_FIELD_NUMBER: _ClassVar[int]
    coordinators: _containers.RepeatedCompositeFieldContainer[FindCoordinatorResponse.Coordinator]
    def __init__(self, coordinators: _Optional[_Iterable[_Union[FindCoordinatorResponse.Coordinator, _Mapping]]] = ...) -> None: ...

class OffsetCommitRequest(_message.Message):
    __slots__ = ("group", "generation", "member_id", "group_instance_id", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "offset", "leader_epoch", "metadata", "topic_id")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        METADATA_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offset: int
        leader_epoch: int
        metadata: str
        topic_id: bytes
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    member_id: str
    group_instance_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetCommitRequest.Partition]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetCommitRequest.Partition, _Mapping]]] = ...) -> None: ...

class OffsetCommitResponse(_message.Message):
    __slots__ = ("error", "message", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "topic_id", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        topic_id: bytes
        message: str
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetCommitResponse.Partition]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetCommitResponse.Partition, _Mapping]]] = ...) -> None: ...

class OffsetFetchRequest(_message.Message):
    __slots__ = ("group", "topics", "require_stable")
    class Topic(_message.Message):
        __slots__ = ("topic", "partitions", "topic_id")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partitions: _containers.RepeatedScalarFieldContainer[int]
        topic_id: bytes
        def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedCompositeFieldContainer[OffsetFetchRequest.Topic]
    require_stable: bool
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[OffsetFetchRequest.Topic, _Mapping]]] = ..., require_stable: _Optional[bool] = ...) -> None: ...

class OffsetFetchResponse(_message.Message):
    __slots__ = ("error", "message", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "offset", "leader_epoch", "metadata", "topic_id")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        METADATA_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        offset: int
        leader_epoch: int
        metadata: str
        topic_id: bytes
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetFetchResponse.Partition]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetFetchResponse.Partition, _Mapping]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("states", "types")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("error", "message", "groups")
    class Group(_message.Message):
        __slots__ = ("group", "protocol_type", "state", "type")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        group: str
        protocol_type: str
        state: str
        type: str
        def __init__(self, group: _Optional[str] = ..., protocol_type: _Optional[str] = ..., state: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    groups: _containers.RepeatedCompositeFieldContainer[ListGroupsResponse.Group]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[ListGroupsResponse.Group, _Mapping]]] = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    class Topic(_message.Message):
        __slots__ = ("topic", "partitions")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partitions: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...
    class Member(_message.Message):
        __slots__ = ("member_id", "group_instance_id", "client_id", "host", "metadata", "assignment", "member_epoch", "assigned", "target", "is_classic")
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        HOST_FIELD_NUMBER: _ClassVar[int]
        METADATA_FIELD_NUMBER: _ClassVar[int]
        ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
        MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        ASSIGNED_FIELD_NUMBER: _ClassVar[int]
        TARGET_FIELD_NUMBER: _ClassVar[int]
        IS_CLASSIC_FIELD_NUMBER: _ClassVar[int]
        member_id: str
        group_instance_id: str
        client_id: str
        host: str
        metadata: bytes
        assignment: bytes
        member_epoch: int
        assigned: _containers.RepeatedCompositeFieldContainer[DescribeGroupsResponse.Topic]
        target: _containers.RepeatedCompositeFieldContainer[DescribeGroupsResponse.Topic]
        is_classic: bool
        def __init__(self, member_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., host: _Optional[str] = ..., metadata: _Optional[bytes] = ..., assignment: _Optional[bytes] = ..., member_epoch: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[DescribeGroupsResponse.Topic, _Mapping]]] = ..., target: _Optional[_Iterable[_Union[DescribeGroupsResponse.Topic, _Mapping]]] = ..., is_classic: _Optional[bool] = ...) -> None: ...
    class Group(_message.Message):
        __slots__ = ("group", "error", "message", "state", "protocol_type", "protocol", "members", "type", "group_epoch", "assignment_epoch")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
        PROTOCOL_FIELD_NUMBER: _ClassVar[int]
        MEMBERS_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
        ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
        group: str
        error: int
        message: str
        state: str
        protocol_type: str
        protocol: str
        members: _containers.RepeatedCompositeFieldContainer[DescribeGroupsResponse.Member]
        type: str
        group_epoch: int
        assignment_epoch: int
        def __init__(self, group: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[DescribeGroupsResponse.Member, _Mapping]]] = ..., type: _Optional[str] = ..., group_epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DescribeGroupsResponse.Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[DescribeGroupsResponse.Group, _Mapping]]] = ...) -> None: ...

class DeleteGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    class Group(_message.Message):
        __slots__ = ("group", "error", "message")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        group: str
        error: int
        message: str
        def __init__(self, group: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[DeleteGroupsResponse.Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[DeleteGroupsResponse.Group, _Mapping]]] = ...) -> None: ...

class OffsetDeleteRequest(_message.Message):
    __slots__ = ("group", "topics")
    class Topic(_message.Message):
        __slots__ = ("topic", "partitions")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partitions: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedCompositeFieldContainer[OffsetDeleteRequest.Topic]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[OffsetDeleteRequest.Topic, _Mapping]]] = ...) -> None: ...

class OffsetDeleteResponse(_message.Message):
    __slots__ = ("error", "message", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetDeleteResponse.Partition]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OffsetDeleteResponse.Partition, _Mapping]]] = ...) -> None: ...

class DescribeShareGroupOffsetsRequest(_message.Message):
    __slots__ = ("group", "topics")
    class Topic(_message.Message):
        __slots__ = ("topic", "partitions")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partitions: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedCompositeFieldContainer[DescribeShareGroupOffsetsRequest.Topic]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[DescribeShareGroupOffsetsRequest.Topic, _Mapping]]] = ...) -> None: ...

class DescribeShareGroupOffsetsResponse(_message.Message):
    __slots__ = ("error", "message", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "error", "message", "start_offset", "leader_epoch", "lag")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        START_OFFSET_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        LAG_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        error: int
        message: str
        start_offset: int
        leader_epoch: int
        lag: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ..., start_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    partitions: _containers.RepeatedCompositeFieldContainer[DescribeShareGroupOffsetsResponse.Partition]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[DescribeShareGroupOffsetsResponse.Partition, _Mapping]]] = ...) -> None: ...

class AlterShareGroupOffsetsRequest(_message.Message):
    __slots__ = ("group", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "start_offset")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        START_OFFSET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        start_offset: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[AlterShareGroupOffsetsRequest.Partition]
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[AlterShareGroupOffsetsRequest.Partition, _Mapping]]] = ...) -> None: ...

class AlterShareGroupOffsetsResponse(_message.Message):
    __slots__ = ("error", "message", "partitions")
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
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    partitions: _containers.RepeatedCompositeFieldContainer[AlterShareGroupOffsetsResponse.Partition]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[AlterShareGroupOffsetsResponse.Partition, _Mapping]]] = ...) -> None: ...

class DeleteShareGroupOffsetsRequest(_message.Message):
    __slots__ = ("group", "topics")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteShareGroupOffsetsResponse(_message.Message):
    __slots__ = ("error", "message", "topics")
    class Topic(_message.Message):
        __slots__ = ("topic", "error", "message")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        error: int
        message: str
        def __init__(self, topic: _Optional[str] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    topics: _containers.RepeatedCompositeFieldContainer[DeleteShareGroupOffsetsResponse.Topic]
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[DeleteShareGroupOffsetsResponse.Topic, _Mapping]]] = ...) -> None: ...

class DescribeShareWindowRequest(_message.Message):
    __slots__ = ("group", "topic", "partition", "from_offset", "max_ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partition: int
    from_offset: int
    max_ranges: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., from_offset: _Optional[int] = ..., max_ranges: _Optional[int] = ...) -> None: ...

class DescribeShareWindowResponse(_message.Message):
    __slots__ = ("error", "message", "known", "readers", "time_ms", "start_offset", "end_offset", "start_since_ms", "done_records", "acquired_records", "redelivered_records", "max_record_locks", "delivery_count_limit", "record_lock_duration_ms", "holders", "ranges", "next_offset", "archiving_records", "letter_trouble")
    class Holder(_message.Message):
        __slots__ = ("member_id", "records", "lock_until_ms")
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        LOCK_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
        member_id: str
        records: int
        lock_until_ms: int
        def __init__(self, member_id: _Optional[str] = ..., records: _Optional[int] = ..., lock_until_ms: _Optional[int] = ...) -> None: ...
    class VainDelivery(_message.Message):
        __slots__ = ("end", "member_id", "ended_ms", "last_offset")
        END_FIELD_NUMBER: _ClassVar[int]
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        ENDED_MS_FIELD_NUMBER: _ClassVar[int]
        LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        end: str
        member_id: str
        ended_ms: int
        last_offset: int
        def __init__(self, end: _Optional[str] = ..., member_id: _Optional[str] = ..., ended_ms: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...
    class Range(_message.Message):
        __slots__ = ("first_offset", "last_offset", "state", "delivery_count", "member_id", "acquired_ms", "lock_until_ms", "being_persisted", "last_vain_delivery", "due_ms")
        FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
        MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
        ACQUIRED_MS_FIELD_NUMBER: _ClassVar[int]
        LOCK_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
        BEING_PERSISTED_FIELD_NUMBER: _ClassVar[int]
        LAST_VAIN_DELIVERY_FIELD_NUMBER: _ClassVar[int]
        DUE_MS_FIELD_NUMBER: _ClassVar[int]
        first_offset: int
        last_offset: int
        state: str
        delivery_count: int
        member_id: str
        acquired_ms: int
        lock_until_ms: int
        being_persisted: bool
        last_vain_delivery: DescribeShareWindowResponse.VainDelivery
        due_ms: int
        def __init__(self, first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., state: _Optional[str] = ..., delivery_count: _Optional[int] = ..., member_id: _Optional[str] = ..., acquired_ms: _Optional[int] = ..., lock_until_ms: _Optional[int] = ..., being_persisted: _Optional[bool] = ..., last_vain_delivery: _Optional[_Union[DescribeShareWindowResponse.VainDelivery, _Mapping]] = ..., due_ms: _Optional[int] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    DONE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACQUIRED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORD_LOCKS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RECORD_LOCK_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ARCHIVING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LETTER_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    known: bool
    readers: int
    time_ms: int
    start_offset: int
    end_offset: int
    start_since_ms: int
    done_records: int
    acquired_records: int
    redelivered_records: int
    max_record_locks: int
    delivery_count_limit: int
    record_lock_duration_ms: int
    holders: _containers.RepeatedCompositeFieldContainer[DescribeShareWindowResponse.Holder]
    ranges: _containers.RepeatedCompositeFieldContainer[DescribeShareWindowResponse.Range]
    next_offset: int
    archiving_records: int
    letter_trouble: str
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., known: _Optional[bool] = ..., readers: _Optional[int] = ..., time_ms: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., start_since_ms: _Optional[int] = ..., done_records: _Optional[int] = ..., acquired_records: _Optional[int] = ..., redelivered_records: _Optional[int] = ..., max_record_locks: _Optional[int] = ..., delivery_count_limit: _Optional[int] = ..., record_lock_duration_ms: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[DescribeShareWindowResponse.Holder, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[DescribeShareWindowResponse.Range, _Mapping]]] = ..., next_offset: _Optional[int] = ..., archiving_records: _Optional[int] = ..., letter_trouble: _Optional[str] = ...) -> None: ...
