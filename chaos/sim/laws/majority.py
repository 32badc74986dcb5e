"""Which majority decides, and what its members have on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raft.core import RaftCore
from raft.quorum import ReplicaKey, VoterSet


def deciding(core: RaftCore) -> list[VoterSet]:
    """By whose majority a leader may have committed: until the newest voters are committed
    themselves, those before them."""
    history = core.voter_history
    settled = core.high_watermark > history.latest_offset
    return [history.latest] if settled else [history.latest, history.previous]


def durable_ends(cores: Iterable[RaftCore]) -> dict[ReplicaKey, int]:
    """How far each of these controllers, all that run, has the metadata log on disk.

    One that is down, or lost its disk, may have acknowledged more than it was seen with.
    """
    return {core.local: core.log.durable_end_offset for core in cores}


def is_held(voters: VoterSet, ends: Mapping[ReplicaKey, int], offset: int) -> bool:
    """By a majority, as far as is known."""
    behind = 0
    for voter in voters.voters:
        end = ends.get(voter.key)
        if end is None:  # not there, or its disk is not known yet
            end = next((end for key, end in ends.items() if voter.key.matches(key)), offset)
        behind += end < offset
    return behind * 2 < len(voters) or not len(voters)
