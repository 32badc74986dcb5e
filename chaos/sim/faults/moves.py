"""Random reassignments in a simulated cluster, and the checks after them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from stele.errors import ApiError
from stele.world import RpcError

SETTLE_TIMEOUT_S = 180.0
_PATIENCE_S = 5.0


class Moves:
    """Starts, redirects and cancels moves of some partitions. ``counts`` tells the outcomes.

    Call ``move`` now and then during faults, and ``settle`` once everything is mended.
    """

    def __init__(
        self,
        cluster: SimCluster,
        partitions: Sequence[tuple[str, int]],
        *,
        replication_factor: int = 3,
        stream: str = "moves",
    ) -> None:
        """``replication_factor``: of every partition after ``settle``. A move before that may ask
        for one replica more or less."""
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._partitions = list(partitions)
        self._factor = replication_factor
        self._rng: random.Random = cluster.simulation.rngs.of(stream)

    async def move(self) -> str:
        """Ask for one move or cancellation of one partition. Returns what it was and how it ended.

        Faults of the cluster raise nothing: refusals and unknown outcomes are counted.
        """
        topic, partition = self._rng.choice(self._partitions)
        target = None if self._rng.random() < 0.2 else self._draw_target()
        what = "cancel" if target is None else "start"
        self._cluster.simulation.note("moves", what, f"{topic}-{partition} to {target}")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._cluster.client.reassign(topic, partition, target)
        except ApiError as error:
            outcome = f"{what}: {error.code.name}"
        except (RpcError, OSError):  # a TimeoutError is an OSError
            outcome = f"{what}: no answer"
        else:
            outcome = what
        self.counts[outcome] += 1
        return outcome

    def _draw_target(self) -> list[int]:
        brokers = sorted(self._cluster.brokers)
        wanted = self._rng.choice([self._factor] * 3 + [self._factor - 1, self._factor + 1])
        return self._rng.sample(brokers, max(1, min(wanted, len(brokers))))

    async def settle(self) -> None:
        """Give every partition its replication factor, and wait until nothing moves any more.

        All brokers must be up. Raises AssertionError if that takes too long.
        """
        for topic, partition in self._partitions:
            brokers = sorted(self._cluster.brokers)
            target = self._rng.sample(brokers, min(self._factor, len(brokers)))
            await self._bring(topic, partition, tuple(target))
        await self._cluster.until(
            lambda: not list(strays(self._cluster)),
            "no broker keeps a log that is not its own",
            timeout_s=SETTLE_TIMEOUT_S,
        )

    async def _bring(self, topic: str, partition: int, target: tuple[int, ...]) -> None:
        """Ask repeatedly: an earlier move without an answer may be decided late and replace ours.

        A refusal means that too few replicas would have every record. That passes with all brokers
        up.
        """
        problem: Exception | None = None
        deadline = self._cluster.simulation.now + SETTLE_TIMEOUT_S
        while not self._is_on(topic, partition, target):
            if self._cluster.simulation.now > deadline:
                raise AssertionError(f"{topic}-{partition} does not come to {target}") from problem
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._cluster.client.reassign(topic, partition, target)
            except (ApiError, RpcError, OSError) as error:
                problem = error
            await asyncio.sleep(0.5)

    def _is_on(self, topic: str, partition: int, target: tuple[int, ...]) -> bool:
        if self._cluster.active_controller is None:
            return False  # the other controllers may have old metadata
        state = self._cluster.partition(topic, partition)
        return state.replicas == target and not state.is_reassigning


def strays(cluster: SimCluster) -> Iterator[str]:
    """Replica directories that running brokers have but should not have."""
    image = cluster.image
    for node in cluster.brokers.values():
        if not node.ready:
            continue
        wanted = {
            f"{topic.name}-{number}"
            for topic, number, state in image.sorted_partitions()
            if node.id in state.replicas
        }
        for name in _replica_directories(cluster, node):
            if name not in wanted:
                yield f"broker {node.id}: {name}"


def _replica_directories(cluster: SimCluster, node: SimNode) -> list[str]:
    """A broker's replica directories, without those that will be deleted and corrupt ones that are
    set aside."""
    disk = node.machine.disk
    return [
        name
        for directory in node.config.log_dirs
        for name in disk.names(directory)
        if not name.endswith(("-delete", "-corrupt"))
        and name != "__cluster_metadata-0"
        and disk.find(f"{directory}/{name}/partition.metadata")
    ]
