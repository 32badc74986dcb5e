from stele.wire.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishOptions(_message.Message):
    __slots__ = ("acks", "compression", "publisher_id", "transactional_id", "transaction_timeout_ms")
    class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACKS_UNSPECIFIED: _ClassVar[PublishOptions.Acks]
        ACKS_ALL: _ClassVar[PublishOptions.Acks]
        ACKS_LEADER: _ClassVar[PublishOptions.Acks]
    ACKS_UNSPECIFIED: PublishOptions.Acks
    ACKS_ALL: PublishOptions.Acks
    ACKS_LEADER: PublishOptions.Acks
    class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COMPRESSION_UNSPECIFIED: _ClassVar[PublishOptions.Compression]
        COMPRESSION_NONE: _ClassVar[PublishOptions.Compression]
        COMPRESSION_GZIP: _ClassVar[PublishOptions.Compression]
        COMPRESSION_SNAPPY: _ClassVar[PublishOptions.Compression]
        COMPRESSION_LZ4: _ClassVar[PublishOptions.Compression]
        COMPRESSION_ZSTD: _ClassVar[PublishOptions.Compression]
    COMPRESSION_UNSPECIFIED: PublishOptions.Compression
    COMPRESSION_NONE: PublishOptions.Compression
    COMPRESSION_GZIP: PublishOptions.Compression
    COMPRESSION_SNAPPY: PublishOptions.Compression
    COMPRESSION_LZ4: PublishOptions.Compression
    COMPRESSION_ZSTD: PublishOptions.Compression
    ACKS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    acks: PublishOptions.Acks
    compression: PublishOptions.Compression
    publisher_id: int
    transactional_id: str
    transaction_timeout_ms: int
    def __init__(self, acks: _Optional[_Union[PublishOptions.Acks, str]] = ..., compression: _Optional[_Union[PublishOptions.Compression, str]] = ..., publisher_id: _Optional[int] = ..., transactional_id: _Optional[str] = ..., transaction_timeout_ms: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("options", "topic", "records", "transaction_end")
    class TransactionEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TRANSACTION_END_UNSPECIFIED: _ClassVar[PublishRequest.TransactionEnd]
        TRANSACTION_END_COMMIT: _ClassVar[PublishRequest.TransactionEnd]
        TRANSACTION_END_ABORT: _ClassVar[PublishRequest.TransactionEnd]
    TRANSACTION_END_UNSPECIFIED: PublishRequest.TransactionEnd
    TRANSACTION_END_COMMIT: PublishRequest.TransactionEnd
    TRANSACTION_END_ABORT: PublishRequest.TransactionEnd
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_END_FIELD_NUMBER: _ClassVar[int]
    options: PublishOptions
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[PublishRecord]
    transaction_end: PublishRequest.TransactionEnd
    def __init__(self, options: _Optional[_Union[PublishOptions, _Mapping]] = ..., topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[PublishRecord, _Mapping]]] = ..., transaction_end: _Optional[_Union[PublishRequest.TransactionEnd, str]] = ...) -> None: ...

