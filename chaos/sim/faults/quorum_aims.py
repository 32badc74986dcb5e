"""Aims at the quorum: its elections, its voters, and the answers of a deposed leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from google.protobuf.message import Message

from chaos.sim.cluster.methods import READ_INDEX
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import newest_image
from chaos.sim.faults.aim_tools import AimTools
from chaos.sim.world.wire import Said, Stage
from raft.quorum import VoterSet
from raft.ready import Role
from runtime.administration.changes import change_of
from runtime.quorum.messages import FETCH, REMOVE_VOTER, VOTE
from stele.addresses import Address
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from stele.wire.v1.controller_pb2 import ReadIndexRequest, ReadIndexResponse
from stele.wire.v1.raft_pb2 import RemoveVoterRequest, VoteRequest, VoteResponse
from stele.world import RpcError

_NEWS = "extra-news"  # a topic that no law expects to stay
_PATIENCE_S = 6.0  # how long callers wait for a controller
_LONG_S = 5.0  # longer than an election

QUORUM_NAMES = (
    "two_candidates",
    "voter_with_more",
    "wiped_after_its_vote",
    "changes_at_once",
    "half_of_a_grown_quorum",
    "election_of_a_grown_quorum",
    "change_by_a_new_leader",
    "deposed_controller_answers",
)
"""Each is a method of ``QuorumAims``."""


class QuorumAims(AimTools):
    """Each aim is a method, which may be cancelled at any moment."""

    async def _two_candidates(self) -> None:
        """Two candidates stand in one epoch, and voters die right after they have told their votes.

        Candidates hear of each other late. The former leader is back at once and has to choose.
        """
        active = self._cluster.active_controller
        if active is None or len(self._controllers) < 3:
            return
        deaths = self._rng.randint(0, 2)

        def hear(stage: Stage, said: Said) -> None:
            nonlocal deaths
            if stage is Stage.ANSWERED and deaths and _is_vote(said):
                deaths -= 1
                # Keep the candidate that got the vote from leading before the other one asks.
                self._part([self._node(said.source)], self._controllers)
                self._soon(self._strike_shortly, self._node(said.target))

        late_s = self._rng.uniform(0.1, 0.4)

        def hold(said: Said) -> float:
            if said.method != VOTE or said.target == active.host:
                return 0.0
            return 0.0 if VoteRequest.FromString(said.request).pre_vote else late_s

        self._slow_down_quorum(self._rng.uniform(0.02, 0.06))
        try:
            with self._listening(hear), self._holding(hold):
                self._kill(active)  # its peers see the connections break and do not wait
                await self._wait(0.0, 0.02)
                self._revive(active)
                await self._wait(1.0, 2.0)
        finally:
            self._slow_down_quorum(0.0)
            self._join(self._controllers, self._controllers)

    async def _voter_with_more(self) -> None:
        """A leader that is cut off appends decisions that no other voter gets. Then a candidate
        asks for its vote."""
        active = self._cluster.active_controller
        if active is None or len(self._controllers) < 3:
            return
        others = [node for node in self._controllers if node is not active]
        asks, asked = (VOTE, active.host), False

        def hear(stage: Stage, said: Said) -> None:
            nonlocal asked
            if asked or stage is not Stage.SENT or (said.method, said.target) != asks:
                return
            if not VoteRequest.FromString(said.request).pre_vote:
                asked = True
                self._join([active], others)

        # A broker goes and comes back, so that the leader has something to decide.
        brokers = [node for node in self._cluster.brokers.values() if node.alive]
        brokers = [node for node in brokers if node is not active]
        if not brokers:
            return
        with self._listening(hear):
            self._part([active], others)
            try:
                broker = self._rng.choice(brokers)
                self._kill(broker)
                await self._wait(0.0, 0.3)
                self._revive(broker)
                await self._until(lambda: asked, 4.0)
                await self._wait(0.0, 0.5)
            finally:
                self._join([active], others)

    # ------------------------------------------------------------------------------ the voters

    async def _wiped_after_its_vote(self) -> None:
        """A voter loses its disk right after it has voted. Then another candidate asks it for its
        vote in the same epoch.

        That candidate is the former leader, which has not heard of the election. The candidate that
        got the vote is cut off.
        """
        active = self._cluster.active_controller
        if active is None or not self._has_spare_voters(active):
            return
        victim: SimNode | None = None

        def hear(stage: Stage, said: Said) -> None:
            nonlocal victim
            if victim is None and stage is Stage.ANSWERED and _is_vote(said):
                voter, candidate = self._node(said.target), self._node(said.source)
                if active not in (voter, candidate):
                    victim = voter
                    self._soon(self._wipe_shortly, voter)
                    alone_s = self._rng.uniform(0.0, 0.05)
                    self._cluster.simulation.scheduler.at(
                        alone_s, self._part, [candidate], self._controllers
                    )

        try:
            with self._listening(hear), self._alone_with_the_voters():
                self._kill(active)
                if await self._until(lambda: victim is not None, 3.0):
                    await self._wait(0.0, 0.05)
                    self._revive(active)
                    await self._wait(1.5, 3.0)
        finally:
            self._join(self._controllers, self._controllers)
            self._revive(active)
        await self._restore_voters()

    async def _changes_at_once(self) -> None:
        """A leader that reaches only a minority of voters is asked to remove others all at once.

        By the set that is left it would have a majority. The others still have one by their set.
        """
        active = self._cluster.active_controller
        if active is None or not self._has_spare_voters(active):
            return
        voters = self._cluster.settled_voters
        others = self._rng.sample(voters.others(active.id), len(voters) - 1)
        rest = [self._cluster.controllers[voter] for voter in others[: voters.majority]]
        few = [node for node in self._controllers if node not in rest]
        removed = rest[: len(voters) - (2 * (len(voters) - voters.majority) - 1)]
        with self._alone_with_the_voters():
            self._part(few, rest)
            try:
                requests = [
                    self._ask(active, REMOVE_VOTER, _removal(voters, node)) for node in removed
                ]
                await asyncio.gather(*requests)
                await self._wait(0.0, 3.0)
            finally:
                self._join(few, rest)
            await self._wait(0.5, 1.5)
        await self._restore_voters()

    async def _change_by_a_new_leader(self) -> None:
        """A new leader is asked at once to change the voters. It hears one fetch of each voter, so
        it knows that they live. It hears late that they have a record of its epoch."""
        active = self._cluster.active_controller
        if active is None or not self._has_spare_voters(active):
            return
        voters = self._cluster.settled_voters
        heard: set[tuple[str, str]] = set()
        late_s = self._rng.uniform(0.2, 1.0)

        def hold(said: Said) -> float:
            if said.method != FETCH or said.target == active.host:
                return 0.0
            pair = said.source, said.target
            if pair in heard:
                return late_s
            heard.add(pair)
            return 0.0

        with self._alone_with_the_voters(), self._holding(hold):
            self._kill(active)
            if await self._until(lambda: self._leader_but(active) is not None, 3.0):
                await self._wait(0.0, late_s / 2)
                leader = self._leader_but(active)
                if leader is not None:
                    await self._ask(leader, REMOVE_VOTER, _removal(voters, active), 2.0)
            self._revive(active)
        await self._restore_voters()

    def _leader_but(self, former: SimNode) -> SimNode | None:
        """The leader of the newest epoch, established or not, if it is not the former one."""
        cores = [(node, core) for node in self._controllers if (core := node.core) is not None]
        leading = [(core.epoch, node) for node, core in cores if core.role is Role.LEADER]
        _, leader = max(leading, key=lambda each: each[0], default=(0, None))
        return None if leader is former else leader

    async def _half_of_a_grown_quorum(self) -> None:
        """One more voter makes their number even. Then the leader reaches only half of the
        voters.

        Half of the new set would be a majority of the set before: 2 of 4 voters, when there were 3.
        """
        await self._while_grown(lambda active: self._cut_in_half())

    async def _election_of_a_grown_quorum(self) -> None:
        """One more voter makes their number even, so an election needs one more vote than before.
        Then the leader goes."""
        await self._while_grown(self._have_another_elected)

    async def _have_another_elected(self, active: SimNode) -> None:
        self._kill(active)
        await self._until(lambda: self._leader_but(active) is not None, 3.0)
        self._revive(active)

    async def _while_grown(self, act: Callable[[SimNode], Awaitable[None]]) -> None:
        """Add a voter, call ``act`` with the active controller, and remove the voter."""
        active = self._cluster.active_controller
        if active is None or not self._has_spare_voters(active):
            return
        with self._alone_with_the_voters():
            newcomer = await self._newcomer()
            if newcomer is not None:
                await act(active)
                await self._try_to_remove(newcomer)

    async def _newcomer(self) -> SimNode | None:
        """Make a controller a voter and return it. None if no more controllers are allowed, or the
        change fails."""
        cluster = self._cluster
        idle = [node for node in cluster.controllers.values() if node.id not in cluster.voter_ids]
        if not idle:
            if len(cluster.controllers) > len(self._controllers):
                return None
            idle = [cluster.add_controller()]
            self._watch(idle[0])
        node = self._rng.choice(idle)
        await self._until(lambda: node.ready, 3.0)
        with suppress(ApiError, RpcError, OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await cluster.add_voter(node.id)
                return node
        return None

    async def _cut_in_half(self) -> None:
        active = self._cluster.active_controller
        voters = self._cluster.settled_voters
        if active is None or active.id not in voters.ids or len(voters) % 2:
            return
        others = self._rng.sample(voters.others(active.id), len(voters) - 1)
        rest = [self._cluster.controllers[voter] for voter in others[: len(voters) // 2]]
        few = [node for node in self._cluster.controllers.values() if node not in rest]
        self._part(few, rest)
        try:
            await self._change_something(patience_s=1.0)
        finally:
            self._join(few, rest)

    async def _try_to_remove(self, node: SimNode) -> None:
        await self._until(lambda: self._cluster.active_controller is not None, 5.0)
        with suppress(ApiError, RpcError, OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._cluster.remove_voter(node.id)

    @contextmanager
    def _alone_with_the_voters(self) -> Iterator[None]:
        """Keep other faults from taking a voter's disk meanwhile."""
        damage, before = self._damage, self._damage.voters_may_be_lost
        damage.voters_may_be_lost = False
        try:
            yield
        finally:
            damage.voters_may_be_lost = before

    def _has_spare_voters(self, active: SimNode) -> bool:
        """Whether the cluster can lose any one voter. False if a node has one disk for everything:
        the aim learns its victim too late to look for other holders of the replicas on that disk.
        """
        alone = not any(node.shares_metadata_disk for node in self._controllers)
        return alone and self._damage.has_voter_to_spare(active)

    def _wipe_shortly(self, node: SimNode) -> None:
        voters = self._cluster.newest_voters
        if not self._damage.is_one_to_lose(node, voters):
            return  # somebody asked for a removal since the aim began
        self._kill(node)
        if not node.alive:
            self._damage.wipe_voter(node)
            self._cluster.simulation.scheduler.at(self._rng.uniform(0.0, 0.05), self._revive, node)

    async def _restore_voters(self) -> None:
        """Add lost and removed voters again, as an operator would. If that fails, the run's own
        operators do it later."""
        await self._until(lambda: self._cluster.active_controller is not None, 5.0)
        for node in self._controllers:
            lost = node.id in self._damage.lost_voters
            if node.ready and (lost or node.id not in self._cluster.voter_ids):
                with suppress(ApiError, RpcError, OSError, TimeoutError):
                    async with asyncio.timeout(_PATIENCE_S):
                        if node.id in self._cluster.voter_ids:
                            await self._cluster.remove_voter(node.id)
                        await self._cluster.add_voter(node.id)
                        self._damage.lost_voters.discard(node.id)

    # ----------------------------------------------------------------------------- the answers

    async def _deposed_controller_answers(self) -> None:
        """A leader is deposed before it knows. A client asks it at once for the newest metadata.

        It hears the other voters' fetches so late that it still counts on them when they have long
        given it up. It does not hear their other calls.
        """
        active = self._cluster.active_controller
        if active is None or len(self._controllers) < 3:
            return
        others = [node for node in self._controllers if node is not active]
        hosts, late_s = {node.host for node in others}, self._rng.uniform(0.8, 1.3)

        def hold(said: Said) -> float:
            if said.target != active.host or said.source not in hosts:
                return 0.0
            return late_s if said.method == FETCH else _LONG_S

        with self._holding(hold):
            await self._wait(2.0, 3.0)
            for other in others:
                self._fabric.cut(active.host, other.host)
            try:
                await self._until(self._is_another_active(active), _LONG_S)
                await self._change_something()
                await self._ask_for_the_newest(active)
            finally:
                self._join([active], others)

    def _is_another_active(self, than: SimNode) -> Callable[[], bool]:
        return lambda: self._cluster.active_controller not in (None, than)

    async def _change_something(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Change the metadata: create a topic, or delete it if it exists."""
        active = self._cluster.active_controller
        image = newest_image(self._cluster)
        if active is None or image is None:
            return
        if image.topic(_NEWS) is None:
            topic = NewTopic(name=_NEWS, partitions=1, replication_factor=1)
            request: Message = CreateTopicsRequest(topics=[topic])
        else:
            request = DeleteTopicsRequest(names=[_NEWS])
        await self._ask(active, change_of(request).method, request, patience_s)

    async def _ask_for_the_newest(self, node: SimNode) -> None:
        needed = self._reads.asked()
        data = await self._ask(node, READ_INDEX, ReadIndexRequest())
        if data is not None:
            answer = ReadIndexResponse.FromString(data)
            if answer.error == ErrorCode.NONE:
                self._reads.answered(node.host, needed, answer.metadata_offset)

    async def _ask(
        self, node: SimNode, method: str, request: Message, patience_s: float = _PATIENCE_S
    ) -> bytes | None:
        """One call to a controller's own port; None if no answer comes."""
        port = node.config.controller_listeners[0].port
        channel = self._cluster.client_world.network.channel(Address(node.host, port))
        try:
            return await channel.call(method, request.SerializeToString(), timeout_s=patience_s)
        except (RpcError, OSError):
            return None
        finally:
            await channel.close()


def _removal(voters: VoterSet, node: SimNode) -> RemoveVoterRequest:
    directory = voters.directory_id(node.id)
    return RemoveVoterRequest(voter_id=node.id, voter_directory_id=directory)


def _is_vote(said: Said) -> bool:
    return (
        said.method == VOTE
        and not VoteRequest.FromString(said.request).pre_vote
        and VoteResponse.FromString(said.answer).granted
    )
