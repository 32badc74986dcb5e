"""The quorum's messages on the wire: protobuf to and from ``raft.messages``.

Only this file knows that the wire says -1 for "no leader", and that batches travel as bytes.
Decoding raises ``MessageError`` on anything that a sound peer would not send.

Nothing in a refusal with INCONSISTENT_CLUSTER_ID is about this quorum. An older node fills in its
own epoch, leader and the leader's endpoint, all of the other cluster. So decoding raises
``ForeignClusterError`` and hands out none of it. The other answers (DescribeQuorum, UpdateVoter,
SupportedFeatures and further requests of administrators) change nothing here but by their message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from raft import messages
from raft.quorum import NO_DIRECTORY, FeatureLevels
from runtime.config.addresses import parse_address, parse_endpoint
from runtime.grpc import requests as grpc_requests
from runtime.quorum.control import ControlRecordError, voters_in
from stele.errors import ErrorCode, SteleError
from stele.wire.batch import BatchError, batches, check_crc
from stele.wire.v1 import raft_pb2 as pb
from stele.wire.v1.metadata_pb2 import FeatureRange

_PREFIX = "/stele.v1.Raft/"
VOTE = _PREFIX + "Vote"
BEGIN_QUORUM_EPOCH = _PREFIX + "BeginQuorumEpoch"
END_QUORUM_EPOCH = _PREFIX + "EndQuorumEpoch"
FETCH = _PREFIX + "Fetch"
FETCH_SNAPSHOT = _PREFIX + "FetchSnapshot"
DESCRIBE_QUORUM = _PREFIX + "DescribeQuorum"
TRANSFER_LEADERSHIP = _PREFIX + "TransferLeadership"
ADD_VOTER = _PREFIX + "AddVoter"
REMOVE_VOTER = _PREFIX + "RemoveVoter"
UPDATE_VOTER = _PREFIX + "UpdateVoter"
SUPPORTED_FEATURES = _PREFIX + "SupportedFeatures"

_LEVEL_MAX = 0x7FFF  # what the voters' record has room for

EPOCH_STEP_MAX: Final = 1 << 28
"""An epoch that is so much greater than this replica's own is no epoch of this quorum, because a
new leader in each second would need eight years for it. Epochs only grow and have 32 bits, so one
damaged message with the greatest epoch would end all elections for good."""

_FEATURES_MAX = 1000
_NAME_MAX = 249
_ENDPOINT_MAX = 1000
"""A bound for what a controller reports of itself, which stands in every record of the voters."""


class MessageError(SteleError):
    """Bytes that are not the message they should be."""


class ForeignClusterError(SteleError):
    """The refusal by a node of another cluster."""


def parse(kind: type[Message], data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MessageError(f"not a {kind.__name__}: {error}") from None


def parse_request(kind: type[Message], data: bytes) -> Any:
    """The message of a request. Raises RpcError if it cannot be read, or is too large."""
    return grpc_requests.parse(kind, data, bytes_max=grpc_requests.QUORUM_BYTES_MAX)


def leader_to_wire(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id


def _leader(wire: int) -> int | None:
    return None if wire < 0 else wire


def _error(wire: int) -> ErrorCode:
    try:
        return ErrorCode(wire)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# ------------------------------------------------------------------------------ requests


def encode_request(
    request: messages.Request, cluster_id: str, own_endpoint: str = ""
) -> tuple[str, bytes]:
    """The method to call and its argument. ``own_endpoint``: where the asker is reached."""
    match request:
        case messages.VoteRequest():
            vote = pb.VoteRequest(
                cluster_id=cluster_id,
                candidate_id=request.candidate_id,
                candidate_directory_id=request.candidate_directory_id,
                voter_id=request.voter_id,
                voter_directory_id=request.voter_directory_id,
                epoch=request.epoch,
                last_offset=request.last_offset,
                last_epoch=request.last_epoch,
                pre_vote=request.pre_vote,
            )
            return VOTE, vote.SerializeToString()
        case messages.BeginQuorumEpochRequest():
            begin = pb.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                leader_id=request.leader_id,
                epoch=request.epoch,
                voter_id=request.voter_id,
                voter_directory_id=request.voter_directory_id,
                leader_endpoint=own_endpoint,
            )
            return BEGIN_QUORUM_EPOCH, begin.SerializeToString()
        case messages.EndQuorumEpochRequest():
            end = pb.EndQuorumEpochRequest(
                cluster_id=cluster_id,
                leader_id=request.leader_id,
                epoch=request.epoch,
                preferred_successors=request.preferred_successors,
            )
            return END_QUORUM_EPOCH, end.SerializeToString()
        case messages.FetchRequest():
            fetch = pb.QuorumFetchRequest(
                cluster_id=cluster_id,
                replica_id=request.replica_id,
                replica_directory_id=request.replica_directory_id,
                epoch=request.epoch,
                fetch_offset=request.fetch_offset,
                last_fetched_epoch=request.last_fetched_epoch,
                max_wait_ms=request.max_wait_ms,
                max_bytes=request.max_bytes,
                high_watermark=request.high_watermark,
            )
            return FETCH, fetch.SerializeToString()
        case messages.FetchSnapshotRequest():
            piece = pb.FetchSnapshotRequest(
                cluster_id=cluster_id,
                replica_id=request.replica_id,
                replica_directory_id=request.replica_directory_id,
                epoch=request.epoch,
                snapshot=_snapshot_to_wire(request.snapshot),
                position=request.position,
                max_bytes=request.max_bytes,
            )
            return FETCH_SNAPSHOT, piece.SerializeToString()


def check_epoch(epoch: int, own_epoch: int) -> None:
    """Refuse the epoch of a request or an answer that cannot be one of this quorum."""
    if epoch < 0:
        raise MessageError(f"epoch {epoch} is negative")
    if epoch > own_epoch + EPOCH_STEP_MAX:
        raise MessageError(f"epoch {epoch} is too far ahead of this replica's epoch {own_epoch}")


def _node_id(wire: int) -> int:
    """The id of the node that a request is about. No node has a negative one."""
    if wire < 0:
        raise MessageError(f"{wire} is no id of a node")
    return wire


def _vote_request(wire: pb.VoteRequest) -> messages.VoteRequest:
    return messages.VoteRequest(
        candidate_id=_node_id(wire.candidate_id),
        candidate_directory_id=directory_id(wire.candidate_directory_id),
        voter_id=wire.voter_id,
        voter_directory_id=directory_id(wire.voter_directory_id),
        epoch=wire.epoch,
        last_offset=wire.last_offset,
        last_epoch=wire.last_epoch,
        pre_vote=wire.pre_vote,
    )


def _begin_request(wire: pb.BeginQuorumEpochRequest) -> messages.BeginQuorumEpochRequest:
    return messages.BeginQuorumEpochRequest(
        _node_id(wire.leader_id),
        wire.epoch,
        wire.voter_id,
        directory_id(wire.voter_directory_id),
    )


def _end_request(wire: pb.EndQuorumEpochRequest) -> messages.EndQuorumEpochRequest:
    return messages.EndQuorumEpochRequest(
        _node_id(wire.leader_id), wire.epoch, tuple(wire.preferred_successors)
    )


def _fetch_request(wire: pb.QuorumFetchRequest) -> messages.FetchRequest:
    return messages.FetchRequest(
        replica_id=wire.replica_id,
        replica_directory_id=directory_id(wire.replica_directory_id),
        epoch=wire.epoch,
        fetch_offset=wire.fetch_offset,
        last_fetched_epoch=wire.last_fetched_epoch,
        max_wait_ms=wire.max_wait_ms,
        max_bytes=wire.max_bytes,
        high_watermark=wire.high_watermark,
    )


def _fetch_snapshot_request(wire: pb.FetchSnapshotRequest) -> messages.FetchSnapshotRequest:
    return messages.FetchSnapshotRequest(
        replica_id=wire.replica_id,
        replica_directory_id=directory_id(wire.replica_directory_id),
        epoch=wire.epoch,
        snapshot=messages.SnapshotId(wire.snapshot.end_offset, wire.snapshot.epoch),
        position=wire.position,
        max_bytes=wire.max_bytes,
    )


def _snapshot_to_wire(snapshot: messages.SnapshotId) -> pb.SnapshotId:
    return pb.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)


def directory_id(wire: bytes) -> bytes:
    """A directory id as it came in; the unknown one for none."""
    if wire and len(wire) != len(NO_DIRECTORY):
        raise MessageError(f"a directory id of {len(wire)} bytes")
    return wire or NO_DIRECTORY


def features(wire: Sequence[FeatureRange]) -> tuple[FeatureLevels, ...]:
    """What a controller supports, as it came in; by name."""
    if len(wire) > _FEATURES_MAX:
        raise MessageError(f"{len(wire)} features are too many: the maximum is {_FEATURES_MAX}")
    found = {each.name: (each.name, each.min_level, each.max_level) for each in wire}
    for name, least, greatest in found.values():
        if not 0 < len(name) <= _NAME_MAX or not 0 <= least <= greatest <= _LEVEL_MAX:
            raise MessageError(
                f"{name[:_NAME_MAX]!r} {least} to {greatest} are no levels of a feature"
            )
    return tuple(found[name] for name in sorted(found))


def features_to_wire(supported: Iterable[FeatureLevels]) -> list[FeatureRange]:
    return [
        FeatureRange(name=name, min_level=least, max_level=greatest)
        for name, least, greatest in supported
    ]


# ----------------------------------------------------------------------------- responses


def encode_response(
    response: messages.Response, records: bytes = b"", *, leader_endpoint: str = ""
) -> bytes:
    """``records`` are the whole batches that a fetch is answered with."""
    known: dict[str, Any] = {
        "error": int(response.error),
        "leader_id": leader_to_wire(response.leader_id),
        "epoch": response.epoch,
        "leader_endpoint": leader_endpoint,
    }
    match response:
        case messages.VoteResponse():
            return pb.VoteResponse(**known, granted=response.granted).SerializeToString()
        case messages.BeginQuorumEpochResponse():
            return pb.BeginQuorumEpochResponse(**known).SerializeToString()
        case messages.EndQuorumEpochResponse():
            return pb.EndQuorumEpochResponse(**known).SerializeToString()
        case messages.FetchResponse():
            fetch = pb.QuorumFetchResponse(
                **known,
                high_watermark=response.high_watermark,
                log_start_offset=response.log_start_offset,
                records=records,
            )
            if response.diverging is not None:
                fetch.diverging.epoch = response.diverging.epoch
                fetch.diverging.end_offset = response.diverging.end_offset
            if response.snapshot is not None:
                fetch.snapshot.epoch = response.snapshot.epoch
                fetch.snapshot.end_offset = response.snapshot.end_offset
            return fetch.SerializeToString()
        case messages.FetchSnapshotResponse():
            piece = pb.FetchSnapshotResponse(
                **known,
                size=response.size,
                position=response.position,
                data=response.data,
            )
            if response.snapshot is not None:
                piece.snapshot.CopyFrom(_snapshot_to_wire(response.snapshot))
            return piece.SerializeToString()


def decode_response(method: str, data: bytes) -> tuple[messages.Response, str]:
    """The answer to a call of ``method``, and where the leader is that it names ("": unknown).

    Batches are checked against their CRC. Raises ForeignClusterError.
    """
    kind, decode = _RESPONSES[method]
    wire = parse(kind, data)
    if wire.error == ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise ForeignClusterError("a node of another cluster answers")
    return decode(wire), address(wire.leader_endpoint)


def address(wire: str) -> str:
    """An address as it came in: host:port, or "" for an unknown one."""
    if len(wire) > _ENDPOINT_MAX or (wire and parse_address(wire) is None):
        raise MessageError(f"{wire[:_ENDPOINT_MAX]!r} is no address")
    return wire


def endpoint(wire: str) -> str:
    """An endpoint as it came in (``runtime.config.addresses.endpoint_text``), or "" for an unknown
    one."""
    if len(wire) > _ENDPOINT_MAX or parse_endpoint(wire) is None:
        raise MessageError(f"{wire[:_ENDPOINT_MAX]!r} is no endpoint")
    return wire


def _vote_response(wire: pb.VoteResponse) -> messages.VoteResponse:
    return messages.VoteResponse(
        _error(wire.error), _leader(wire.leader_id), wire.epoch, wire.granted
    )


def _begin_response(wire: pb.BeginQuorumEpochResponse) -> messages.BeginQuorumEpochResponse:
    return messages.BeginQuorumEpochResponse(
        _error(wire.error), _leader(wire.leader_id), wire.epoch
    )


def _end_response(wire: pb.EndQuorumEpochResponse) -> messages.EndQuorumEpochResponse:
    return messages.EndQuorumEpochResponse(_error(wire.error), _leader(wire.leader_id), wire.epoch)


def _fetch_response(wire: pb.QuorumFetchResponse) -> messages.FetchResponse:
    diverging = snapshot = None
    if wire.HasField("diverging"):
        diverging = messages.EpochEnd(wire.diverging.epoch, wire.diverging.end_offset)
    if wire.HasField("snapshot"):
        snapshot = messages.SnapshotId(wire.snapshot.end_offset, wire.snapshot.epoch)
    return messages.FetchResponse(
        error=_error(wire.error),
        leader_id=_leader(wire.leader_id),
        epoch=wire.epoch,
        high_watermark=wire.high_watermark,
        log_start_offset=wire.log_start_offset,
        diverging=diverging,
        snapshot=snapshot,
        batches=decode_batches(wire.records),
    )


def decode_batches(records: bytes) -> tuple[messages.Batch, ...]:
    """Whole, sound record batches as the core sees them."""
    found = []
    end = 0
    try:
        for position, header in batches(records):
            end = position + header.size_bytes
            if not check_crc(records, position, header):
                raise MessageError(f"the batch at offset {header.base_offset} is damaged")
            found.append(
                messages.Batch(
                    header.base_offset,
                    header.last_offset_delta + 1,
                    header.leader_epoch,
                    records[position:end],
                    voters_in(records, position) if header.is_control else None,
                )
            )
    except (BatchError, ControlRecordError) as error:
        raise MessageError(f"not record batches: {error}") from error
    if end != len(records):
        raise MessageError(f"{len(records) - end} bytes of a batch that is not whole")
    return tuple(found)


def _fetch_snapshot_response(wire: pb.FetchSnapshotResponse) -> messages.FetchSnapshotResponse:
    return messages.FetchSnapshotResponse(
        error=_error(wire.error),
        leader_id=_leader(wire.leader_id),
        epoch=wire.epoch,
        snapshot=messages.SnapshotId(wire.snapshot.end_offset, wire.snapshot.epoch),
        size=wire.size,
        position=wire.position,
        data=wire.data,
    )


_RESPONSES: dict[str, tuple[type[Message], Callable[[Any], messages.Response]]] = {
    VOTE: (pb.VoteResponse, _vote_response),
    BEGIN_QUORUM_EPOCH: (pb.BeginQuorumEpochResponse, _begin_response),
    END_QUORUM_EPOCH: (pb.EndQuorumEpochResponse, _end_response),
    FETCH: (pb.QuorumFetchResponse, _fetch_response),
    FETCH_SNAPSHOT: (pb.FetchSnapshotResponse, _fetch_snapshot_response),
}


@dataclass(frozen=True, slots=True)
class Method:
    """The decoding of one kind of request, and its refusal to another cluster, which says nothing
    about this one."""

    request: type[Message]
    decode: Callable[[Any], messages.Request]
    foreign: messages.Response


_FOREIGN: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, None, 0)

METHODS: dict[str, Method] = {
    VOTE: Method(pb.VoteRequest, _vote_request, messages.VoteResponse(*_FOREIGN, granted=False)),
    BEGIN_QUORUM_EPOCH: Method(
        pb.BeginQuorumEpochRequest, _begin_request, messages.BeginQuorumEpochResponse(*_FOREIGN)
    ),
    END_QUORUM_EPOCH: Method(
        pb.EndQuorumEpochRequest, _end_request, messages.EndQuorumEpochResponse(*_FOREIGN)
    ),
    FETCH: Method(pb.QuorumFetchRequest, _fetch_request, messages.FetchResponse(*_FOREIGN)),
    FETCH_SNAPSHOT: Method(
        pb.FetchSnapshotRequest, _fetch_snapshot_request, messages.FetchSnapshotResponse(*_FOREIGN)
    ),
}
