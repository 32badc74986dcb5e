"""The majority that decides, and what its members have on disk."""

from __future__ import annotations

from collections.abc import Mapping

from raft.core import RaftCore
from raft.quorum import ReplicaKey, VoterSet


def deciding(core: RaftCore) -> list[VoterSet]:
    """The voter sets whose majority may have committed the high watermark: the latest, and until
    the latest is committed also the one before it."""
    history = core.voter_history
    settled = core.high_watermark > history.latest_offset
    return [history.latest] if settled else [history.latest, history.previous]


def is_held(voters: VoterSet, ends: Mapping[ReplicaKey, int], offset: int) -> bool:
    """Whether a majority may hold everything below ``offset``. A voter whose log is unknown counts
    as a holder."""
    behind = 0
    for voter in voters.voters:
        end = ends.get(voter.key)
        if end is None:  # it does not run, or the quorum does not know its disk yet
            end = next((end for key, end in ends.items() if voter.key.matches(key)), offset)
        behind += end < offset
    return behind * 2 < len(voters) or not len(voters)
