"""A leader of the quorum whose disk is full cannot decide anything: another voter may."""

from __future__ import annotations

import logging

from raft.api import NotLeaderError
from raft.quorum import VoterSet
from runtime.quorum.changes import QuorumChanges
from runtime.quorum.messages import SUPPORTED_FEATURES, MessageError, parse
from runtime.quorum.peers import Peers
from stele.errors import ApiError
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcError

_log = logging.getLogger(__name__)


async def hand_over(
    node_id: int,
    cluster_id: str,
    voters: VoterSet,
    peers: Peers,
    changes: QuorumChanges,
) -> None:
    """Hand leadership to a voter that reports room. Return when there is none, too.

    A voter without room is not tried: it could not write its own vote, and the quorum would have no
    leader. Brokers need a leader for their sessions even if it cannot decide anything.
    """
    request = pb.SupportedFeaturesRequest(cluster_id=cluster_id).SerializeToString()
    for voter_id in sorted(set(voters.ids) - {node_id}):
        try:
            data = await peers.ask(voter_id, SUPPORTED_FEATURES, request)
            answer: pb.SupportedFeaturesResponse = parse(pb.SupportedFeaturesResponse, data)
            if answer.error or answer.node_id != voter_id or answer.out_of_room:
                continue
            _log.error("the disk is full: leadership of the quorum goes to voter %d", voter_id)
            await changes.transfer_leadership(voter_id)
        except NotLeaderError:
            return
        except (ApiError, RpcError, MessageError) as error:
            _log.warning("leadership did not go to voter %d: %s", voter_id, error)
        else:
            return
