"""Aimed faults: several faults in the order in which they do harm, instead of one at random.

Each aim sets up one known way to lose records or to break a promise, and leaves the rest to chance.
Aims strike what storms strike (processes, power, disks and the network), and also hold messages
back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import NamedTuple

from broker.replication.replica import Replica
from chaos.sim.cluster.methods import ALTER_PARTITION
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import newest_image, replica_of
from chaos.sim.faults.damage import Damage
from chaos.sim.faults.images import Images
from chaos.sim.faults.quorum_aims import QUORUM_NAMES, QuorumAims
from chaos.sim.faults.transaction_aims import TRANSACTION_NAMES, TransactionAims
from chaos.sim.laws.atomic_transactions import RISKY
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.wire import Said, Stage
from metadata.effective import min_insync_replicas
from metadata.partitions import PartitionState
from runtime.quorum.messages import FETCH
from stele.errors import ApiError, SteleError
from stele.ids import PartitionId
from stele.wire.v1 import admin_pb2
from stele.wire.v1.controller_pb2 import AlterPartitionRequest
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from stele.world import RpcError
from storage.producer_state import NEVER

_FAVOURITES = 3  # aims that a run chooses most of the time
_RISKY = "extra-risky"  # a topic whose records no law expects to stay
_PAUSE_S = 2.0  # the longest pause between two aims
_METADATA_HELD_S = 6.0


NAMES = (
    *QUORUM_NAMES,
    "outdated_newcomer",
    "repeated_proposals",
    "deposed_leader_proposes",
    "leader_in_the_dark",
    "late_high_watermark",
    "diverge",
    "follower_in_the_dark",
    "part_planes",
    "shrink_under_writers",
    "raised_minimum",
    "unclean_election",
    "rebuild_without_handles",
    "restored_and_alone",
)
"""The aims; each is a method of ``Aims``. Runs with transactions have more
(``TRANSACTION_NAMES``)."""


class Target(NamedTuple):
    """A partition, its running leader and its running followers in the ISR."""

    topic: str
    partition: PartitionId
    leader: SimNode
    followers: list[SimNode]  # in the order of the assignment
    state: PartitionState


class Aims(QuorumAims, TransactionAims):
    """``next`` draws one aim and carries it out. It may be cancelled at any moment."""

    def __init__(
        self,
        cluster: JudgedCluster,
        *,
        kill: Callable[[SimNode], bool],
        cut_power: Callable[[SimNode], bool],
        revive: Callable[[SimNode], bool],
        watch: Callable[[SimNode], None],
        damage: Damage,
        counts: Counter[str],
        only: Collection[str] = (),
        has_transactions: bool = False,
    ) -> None:
        """``kill``, ``cut_power`` and ``revive`` return False when there is nothing to do.

        ``only``: draw only these; all of them if it is empty.
        """
        super().__init__(
            cluster, kill=kill, cut_power=cut_power, revive=revive, watch=watch, damage=damage
        )
        self._counts = counts
        drawn = only or (*NAMES, *(TRANSACTION_NAMES if has_transactions else ()))
        self._aims: list[Callable[[], Awaitable[None]]] = [
            getattr(self, f"_{name}") for name in (*NAMES, *TRANSACTION_NAMES) if name in drawn
        ]
        self._favourites = self._rng.sample(self._aims, min(_FAVOURITES, len(self._aims)))

    def pause_s(self) -> float:
        """How long to wait before the next aim."""
        return self._rng.uniform(0.0, _PAUSE_S)

    async def next(self, number: int) -> None:
        """``number``: the aim's place among all acts of the storm."""
        aims = self._favourites if self._rng.random() < 0.8 else self._aims
        aim = self._rng.choice(aims)
        name = aim.__name__.strip("_")
        self._counts[f"aimed: {name}"] += 1
        self._cluster.simulation.note("aim", "begin", f"{number} {name}")
        await aim()
        self._cluster.simulation.note("aim", "end", name)

    # ----------------------------------------------------------------------------- the ISR

    async def _outdated_newcomer(self) -> None:
        """A follower about to join dies and comes back while its leader's proposal is under way."""
        target = self._target(followers=1)
        if target is None:
            return
        newcomer = self._rng.choice(target.followers)
        held_s = self._rng.uniform(0.5, 3.0)
        held = False

        def hold(said: Said) -> float:
            nonlocal held
            if held or not _proposes(said, target, newcomer):
                return 0.0
            held = True
            self._soon(self._strike_shortly, newcomer)
            return held_s

        with self._holding(hold):
            if await self._drop_from_isr(target, newcomer):
                self._revive(newcomer)
                await self._until(lambda: held, 5.0)
                await self._wait(held_s, held_s + 0.5)

    async def _repeated_proposals(self) -> None:
        """A follower leaves the ISR and joins it again, twice. Copies of the leader's proposals
        arrive later."""
        target = self._target(followers=1)
        lag_s = self._lag_s
        if target is None or lag_s > 3.5:
            return
        follower = self._rng.choice(target.followers)
        with self._echoing(target.leader):
            for _ in range(2):
                self._part([follower], [target.leader])
                try:
                    await self._wait(lag_s + 0.3, lag_s + 0.8)
                finally:
                    self._join([follower], [target.leader])
                await self._wait(0.2, 1.0)
        await self._wait(0.5, 2.0)

    async def _deposed_leader_proposes(self) -> None:
        """A leader's proposals arrive once more when another replica has been elected. The deposed
        leader still runs."""
        target = self._target(followers=2)
        if target is None or target.leader.id != target.state.preferred_leader:
            return
        self._kill(target.leader)
        await self._until(lambda: self._is_led_by_another(target), 3.0)
        second = self._leader_of(target)
        if second is None or second is target.leader:
            return
        with self._echoing(second):
            self._revive(target.leader)
            await self._until(lambda: target.leader.id in self._isr(target), 4.0)
            await self._elect_preferred(target)
            await self._wait(1.0, 4.0)

    async def _leader_in_the_dark(self) -> None:
        """The controller takes a newcomer into the ISR, but neither its answer nor the metadata
        reaches the leader. Meanwhile the newcomer falls behind."""
        target = self._target(followers=2)
        lag_s = self._lag_s
        if target is None or lag_s > 3.5:
            return
        newcomer = self._rng.choice(target.followers)
        cut = False

        def hear(stage: Stage, said: Said) -> None:
            nonlocal cut
            if stage is Stage.SENT and not cut and _proposes(said, target, newcomer):
                cut = True
                for controller in self._controllers:
                    if controller is not target.leader:
                        self._fabric.cut(controller.host, target.leader.host)
                self._part([newcomer], [target.leader])

        with self._listening(hear):
            try:
                if await self._drop_from_isr(target, newcomer):
                    self._revive(newcomer)
                    if await self._until(lambda: cut, 5.0):
                        await self._wait(lag_s + 0.3, lag_s + 1.5)
            finally:
                self._join(self._controllers, [target.leader])
                self._join([newcomer], [target.leader])

    async def _late_high_watermark(self) -> None:
        """A smaller ISR lets the leader commit more. The leader dies before the other followers
        hear of the new high watermark."""
        target = self._target(followers=2)
        if target is None:
            return
        behind = self._rng.choice(target.followers)
        self._part([behind], [target.leader])
        try:
            await self._wait(0.05, 0.4)
            if await self._drop_from_isr(target, behind):
                await self._until(lambda: behind.id not in self._isr_at_leader(target), 0.5)
                await self._wait(0.01, 0.03)
                self._strike(target.leader)
        finally:
            self._join([behind], [target.leader])
        self._revive(behind)
        await self._wait(0.3, 1.5)
        self._revive(target.leader)

    async def _shrink_under_writers(self) -> None:
        """All followers leave the ISR while writes wait for them."""
        target = self._target(followers=1)
        if target is None:
            return
        self._part(target.followers, [target.leader])
        try:
            await self._wait(0.05, 0.5)
            for follower in target.followers:
                self._strike(follower)
            await self._wait(0.1, 1.0)
        finally:
            self._join(target.followers, [target.leader])
        for follower in target.followers:
            self._revive(follower)

    async def _raised_minimum(self) -> None:
        """min.insync.replicas is raised, but the leader hears of it only after the answer to its
        proposal of a smaller ISR. The follower that leaves the ISR stays an eligible leader."""
        target = self._target(followers=2)
        if target is None or self._lag_s > 1.5 or target.leader in self._controllers:
            return
        image = newest_image(self._cluster)
        needed = len(target.state.isr)
        before = 0 if image is None else min_insync_replicas(image, target.topic)
        if not 1 < before < needed:
            return  # with a minimum of 1, one replica alone may hold what was acknowledged
        behind = self._rng.choice(target.followers)

        def hold(said: Said) -> float:
            is_late = said.source == target.leader.host and said.method == FETCH
            return _METADATA_HELD_S if is_late else 0.0

        try:
            with self._holding(hold):
                await self._wait(0.5, 0.6)  # until the fetch that waits at the controller returns
                await self._require(target.topic, needed)
                self._part([behind], [target.leader])
                shrunk = await self._until(
                    lambda: behind.id not in self._isr(target), self._lag_s + 1.0
                )
                if shrunk:
                    await self._wait(0.1, 0.5)
        finally:
            self._join([behind], [target.leader])
            await self._require(target.topic, before)

    async def _require(self, topic: str, replicas: int) -> None:
        """Set the topic's min.insync.replicas."""
        resource = admin_pb2.AlterConfigsRequest.Resource()
        resource.resource.type, resource.resource.name = ConfigResourceType.TOPIC, topic
        resource.changes.add(name="min.insync.replicas", value=str(replicas))
        request = admin_pb2.AlterConfigsRequest(resources=[resource])
        with suppress(RpcError, OSError):  # no controller answers
            await self._cluster.client.change(request)

    async def _unclean_election(self) -> None:
        """A partition that allows unclean elections loses the last member of its ISR."""
        target = await self._risky_target()
        if target is None:
            return
        for follower in target.followers:
            await self._drop_from_isr(target, follower)
        if self._isr(target) != (target.leader.id,):
            return
        for number in range(self._rng.randint(1, 4)):
            await self._write(target, target.leader, number)
        await self._wait(0.2, 0.5)
        self._strike(target.leader)
        for follower in target.followers:
            self._revive(follower)
        await self._until(lambda: self._is_led_by_another(target), 3.0)
        leader = self._leader_of(target)
        if leader is not None:
            await self._wait(0.1, 0.5)
            await self._write(target, leader, 9)
        await self._wait(0.1, 0.5)
        self._revive(target.leader)

    async def _marker_lost(self) -> None:
        """A partition with transactions has an unclean election, by which it loses the end of one,
        or all of it."""
        target = self._target(followers=1, only=RISKY[0])
        if target is None or len(target.state.replicas) != 2:
            return
        (follower,) = target.followers
        await self._until(lambda: self._has_open(target), 4.0)
        if not await self._drop_from_isr(target, follower):
            return
        if self._rng.random() < 0.8:
            await self._until(lambda: not self._has_open(target), 4.0)
        else:
            await self._wait(0.0, 1.0)
        self._strike(target.leader)
        self._revive(follower)
        await self._until(lambda: self._is_led_by_another(target), 3.0)
        await self._wait(0.5, 4.0)
        self._revive(target.leader)

    def _has_open(self, target: Target) -> bool:
        """Whether its leader has an open transaction."""
        replica = replica_of(target.leader, target.partition)
        return replica is not None and replica.log.transactions.first_open_offset != NEVER

    # ------------------------------------------------------------------------------ the log

    async def _diverge(self) -> None:
        """A leader has records that no other replica has. It loses leadership and has to truncate
        them."""
        target = self._target(followers=2)
        if target is None:
            return
        first, *rest = self._rng.sample(target.followers, len(target.followers))
        leader, brokers = target.leader, list(self._cluster.brokers.values())
        try:
            if self._rng.random() < 0.5:
                # The leader is alone from the very beginning of its epoch.
                self._part([first], rest)
                self._strike(target.leader)
                await self._until(lambda: self._is_led_by_another(target), 3.0)
                leader = self._leader_of(target) or leader
                self._part([leader], brokers)
                self._revive(target.leader)
            else:
                self._part([first], [leader])
                await self._wait(0.02, 0.4)
                self._part(rest, [leader])
            await self._wait(0.1, 1.0)
            self._strike(leader)
        finally:
            self._join(brokers, brokers)
        await self._wait(0.0, 0.5)
        self._revive(target.leader)
        self._revive(leader)
        await self._wait(0.5, 1.5)

    async def _follower_in_the_dark(self) -> None:
        """Leadership moves to another broker and back. One follower hears of neither change."""
        target = self._target(followers=2)
        if target is None or target.leader.id != target.state.preferred_leader:
            return
        leader, unaware = target.leader, target.followers[-1]
        for controller in self._controllers:
            if controller is not unaware:
                self._fabric.cut(controller.host, unaware.host)
        try:
            self._kill(leader)
            await self._until(lambda: self._is_led_by_another(target), 3.0)
            self._revive(leader)
            await self._until(lambda: leader.id in self._isr(target), 4.0)
            await self._elect_preferred(target)
            await self._wait(0.5, 2.0)
        finally:
            self._join(self._controllers, [unaware])

    async def _part_planes(self) -> None:
        """For two broker sessions, brokers reach each other and their clients but no controller."""
        brokers = list(self._cluster.brokers.values())
        if self._controllers[0] in brokers:
            return
        session_s = brokers[0].config.broker_session_timeout_ms / 1000
        self._part(self._controllers, brokers)
        try:
            await self._wait(2 * session_s + 1.0, 2 * session_s + 4.0)
        finally:
            self._join(self._controllers, brokers)

    # -------------------------------------------------------------------------- partitions

    def _target(self, *, followers: int, only: str = "") -> Target | None:
        """A partition with at least so many followers that run and are in the ISR."""
        image = newest_image(self._cluster)
        found: list[Target] = []
        for topic, number, state in () if image is None else image.sorted_partitions():
            alive = [
                self._cluster.brokers[broker]
                for broker in state.replicas
                if broker in state.isr and self._cluster.brokers[broker].alive
            ]
            leader = self._cluster.brokers.get(state.leader)
            wanted = topic.name == only if only else not topic.name.startswith("extra")
            if leader in alive and len(alive) > followers and wanted:
                rest = [node for node in alive if node is not leader]
                partition = PartitionId(topic.topic_id, number)
                found.append(Target(topic.name, partition, leader, rest, state))
        return self._rng.choice(found) if found else None

    async def _risky_target(self) -> Target | None:
        """A partition that allows unclean elections and has two followers in sync. Creates its
        topic if need be."""
        client = self._cluster.client
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        try:
            image = newest_image(self._cluster)
            if image is not None and image.topic(_RISKY) is None:
                await client.create_topic(_RISKY, configs=configs)
                await self._wait(0.5, 1.0)
        except (SteleError, RpcError, OSError):
            return None
        return self._target(followers=2, only=_RISKY)

    async def _write(self, target: Target, leader: SimNode, number: int) -> None:
        """Write one record with acks=1."""
        value = b"<u%d-%f>" % (number, self._cluster.simulation.now)
        with suppress(ApiError, OSError):
            await self._cluster.client.produce(
                target.topic, value, broker=leader.id, acks=1, timeout_s=1.0
            )

    # ---------------------------------------------------------------------------- the disks

    async def _restored_and_alone(self) -> None:
        """The disk of an eligible replica goes back to an earlier state, and then it is the only
        one whose broker runs."""
        target, images = self._target(followers=2), Images(self._cluster, self._damage)
        if target is None:
            return
        restored, *rest = self._rng.sample(target.followers, len(target.followers))
        if not images.take(restored):
            return
        if not await self._drop_from_isr(target, restored):
            return
        self._revive(restored)  # another process registers
        if not await self._until(lambda: restored.id in self._isr(target), 10.0):
            return
        await self._wait(0.5, 2.0)  # more is committed
        for each in (*rest, restored):
            if not await self._drop_from_isr(target, each):
                return
        if restored.alive or not images.restore(restored):
            return
        self._strike(target.leader)
        self._revive(restored)
        await self._wait(2.0, 4.0)
        for each in (target.leader, *rest):
            self._revive(each)

    async def _rebuild_without_handles(self) -> None:
        """A leader finds a bad sector and has to rebuild its replica while file handles are
        scarce."""
        target = self._target(followers=1)
        if target is None or not target.leader.ready:  # a node that starts needs handles
            return
        if not self._damage.spoil_sector(target.leader, only=target.partition):
            return
        faults = self._cluster.simulation.machine(target.leader.host).disk.faults
        faults.no_handle = self._rng.choice([0.5, 0.8])  # the active segment stays open
        reading = asyncio.get_running_loop().create_task(self._read(target))
        try:
            if await self._until(lambda: self._is_led_by_another(target), 3.0):
                await self._wait(0.5, 3.0)
        finally:
            faults.no_handle = 0.0
            reading.cancel()

    async def _read(self, target: Target) -> None:
        with suppress(ApiError, OSError):
            await self._cluster.client.fetch_all(target.topic, target.partition.partition)

    def _state(self, target: Target) -> PartitionState | None:
        image = newest_image(self._cluster)
        return None if image is None else image.partition(*target.partition)

    def _isr(self, target: Target) -> tuple[int, ...]:
        state = self._state(target)
        return () if state is None else state.isr

    def _leader_of(self, target: Target) -> SimNode | None:
        state = self._state(target)
        return None if state is None else self._cluster.brokers.get(state.leader)

    def _is_led_by_another(self, target: Target) -> bool:
        return self._leader_of(target) not in (None, target.leader)

    def _isr_at_leader(self, target: Target) -> tuple[int, ...]:
        replica: Replica | None = replica_of(target.leader, target.partition)
        return () if replica is None else replica.machine.state.isr

    async def _drop_from_isr(self, target: Target, follower: SimNode) -> bool:
        self._kill(follower)
        return await self._until(lambda: follower.id not in self._isr(target), 3.0)

    async def _elect_preferred(self, target: Target) -> None:
        partition = admin_pb2.TopicPartitionName(
            topic=target.topic, partition=target.partition.partition
        )
        request = admin_pb2.ElectLeadersRequest(partitions=[partition])
        try:
            await self._cluster.client.change(request)
        except (RpcError, OSError):
            return  # no controller answers: then nobody is elected


def _proposes(said: Said, target: Target, newcomer: SimNode) -> bool:
    """Whether the call is the target's leader proposing an ISR that contains the newcomer."""
    if said.method != ALTER_PARTITION or said.source != target.leader.host:
        return False
    for proposal in AlterPartitionRequest.FromString(said.request).partitions:
        if (proposal.topic_id, proposal.partition) == target.partition:
            return any(member.broker_id == newcomer.id for member in proposal.isr)
    return False