class PublishRecord(_message.Message):
    __slots__ = ("topic", "key", "value", "headers", "timestamp_ms", "partition", "sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[RecordHeader]
    timestamp_ms: int
    partition: int
    sequence: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[RecordHeader, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., partition: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class RecordHeader(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("results", "transaction_ended")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ENDED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PublishResult]
    transaction_ended: TransactionEnded
    def __init__(self, results: _Optional[_Iterable[_Union[PublishResult, _Mapping]]] = ..., transaction_ended: _Optional[_Union[TransactionEnded, _Mapping]] = ...) -> None: ...

class TransactionEnded(_message.Message):
    __slots__ = ("is_committed", "error")
    IS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    is_committed: bool
    error: RecordError
    def __init__(self, is_committed: _Optional[bool] = ..., error: _Optional[_Union[RecordError, _Mapping]] = ...) -> None: ...

class PublishResult(_message.Message):
    __slots__ = ("number", "error", "partition", "offset", "timestamp_ms", "is_duplicate")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    number: int
    error: RecordError
    partition: int
    offset: int
    timestamp_ms: int
    is_duplicate: bool
    def __init__(self, number: _Optional[int] = ..., error: _Optional[_Union[RecordError, _Mapping]] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., is_duplicate: _Optional[bool] = ...) -> None: ...

class RecordError(_message.Message):
    __slots__ = ("code", "message", "retriable", "maybe_written")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    MAYBE_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    retriable: bool
    maybe_written: bool
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., retriable: _Optional[bool] = ..., maybe_written: _Optional[bool] = ...) -> None: ...

class CreatePublisherRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreatePublisherResponse(_message.Message):
    __slots__ = ("publisher_id", "expiration_ms")
    PUBLISHER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_MS_FIELD_NUMBER: _ClassVar[int]
    publisher_id: int
    expiration_ms: int
    def __init__(self, publisher_id: _Optional[int] = ..., expiration_ms: _Optional[int] = ...) -> None: ...

class FindPartitionsRequest(_message.Message):
    __slots__ = ("topic", "keys")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FindPartitionsResponse(_message.Message):
    __slots__ = ("partition_count", "partitions")
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partition_count: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition_count: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("start", "credit", "commit", "acknowledge")
    START_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    start: SubscribeStart
    credit: Credit
    commit: Commit
    acknowledge: Acknowledge
    def __init__(self, start: _Optional[_Union[SubscribeStart, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ...) -> None: ...

class SubscribeStart(_message.Message):
    __slots__ = ("partitions", "offset_reset", "credit", "group", "topics", "client_id", "group_instance_id", "isolation", "group_protocol", "topic_pattern", "share_group", "lock_renewal_ms")
    class OffsetReset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OFFSET_RESET_UNSPECIFIED: _ClassVar[SubscribeStart.OffsetReset]
        OFFSET_RESET_FAIL: _ClassVar[SubscribeStart.OffsetReset]
        OFFSET_RESET_EARLIEST: _ClassVar[SubscribeStart.OffsetReset]
        OFFSET_RESET_LATEST: _ClassVar[SubscribeStart.OffsetReset]
    OFFSET_RESET_UNSPECIFIED: SubscribeStart.OffsetReset
    OFFSET_RESET_FAIL: SubscribeStart.OffsetReset
    OFFSET_RESET_EARLIEST: SubscribeStart.OffsetReset
    OFFSET_RESET_LATEST: SubscribeStart.OffsetReset
    class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ISOLATION_UNSPECIFIED: _ClassVar[SubscribeStart.Isolation]
        ISOLATION_READ_UNCOMMITTED: _ClassVar[SubscribeStart.Isolation]
        ISOLATION_READ_COMMITTED: _ClassVar[SubscribeStart.Isolation]
    ISOLATION_UNSPECIFIED: SubscribeStart.Isolation
    ISOLATION_READ_UNCOMMITTED: SubscribeStart.Isolation
    ISOLATION_READ_COMMITTED: SubscribeStart.Isolation
    class GroupProtocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GROUP_PROTOCOL_UNSPECIFIED: _ClassVar[SubscribeStart.GroupProtocol]
        GROUP_PROTOCOL_CLASSIC: _ClassVar[SubscribeStart.GroupProtocol]
        GROUP_PROTOCOL_CONSUMER: _ClassVar[SubscribeStart.GroupProtocol]
    GROUP_PROTOCOL_UNSPECIFIED: SubscribeStart.GroupProtocol
    GROUP_PROTOCOL_CLASSIC: SubscribeStart.GroupProtocol
    GROUP_PROTOCOL_CONSUMER: SubscribeStart.GroupProtocol
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_RESET_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    SHARE_GROUP_FIELD_NUMBER: _ClassVar[int]
    LOCK_RENEWAL_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStart]
    offset_reset: SubscribeStart.OffsetReset
    credit: Credit
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    group_instance_id: str
    isolation: SubscribeStart.Isolation
    group_protocol: SubscribeStart.GroupProtocol
    topic_pattern: str
    share_group: str
    lock_renewal_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionStart, _Mapping]]] = ..., offset_reset: _Optional[_Union[SubscribeStart.OffsetReset, str]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ..., group_instance_id: _Optional[str] = ..., isolation: _Optional[_Union[SubscribeStart.Isolation, str]] = ..., group_protocol: _Optional[_Union[SubscribeStart.GroupProtocol, str]] = ..., topic_pattern: _Optional[str] = ..., share_group: _Optional[str] = ..., lock_renewal_ms: _Optional[int] = ...) -> None: ...

