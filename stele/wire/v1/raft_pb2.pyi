from stele.wire.v1 import caller_pb2 as _caller_pb2
from stele.wire.v1 import errors_pb2 as _errors_pb2
from stele.wire.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "candidate_id", "candidate_directory_id", "voter_id", "voter_directory_id", "epoch", "last_offset", "last_epoch", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    candidate_id: int
    candidate_directory_id: bytes
    voter_id: int
    voter_directory_id: bytes
    epoch: int
    last_offset: int
    last_epoch: int
    pre_vote: bool
    def __init__(self, cluster_id: _Optional[str] = ..., candidate_id: _Optional[int] = ..., candidate_directory_id: _Optional[bytes] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., last_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., pre_vote: _Optional[bool] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "granted", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    granted: bool
    leader_endpoint: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., granted: _Optional[bool] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class BeginQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_id", "epoch", "voter_id", "voter_directory_id", "leader_endpoint")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    epoch: int
    voter_id: int
    voter_directory_id: bytes
    leader_endpoint: str
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class BeginQuorumEpochResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    leader_endpoint: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class EndQuorumEpochRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_id", "epoch", "preferred_successors")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    epoch: int
    preferred_successors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., preferred_successors: _Optional[_Iterable[int]] = ...) -> None: ...

class EndQuorumEpochResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    leader_endpoint: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class QuorumFetchRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id", "epoch", "fetch_offset", "last_fetched_epoch", "max_wait_ms", "max_bytes", "high_watermark")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCHED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int
    high_watermark: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., fetch_offset: _Optional[int] = ..., last_fetched_epoch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class EpochEndOffset(_message.Message):
    __slots__ = ("epoch", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class SnapshotId(_message.Message):
    __slots__ = ("end_offset", "epoch")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    epoch: int
    def __init__(self, end_offset: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class QuorumFetchResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "high_watermark", "log_start_offset", "diverging", "snapshot", "records", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEndOffset
    snapshot: SnapshotId
    records: bytes
    leader_endpoint: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., diverging: _Optional[_Union[EpochEndOffset, _Mapping]] = ..., snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., records: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster_id", "replica_id", "replica_directory_id", "epoch", "snapshot", "position", "max_bytes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    replica_id: int
    replica_directory_id: bytes
    epoch: int
    snapshot: SnapshotId
    position: int
    max_bytes: int
    def __init__(self, cluster_id: _Optional[str] = ..., replica_id: _Optional[int] = ..., replica_directory_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., position: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "snapshot", "size", "position", "data", "leader_endpoint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    snapshot: SnapshotId
    size: int
    position: int
    data: bytes
    leader_endpoint: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotId, _Mapping]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ..., leader_endpoint: _Optional[str] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ("on_behalf_of",)
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    on_behalf_of: _caller_pb2.OnBehalfOf
    def __init__(self, on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("replica_id", "directory_id", "log_end_offset", "last_fetch_time_ms", "last_caught_up_time_ms", "endpoint", "listeners")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_time_ms: int
    last_caught_up_time_ms: int
    endpoint: str
    listeners: str
    def __init__(self, replica_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., log_end_offset: _Optional[int] = ..., last_fetch_time_ms: _Optional[int] = ..., last_caught_up_time_ms: _Optional[int] = ..., endpoint: _Optional[str] = ..., listeners: _Optional[str] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "high_watermark", "voters", "observers", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    high_watermark: int
    voters: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    observers: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ..., message: _Optional[str] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("voter_id", "request_id", "on_behalf_of")
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    voter_id: int
    request_id: bytes
    on_behalf_of: _caller_pb2.OnBehalfOf
    def __init__(self, voter_id: _Optional[int] = ..., request_id: _Optional[bytes] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id", "endpoint", "timeout_ms", "request_id", "on_behalf_of")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    voter_directory_id: bytes
    endpoint: str
    timeout_ms: int
    request_id: bytes
    on_behalf_of: _caller_pb2.OnBehalfOf
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., endpoint: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[bytes] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id", "request_id", "on_behalf_of")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    voter_directory_id: bytes
    request_id: bytes
    on_behalf_of: _caller_pb2.OnBehalfOf
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., request_id: _Optional[bytes] = ..., on_behalf_of: _Optional[_Union[_caller_pb2.OnBehalfOf, _Mapping]] = ...) -> None: ...

class UpdateVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "voter_id", "voter_directory_id", "endpoint", "features", "listeners")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    voter_id: int
    voter_directory_id: bytes
    endpoint: str
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    listeners: str
    def __init__(self, cluster_id: _Optional[str] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[bytes] = ..., endpoint: _Optional[str] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping]]] = ..., listeners: _Optional[str] = ...) -> None: ...

class SupportedFeaturesRequest(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class SupportedFeaturesResponse(_message.Message):
    __slots__ = ("error", "node_id", "directory_id", "features", "out_of_room")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ROOM_FIELD_NUMBER: _ClassVar[int]
    error: int
    node_id: int
    directory_id: bytes
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    out_of_room: bool
    def __init__(self, error: _Optional[int] = ..., node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping]]] = ..., out_of_room: _Optional[bool] = ...) -> None: ...

class VoterChangeResponse(_message.Message):
    __slots__ = ("error", "leader_id", "epoch", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    leader_id: int
    epoch: int
    message: str
    def __init__(self, error: _Optional[int] = ..., leader_id: _Optional[int] = ..., epoch: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
