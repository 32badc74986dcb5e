"""Operators that hand the quorum's leadership from one voter to another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.cluster import SimCluster
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcError

_NOBODY: Final = 999  # no node has this id
_SETTLE_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 0.5


@dataclass(slots=True)
class Handovers:
    """Call ``run`` during faults, and ``settle`` once everything is mended."""

    cluster: SimCluster
    rng: random.Random
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            # Some operators do not know of each other.
            targets = self._targets(2 if self.rng.random() < 0.2 else 1)
            await asyncio.gather(*(self._hand_over(target) for target in targets))

    def _targets(self, count: int) -> Sequence[int]:
        """Any voters, the leader among them, and now and then a node that is none."""
        if self.rng.random() < 0.1:
            return [_NOBODY]
        voters = self.cluster.voter_ids
        return [self.rng.choice(voters) for _ in range(count if voters else 0)]

    async def _hand_over(self, target: int) -> bool:
        """One attempt. Returns whether the answer says that the target leads."""
        request = pb.TransferLeadershipRequest(voter_id=target).SerializeToString()
        try:
            raw = await self.cluster.client.administrate("TransferLeadership", request)
        except (ApiError, RpcError):
            self.counts["handovers without an answer"] += 1
            return False
        answer = pb.TransferLeadershipResponse.FromString(raw)
        if answer.error != ErrorCode.NONE:
            self.counts["handovers refused"] += 1
            return False
        self.counts["handovers"] += 1
        if answer.leader_id != target or target == _NOBODY:
            self.report(f"asked to hand over to {target}, answered that {answer.leader_id} leads")
        return True

    async def settle(self) -> None:
        """Let every voter lead once. All nodes are up and hear each other, so a voter may lack
        records or not be heard for a moment only. Raises AssertionError if one never leads."""
        for target in self.cluster.voter_ids:
            end = self.cluster.simulation.now + _SETTLE_TIMEOUT_S
            while not await self._hand_over(target):
                if self.cluster.simulation.now > end:
                    raise AssertionError(f"leadership cannot be handed to voter {target}")
                await asyncio.sleep(_AGAIN_S)
