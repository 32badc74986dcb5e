"""A stranger that sends requests to replicas of the quorum in the names of the replicas."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.cluster import CONTROLLER_PORT, SimCluster
from chaos.sim.cluster.node import SimNode
from raft.core import RaftCore
from runtime.quorum.messages import FETCH, FETCH_SNAPSHOT
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcError

_TIMEOUT_S: Final = 2.0
_MAX_BYTES: Final = 1 << 20


@dataclass(slots=True)
class OddPeer:
    """Call ``run``. A replica must refuse a fetch in its own name, as of a node that was configured
    with the id of another one: to a leader it would acknowledge what the leader itself has."""

    cluster: SimCluster
    rng: random.Random
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            node = self.cluster.active_controller
            if node is not None and (core := node.core) is not None:
                await self._ask(node, core)

    async def _ask(self, node: SimNode, core: RaftCore) -> None:
        itself, epoch = core.local, core.epoch
        fetch = pb.QuorumFetchRequest(
            cluster_id=self.cluster.cluster_id,
            replica_id=itself.id,
            replica_directory_id=itself.directory_id,
            epoch=epoch,
            fetch_offset=core.log.durable_end_offset,
            last_fetched_epoch=core.log.last_epoch,
            max_bytes=_MAX_BYTES,
        )
        piece = pb.FetchSnapshotRequest(
            cluster_id=self.cluster.cluster_id,
            replica_id=itself.id,
            replica_directory_id=itself.directory_id,
            epoch=epoch,
            snapshot=pb.SnapshotId(end_offset=1, epoch=epoch),
            max_bytes=_MAX_BYTES,
        )
        channel = self.cluster.client_world.network.channel(Address(node.host, CONTROLLER_PORT))
        try:
            raw = await channel.call(FETCH, fetch.SerializeToString(), timeout_s=_TIMEOUT_S)
            self._judge(node, "a fetch", pb.QuorumFetchResponse.FromString(raw).error)
            raw = await channel.call(
                FETCH_SNAPSHOT, piece.SerializeToString(), timeout_s=_TIMEOUT_S
            )
            answer = pb.FetchSnapshotResponse.FromString(raw)
            if (answer.epoch, answer.leader_id) == (epoch, itself.id):
                self._judge(node, "a fetch of a snapshot", answer.error)
        except RpcError:
            self.counts["odd peers without an answer"] += 1
        finally:
            await channel.close()

    def _judge(self, node: SimNode, what: str, error: int) -> None:
        self.counts["odd peers"] += 1
        # It may have been deposed meanwhile, and then has other reasons to refuse.
        wrong = (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND)
        if error in wrong:
            self.report(f"{node.host} answers {what} in its own name with {ErrorCode(error).name}")
