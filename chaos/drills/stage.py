"""Where a drill's course plays: the cluster, the workload, and the words for what is done.

Each deed is taken down as a step of the history. A deed that harms is a step of the phase
``fault``, one that mends is one of ``heal``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from chaos.cluster_security import APPLICATION
from chaos.drills.chain.chain import Chain, ChainOptions
from chaos.drills.cluster import DrillCluster
from chaos.drills.history import Phase, Step
from chaos.drills.member import MemberProcess
from chaos.drills.observer import Observer
from chaos.drills.queue.crew import Crew, How
from chaos.drills.recorder import Recorder
from chaos.drills.workload import Reader, Writer, probe
from chaos.drills.zombie import WaitingRequests
from chaos.security_move import MoveStep
from stele.admin.descriptions import TopicDescription
from stele.aio import Admin
from stele.errors import SteleError
from stele.world import Clock

_POLL_S: Final = 0.05
_WITHIN_S: Final = 60.0
ASK_TIMEOUT_MS: Final = 5_000
"""How long the drill's administrator waits for an answer."""


class DrillError(SteleError):
    """The drill could not go its way. The text says what did not happen in time."""


@dataclass(frozen=True, slots=True)
class Clients:
    """All clients of a drill that last as long as it does."""

    writer: Writer
    reader: Reader
    observer: Observer
    admin: Admin


