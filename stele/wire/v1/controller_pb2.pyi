from stele.wire.v1 import errors_pb2 as _errors_pb2
from stele.wire.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProbeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("broker_id", "incarnation_id", "cluster_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation_id: bytes
    cluster_id: str
    def __init__(self, broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class PartitionReference(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class DirectoryHistory(_message.Message):
    __slots__ = ("directory_id", "previous_broker_epoch", "incarnation_ids", "replicas")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_IDS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    previous_broker_epoch: int
    incarnation_ids: _containers.RepeatedScalarFieldContainer[bytes]
    replicas: _containers.RepeatedCompositeFieldContainer[PartitionReference]
    def __init__(self, directory_id: _Optional[bytes] = ..., previous_broker_epoch: _Optional[int] = ..., incarnation_ids: _Optional[_Iterable[bytes]] = ..., replicas: _Optional[_Iterable[_Union[PartitionReference, _Mapping]]] = ...) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "endpoints", "rack", "log_directories", "previous_broker_epoch", "corrupt", "unsynced", "features", "inter_broker_listener", "directory_histories", "directories_marked", "unopened_directories")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    UNSYNCED_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    INTER_BROKER_LISTENER_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_HISTORIES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_MARKED_FIELD_NUMBER: _ClassVar[int]
    UNOPENED_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.Endpoint]
    rack: str
    log_directories: _containers.RepeatedScalarFieldContainer[bytes]
    previous_broker_epoch: int
    corrupt: _containers.RepeatedCompositeFieldContainer[PartitionReference]
    unsynced: _containers.RepeatedCompositeFieldContainer[PartitionReference]
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    inter_broker_listener: str
    directory_histories: _containers.RepeatedCompositeFieldContainer[DirectoryHistory]
    directories_marked: bool
    unopened_directories: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., log_directories: _Optional[_Iterable[bytes]] = ..., previous_broker_epoch: _Optional[int] = ..., corrupt: _Optional[_Iterable[_Union[PartitionReference, _Mapping]]] = ..., unsynced: _Optional[_Iterable[_Union[PartitionReference, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping]]] = ..., inter_broker_listener: _Optional[str] = ..., directory_histories: _Optional[_Iterable[_Union[DirectoryHistory, _Mapping]]] = ..., directories_marked: _Optional[bool] = ..., unopened_directories: _Optional[int] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("error", "message", "leader_id", "broker_epoch")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    leader_id: int
    broker_epoch: int
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ..., leader_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "incarnation_id", "metadata_offset", "want_fence", "want_shutdown", "sequence", "out_of_room", "yields", "cluster_id", "offline_directories")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ROOM_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    metadata_offset: int
    want_fence: bool
    want_shutdown: bool
    sequence: int
    out_of_room: bool
    yields: bool
    cluster_id: str
    offline_directories: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., metadata_offset: _Optional[int] = ..., want_fence: _Optional[bool] = ..., want_shutdown: _Optional[bool] = ..., sequence: _Optional[int] = ..., out_of_room: _Optional[bool] = ..., yields: _Optional[bool] = ..., cluster_id: _Optional[str] = ..., offline_directories: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("error", "leader_id", "sequence", "fenced", "caught_up", "may_shut_down", "message", "leads_nothing_at", "committed_offset")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    MAY_SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADS_NOTHING_AT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    sequence: int
    fenced: bool
    caught_up: bool
    may_shut_down: bool
    message: str
    leads_nothing_at: int
    committed_offset: int
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., sequence: _Optional[int] = ..., fenced: _Optional[bool] = ..., caught_up: _Optional[bool] = ..., may_shut_down: _Optional[bool] = ..., message: _Optional[str] = ..., leads_nothing_at: _Optional[int] = ..., committed_offset: _Optional[int] = ...) -> None: ...

class AlterPartitionRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions", "cluster_id")
    class Member(_message.Message):
        __slots__ = ("broker_id", "broker_epoch")
        BROKER_ID_FIELD_NUMBER: _ClassVar[int]
        BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        broker_id: int
        broker_epoch: int
        def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...
    class Partition(_message.Message):
        __slots__ = ("topic_id", "partition", "leader_epoch", "partition_epoch", "isr", "leader_recovery_state")
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
        ISR_FIELD_NUMBER: _ClassVar[int]
        LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
        topic_id: bytes
        partition: int
        leader_epoch: int
        partition_epoch: int
        isr: _containers.RepeatedCompositeFieldContainer[AlterPartitionRequest.Member]
        leader_recovery_state: _metadata_pb2.LeaderRecoveryState
        def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[AlterPartitionRequest.Member, _Mapping]]] = ..., leader_recovery_state: _Optional[_Union[_metadata_pb2.LeaderRecoveryState, str]] = ...) -> None: ...
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionRequest.Partition]
    cluster_id: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionRequest.Partition, _Mapping]]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class AlterPartitionResponse(_message.Message):
    __slots__ = ("error", "leader_id", "partitions", "message")
    class Partition(_message.Message):
        __slots__ = ("topic_id", "partition", "error", "leader", "leader_epoch", "isr", "partition_epoch", "leader_recovery_state", "message")
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        LEADER_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        ISR_FIELD_NUMBER: _ClassVar[int]
        PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
        LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic_id: bytes
        partition: int
        error: int
        leader: int
        leader_epoch: int
        isr: _containers.RepeatedScalarFieldContainer[int]
        partition_epoch: int
        leader_recovery_state: _metadata_pb2.LeaderRecoveryState
        message: str
        def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ..., leader_recovery_state: _Optional[_Union[_metadata_pb2.LeaderRecoveryState, str]] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionResponse.Partition]
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionResponse.Partition, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...

class AssignReplicasToDirectoriesRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "directories", "cluster_id")
    class Directory(_message.Message):
        __slots__ = ("directory_id", "replicas")
        DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        directory_id: bytes
        replicas: _containers.RepeatedCompositeFieldContainer[PartitionReference]
        def __init__(self, directory_id: _Optional[bytes] = ..., replicas: _Optional[_Iterable[_Union[PartitionReference, _Mapping]]] = ...) -> None: ...
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    directories: _containers.RepeatedCompositeFieldContainer[AssignReplicasToDirectoriesRequest.Directory]
    cluster_id: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[AssignReplicasToDirectoriesRequest.Directory, _Mapping]]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class AssignReplicasToDirectoriesResponse(_message.Message):
    __slots__ = ("error", "leader_id", "message", "refusals")
    class Refusal(_message.Message):
        __slots__ = ("topic_id", "partition", "error", "message")
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        topic_id: bytes
        partition: int
        error: int
        message: str
        def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    message: str
    refusals: _containers.RepeatedCompositeFieldContainer[AssignReplicasToDirectoriesResponse.Refusal]
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., message: _Optional[str] = ..., refusals: _Optional[_Iterable[_Union[AssignReplicasToDirectoriesResponse.Refusal, _Mapping]]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "cluster_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    cluster_id: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error", "leader_id", "first", "count", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    first: int
    count: int
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ReadIndexRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class ReadIndexResponse(_message.Message):
    __slots__ = ("error", "leader_id", "metadata_offset", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    metadata_offset: int
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
