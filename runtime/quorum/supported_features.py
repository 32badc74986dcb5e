"""The features that a controller supports, asked of itself before it becomes a voter."""

from __future__ import annotations

from collections.abc import Mapping

from raft.quorum import FeatureLevels, ReplicaKey, Voter
from runtime.config.addresses import choose_listener, parse_endpoint
from runtime.quorum.config import QuorumConfig
from runtime.quorum.messages import (
    SUPPORTED_FEATURES,
    MessageError,
    directory_id,
    features,
    parse,
)
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1 import raft_pb2 as pb
from stele.world import Connector, RpcCode, RpcError


class NoAnswerError(ApiError):
    """A controller is not there, or not yet."""


async def ask_features(
    controllers: Mapping[str, Connector], config: QuorumConfig, voter: Voter
) -> tuple[FeatureLevels, ...]:
    """The levels that a controller supports before it is a voter, asked of itself at its endpoint
    (KIP-853).

    ``controllers``: by the name of the listener. Empty if its version of Stele cannot answer.
    Raises NoAnswerError, and ApiError if another node answers, or if it has no listener that this
    node connects to.
    """
    place = choose_listener(parse_endpoint(voter.endpoint) or (), tuple(controllers))
    if place is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"controller {voter.id} at {voter.endpoint} has no listener of this controller's "
            f"controller.listener.names ({', '.join(controllers)}): nothing changed",
        )
    request = pb.SupportedFeaturesRequest(cluster_id=config.cluster_id).SerializeToString()
    # A new channel: an old one would wait to reconnect.
    channel = controllers[place.name].channel(place.address)
    try:
        data = await channel.call(
            SUPPORTED_FEATURES, request, timeout_s=config.request_timeout_ms / 1000
        )
        answer: pb.SupportedFeaturesResponse = parse(pb.SupportedFeaturesResponse, data)
        found = ReplicaKey(answer.node_id, directory_id(answer.directory_id))
        supported = features(answer.features)
    except (RpcError, MessageError) as error:
        if isinstance(error, RpcError) and error.code is RpcCode.UNIMPLEMENTED:
            return ()
        raise NoAnswerError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"controller {voter.id} does not answer at {voter.endpoint}: nothing changed ({error})",
        ) from None
    finally:
        await channel.close()
    if answer.error or found != voter.key:
        there = f"{found.id} with {encode_uuid(found.directory_id)}"
        who = "one of another cluster" if answer.error else there
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"at {voter.endpoint} is not controller {voter.id} with the directory id "
            f"{encode_uuid(voter.key.directory_id)}, but {who}: nothing changed",
        )
    return supported