class Stage:
    def __init__(
        self,
        cluster: DrillCluster,
        topic: str,
        partitions: int,
        clients: Clients,
        recorder: Recorder,
        rng: random.Random,
        clock: Clock,
        chain: ChainOptions,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = partitions
        self.rng = rng
        self.group = f"{topic}-group"
        self._clients = clients
        self._writer = clients.writer
        self._recorder = recorder
        self._admin = clients.admin
        self._own_admin: Admin | None = None  # made by `move_clients`
        self._clock = clock
        self._probes = 0
        self.members: list[MemberProcess] = []
        self._chain_options = chain
        self._chain: Chain | None = None
        self._crew: Crew | None = None
        self._is_ended = False

    # ---------------------------------------------------------------------------- phases

    def step(self, phase: Phase, text: str, *nodes: int) -> None:
        self._recorder.add(Step(self._recorder.now_ms, phase, text, nodes))

    async def steady(self, seconds: float = 2.0) -> None:
        """Wait until every partition acknowledges, then let it run for a while."""
        await self.acknowledging()
        self.step("steady", "every partition acknowledges writes")
        await asyncio.sleep(seconds)

    async def hold(self, seconds: float) -> None:
        """Leave everything as it is. How long a fault lasts is part of the drill."""
        await asyncio.sleep(seconds)

    async def whole(self, within_s: float = _WITHIN_S) -> None:
        """Wait until nothing is missing: nodes, leaders, ISRs, acknowledgements."""
        await self.until(self._is_whole, "the cluster is whole again", within_s)
        await self.acknowledging(within_s)
        self.step("recovered", "every replica is in sync, every partition acknowledges writes")

    async def acknowledging(self, within_s: float = _WITHIN_S) -> None:
        """Wait for a new acknowledgement in each partition."""
        before = list(self._writer.acknowledged)

        async def news() -> bool:
            now = self._writer.acknowledged
            return all(new > old for new, old in zip(now, before, strict=True))

        await self.until(news, "every partition acknowledges writes", within_s)

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, within_s: float = _WITHIN_S
    ) -> None:
        """Wait for a condition. Raises DrillError after ``within_s``."""
        last = ""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        if await condition():
                            return
                    except SteleError as error:
                        last = f" (last answer: {error})"
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise DrillError(f"not within {within_s:.0f} s: {what}{last}") from None

    # ----------------------------------------------------------------------------- deeds

    async def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.step("fault", f"kill -9 {self.name(node)}", node)
            await self.cluster.kill(node)

    async def pause(self, *nodes: int) -> None:
        for node in nodes:
            self.step("fault", f"pause {self.name(node)}", node)
            await self.cluster.pause(node)

    async def stop(self, node: int) -> None:
        self.step("fault", f"stop {self.name(node)} in good order", node)
        await self.cluster.stop(node)

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            self.step("heal", f"start {self.name(node)}", node)
            await self.cluster.start(node)

    async def resume(self, *nodes: int) -> None:
        for node in nodes:
            self.step("heal", f"let {self.name(node)} go on", node)
            await self.cluster.resume(node)

    async def cut(self, sources: Sequence[int], targets: Sequence[int], text: str) -> None:
        """Drop what some nodes send to others; the other direction stays as it is."""
        self.step("fault", text, *sources)
        await self.cluster.cut(sources, targets)

    async def reconnect(self) -> None:
        self.step("heal", "take all cuts of the network back")
        await self.cluster.reconnect()

    async def fill_disk(self, node: int) -> None:
        self.step("fault", f"fill the disk of {self.name(node)}", node)
        await self.cluster.fill_disk(node)

    async def free_disk(self, node: int) -> None:
        self.step("heal", f"give {self.name(node)} room on its disk", node)
        await self.cluster.free_disk(node)

    async def slow_disk(self, node: int, writes_per_s: int) -> None:
        text = f"let {self.name(node)} write {writes_per_s} times a second"
        self.step("fault", text, node)
        await self.cluster.slow_disk(node, writes_per_s)

    async def restore_disk(self, node: int) -> None:
        self.step("heal", f"let {self.name(node)} write as fast as its disk", node)
        await self.cluster.restore_disk(node)

    async def slow_network(self, node: int, delay_ms: float) -> None:
        text = f"delay what reaches {self.name(node)} and what it answers by {delay_ms:g} ms"
        self.step("fault", text, node)
        await self.cluster.slow_network(node, delay_ms)

    async def restore_network(self, node: int) -> None:
        self.step("heal", f"delay nothing of {self.name(node)} any more", node)
        await self.cluster.slow_network(node, 0)

    async def set_clock(self, node: int, ahead_s: int) -> None:
        self.step("fault", f"set the clock of {self.name(node)} to {ahead_s:+d} s", node)
        await self.cluster.set_clock(node, ahead_s)

    async def restore_clock(self, node: int) -> None:
        self.step("heal", f"set the clock of {self.name(node)} right", node)
        await self.cluster.set_clock(node, 0)

    async def probe(self) -> None:
        """Ask in each partition whether a write is taken now."""
        self._probes += 1
        label = f"probe{self._probes}"
        self.step("note", "write one record to each partition, to see whether it is refused")
        await probe(
            self.cluster.bootstrap_servers,
            self.topic,
            self.partitions,
            label,
            self._recorder,
            self.cluster.security,
        )

    async def requests_for(self, broker: int) -> WaitingRequests:
        """A connection to a broker that is about to be paused."""
        requests = WaitingRequests(broker, self.topic, self._recorder, self._clock)
        await requests.connect(self.cluster.kafka_address(broker))
        return requests

    async def start_members(self, count: int) -> None:
        """Let so many processes read the topic as a group."""
        for _ in range(count):
            member = MemberProcess(len(self.members) + 1, self._recorder)
            self.members.append(member)
            await member.start(self.cluster.bootstrap_servers, self.group, self.topic)

    async def kill_member(self, member: MemberProcess) -> None:
        self.step("fault", f"kill -9 {member.label} of the group")
        await member.kill()

    # ------------------------------------------------------------------------------ queue

    @property
    def seconds(self) -> float:
        """How long processes are killed."""
        return self._chain_options.seconds

    async def start_crew(self, how: How) -> Crew:
        """Let workers process the topic as a share group."""
        bootstrap = self.cluster.bootstrap_servers
        self._crew = Crew(bootstrap, f"{self.topic}-workers", self.topic, self._recorder, how)
        await self._crew.start(self._admin)
        return self._crew

    async def crew_is_done(self, crew: Crew, within_s: float) -> None:
        """Wait until the workers have nothing left to do."""

        async def is_done() -> bool:
            return await crew.is_drained(self._admin)

        await self.until(is_done, "every record of the queue is done", within_s)

    async def replicated(self) -> None:
        """Wait until nothing of the topic is missing."""
        await self.until(self._is_whole, "all replicas are in sync")

    # ------------------------------------------------------------------------------ chain

    async def start_chain(self, offsets: Literal["inside", "outside"]) -> Chain:
        """A chain of transactions. ``offsets``: whether its hops commit theirs in them."""
        bootstrap = self.cluster.bootstrap_servers
        self._chain = Chain(bootstrap, self._chain_options, self._recorder, offsets)
        await self._chain.start(self._admin)
        return self._chain

    async def broker_of_chain(self, role: str, hop: int) -> int:
        """Which broker does this for a hop: ``leader``, ``transaction coordinator`` or ``group
        coordinator``."""
        assert self._chain is not None
        chain, found = self._chain, list[int]()
        number = self.rng.randrange(1 << 16)

        async def led() -> bool:
            match role:
                case "leader":
                    found.append(await chain.leader(self._admin, number))
                case "transaction coordinator":
                    found.append(await chain.transaction_coordinator(self._admin, hop))
                case _:
                    found.append(await chain.group_coordinator(self._admin, hop))
            return True

        await self.until(led, f"there is a {role} of the chain")
        return found[0]

    async def chain_is_replicated(self) -> None:
        """Wait until all replicas of what the chain needs are in sync."""
        assert self._chain is not None
        chain = self._chain

        async def replicated() -> bool:
            return await self._is_whole() and await chain.is_replicated(self._admin)

        await self.until(replicated, "all replicas of the chain are in sync")

    def end_writing(self) -> None:
        """Nobody sends any more. What is under way may still arrive. Idempotent."""
        if not self._is_ended:
            self._is_ended = True
            self.step("end", "nothing more is written")
            self._writer.stop()

    async def close(self) -> None:
        """End all processes of clients."""
        for member in self.members:
            await member.stop()
        if self._crew is not None:
            await self._crew.stop()
        if self._chain is not None:
            await self._chain.stop()
        if self._own_admin is not None:
            await self._own_admin.close()

    async def change_version(self, node: int, *, is_earlier: bool) -> None:
        """Restart a node in good order as the earlier version, or as this one."""
        await self.stop(node)
        await self.cluster.set_version(node, is_earlier=is_earlier)
        version = "the earlier version" if is_earlier else "this version"
        self.step("heal", f"start {self.name(node)}: {version}", node)
        await self.cluster.start(node)
        await self.whole()

    async def take(self, node: int, step: MoveStep) -> None:
        """Restart a node in good order with the settings of a step to TLS."""
        await self.stop(node)
        self.cluster.move.take(node, step)
        self.step("heal", f"start {self.name(node)}: {step.value}", node)
        await self.cluster.start(node)
        await self.whole()

    async def move_clients(self) -> None:
        """Let all clients come in by the new listeners. Writer and reader do so as a user with
        ordinary rights, the others as an administrator."""
        self.step("note", "clients move to the new listeners")
        self.cluster.move.move_clients()
        servers, secrets = self.cluster.bootstrap_servers, self.cluster.secrets
        for client in (self._clients.writer, self._clients.reader):
            client.move(servers, secrets.of_user(APPLICATION))
        self._clients.observer.move(servers, self.cluster.security)
        self._admin = self._own_admin = Admin(
            servers,
            request_timeout_ms=ASK_TIMEOUT_MS,
            default_api_timeout_ms=ASK_TIMEOUT_MS,
            on_wait=lambda _: None,
            **self.cluster.security,
        )
        await self.acknowledging()

    async def administer(self, change: Callable[[Admin], Awaitable[object]]) -> None:
        """Let an administrator change something who comes in by a certificate."""
        servers, security = self.cluster.nodes_entrance
        async with Admin(servers, on_wait=lambda _: None, **security) as admin:
            await change(admin)

    # ----------------------------------------------------------------------- observations

    def name(self, node: int) -> str:
        return f"{'broker' if node in self.cluster.broker_ids else 'controller'} {node}"

    async def described(self) -> TopicDescription:
        """The topic as the active controller knows it. Raises SteleError."""
        (topic,) = await self._admin.describe_topics([self.topic])
        return topic

    async def leader_of(self, partition: int) -> int:
        """Wait for a leader and return it."""
        found: list[int] = []

        async def led() -> bool:
            leader = (await self.described()).partitions[partition].leader
            found[:] = [] if leader is None else [leader]
            return bool(found)

        await self.until(led, f"partition {partition} has a leader")
        return found[0]

    async def led_by(self, broker: int) -> list[int]:
        """The partitions that a broker leads."""
        return [
            each.partition for each in (await self.described()).partitions if each.leader == broker
        ]

    async def active_controller(self) -> int:
        found: list[int] = []

        async def led() -> bool:
            leader = (await self._admin.describe_quorum()).leader_id
            found[:] = [] if leader is None else [leader]
            return bool(found)

        await self.until(led, "the controllers have a leader")
        return found[0]

    async def until_active_controller_other_than(self, former: int) -> None:
        """Wait until another controller leads."""

        async def taken_over() -> bool:
            return (await self._admin.describe_quorum()).leader_id not in (None, former)

        await self.until(taken_over, f"another controller than {former} leads")

    async def out_of_isrs(self, *brokers: int) -> None:
        """Wait until these brokers are in no ISR of the topic."""

        async def out() -> bool:
            partitions = (await self.described()).partitions
            return not any(set(brokers) & set(each.isr) for each in partitions)

        await self.until(out, f"brokers {list(brokers)} have left every ISR")

    async def leads_nothing(self, broker: int) -> None:
        """Wait until other brokers lead all partitions."""

        async def taken_over() -> bool:
            leaders = [each.leader for each in (await self.described()).partitions]
            return None not in leaders and broker not in leaders

        await self.until(taken_over, f"other brokers lead what broker {broker} led")

    async def coordinator(self) -> int:
        """The broker that coordinates the group."""
        (group,) = await self._admin.describe_groups([self.group])
        return group.coordinator.broker_id

    async def group_shares(self, members: int) -> None:
        """Wait until the group is stable and has so many members with partitions."""

        async def stable() -> bool:
            (group,) = await self._admin.describe_groups([self.group])
            shares = [member for member in group.members if member.assignment]
            return group.state == "Stable" and len(shares) == members

        await self.until(stable, f"the group is stable and has {members} members")

    async def _is_whole(self) -> bool:
        """Asks the active controller: what a broker remembers may be old."""
        brokers = self.cluster.broker_ids
        cluster = await self._admin.describe_cluster()
        if {each.broker_id for each in cluster.brokers if not each.fenced} != set(brokers):
            return False
        quorum = await self._admin.describe_quorum()
        ends = [each.log_end_offset for each in quorum.voters]
        if not all(end is not None and end >= quorum.high_watermark for end in ends):
            return False
        for node in (*brokers, *self.cluster.controller_ids):
            if not await self.cluster.ready(node):
                return False
        topic = await self.described()
        return all(
            each.leader is not None and not each.is_under_replicated for each in topic.partitions
        )