class PartitionStart(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "edge")
    class Edge(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EDGE_UNSPECIFIED: _ClassVar[PartitionStart.Edge]
        EDGE_EARLIEST: _ClassVar[PartitionStart.Edge]
        EDGE_LATEST: _ClassVar[PartitionStart.Edge]
    EDGE_UNSPECIFIED: PartitionStart.Edge
    EDGE_EARLIEST: PartitionStart.Edge
    EDGE_LATEST: PartitionStart.Edge
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    edge: PartitionStart.Edge
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., edge: _Optional[_Union[PartitionStart.Edge, str]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("records", "bytes")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    records: int
    bytes: int
    def __init__(self, records: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("assigned", "records", "revoked", "committed", "positions", "acknowledged")
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    assigned: Assigned
    records: PartitionRecords
    revoked: Revoked
    committed: Committed
    positions: Positions
    acknowledged: Acknowledged
    def __init__(self, assigned: _Optional[_Union[Assigned, _Mapping]] = ..., records: _Optional[_Union[PartitionRecords, _Mapping]] = ..., revoked: _Optional[_Union[Revoked, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., positions: _Optional[_Union[Positions, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ...) -> None: ...

class Assigned(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "position", "end_offset")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        position: int
        end_offset: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., position: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Assigned.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[Assigned.Partition, _Mapping]]] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ("partitions", "is_lost")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Revoked.Partition]
    is_lost: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[Revoked.Partition, _Mapping]]] = ..., is_lost: _Optional[bool] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("offsets",)
    class Offset(_message.Message):
        __slots__ = ("topic", "partition", "offset", "metadata", "topic_id")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        METADATA_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offset: int
        metadata: str
        topic_id: bytes
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[Commit.Offset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[Commit.Offset, _Mapping]]] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("batches",)
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[Acknowledge.Type]
        TYPE_ACCEPT: _ClassVar[Acknowledge.Type]
        TYPE_RELEASE: _ClassVar[Acknowledge.Type]
        TYPE_REJECT: _ClassVar[Acknowledge.Type]
        TYPE_RENEW: _ClassVar[Acknowledge.Type]
    TYPE_UNSPECIFIED: Acknowledge.Type
    TYPE_ACCEPT: Acknowledge.Type
    TYPE_RELEASE: Acknowledge.Type
    TYPE_REJECT: Acknowledge.Type
    TYPE_RENEW: Acknowledge.Type
    class Batch(_message.Message):
        __slots__ = ("topic", "partition", "offsets", "type")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offsets: _containers.RepeatedScalarFieldContainer[int]
        type: Acknowledge.Type
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ..., type: _Optional[_Union[Acknowledge.Type, str]] = ...) -> None: ...
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Acknowledge.Batch]
    def __init__(self, batches: _Optional[_Iterable[_Union[Acknowledge.Batch, _Mapping]]] = ...) -> None: ...

class Acknowledged(_message.Message):
    __slots__ = ("batches",)
    class Batch(_message.Message):
        __slots__ = ("topic", "partition", "offsets", "error", "is_renewal")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        IS_RENEWAL_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        offsets: _containers.RepeatedScalarFieldContainer[int]
        error: RecordError
        is_renewal: bool
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ..., error: _Optional[_Union[RecordError, _Mapping]] = ..., is_renewal: _Optional[bool] = ...) -> None: ...
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Acknowledged.Batch]
    def __init__(self, batches: _Optional[_Iterable[_Union[Acknowledged.Batch, _Mapping]]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: RecordError
    def __init__(self, error: _Optional[_Union[RecordError, _Mapping]] = ...) -> None: ...

class Positions(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "position", "end_offset", "topic_id")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        position: int
        end_offset: int
        topic_id: bytes
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., position: _Optional[int] = ..., end_offset: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Positions.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[Positions.Partition, _Mapping]]] = ...) -> None: ...

class PartitionRecords(_message.Message):
    __slots__ = ("topic", "partition", "records", "topic_id", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[SubscribedRecord]
    topic_id: bytes
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[SubscribedRecord, _Mapping]]] = ..., topic_id: _Optional[bytes] = ..., end_offset: _Optional[int] = ...) -> None: ...

class SubscribedRecord(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "is_append_time", "key", "value", "headers", "delivery_count")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    IS_APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[RecordHeader]
    delivery_count: int
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., is_append_time: _Optional[bool] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[RecordHeader, _Mapping]]] = ..., delivery_count: _Optional[int] = ...) -> None: ...
