"""The parts of one broker that serve share groups, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from broker.coordinator.end_offsets import EndOffsets
from broker.coordinator.node_requests import Nodes
from broker.coordinator.runtime import Host
from broker.coordinator.share_states import ShareStates
from broker.coordinator.shares import ShareCoordinators, ShareLogCutter
from broker.replication.parts import Deletions
from broker.sharing.dead_letters import LetterOffice
from broker.sharing.letter_topics import LetterTopics
from broker.sharing.letter_writer import Appends, LetterWriter
from broker.sharing.measures import ShareMeasures
from broker.sharing.partitions import SharedLogs, SharePartitions
from broker.sharing.sessions import ShareSession, ShareSessions
from metadata.delta import MetadataDelta
from metadata.effective import effective_topic_config
from metadata.image import MetadataImage
from runtime.config.node import NodeConfig
from stele.world import Clock


class Replicas(Protocol):
    """What they need of ``broker.replication.manager.ReplicaManager``."""

    @property
    def deletion(self) -> Deletions: ...

    @property
    def produce(self) -> Appends: ...


class Hosting(Host, SharedLogs, Protocol):
    """``broker.replication.hosted.Hosting``."""


class Sharing:
    """Subscribes to the metadata behind the replica manager."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        hosting: Hosting,
        nodes: Nodes,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        answer_share: Callable[[], int],
        letter_nodes: Nodes,
        new_producer_id: Callable[[], Awaitable[int]],
        make_letter_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """``answer_share``: how many bytes the next answer to a consumer may take.
        ``letter_nodes``: the way of dead letters, which may wait for a slow topic, while ``nodes``
        must not. ``make_letter_topic``: as for ``LetterTopics``."""
        self.answer_share = answer_share
        self.coordinators = ShareCoordinators(config, hosting, clock=clock)
        self._cutter = ShareLogCutter(self.coordinators, replicas.deletion)
        self.states = ShareStates(
            self.coordinators, nodes, broker_id=config.node_id, image=image, clock=clock
        )
        self.end_offsets = EndOffsets(hosting, nodes, broker_id=config.node_id, image=image)
        self._letters = LetterWriter(
            replicas.produce, letter_nodes, broker_id=config.node_id, image=image
        )
        makes_letter_topics = config.errors_deadletterqueue_auto_create_topics_enable
        office = LetterOffice(
            self._letters,
            new_producer_id,
            image,
            lambda topic: effective_topic_config(
                image(), topic, static=config.raw, broker_id=config.node_id
            ),
            clock,
            ShareMeasures(),
            LetterTopics(image, make_letter_topic, clock) if makes_letter_topics else None,
        )
        self.partitions = SharePartitions(
            config, hosting, self.states, image=image, clock=clock, office=office
        )
        self.sessions = ShareSessions(config.group_share_max_share_sessions, self._release)
        self._tasks: dict[asyncio.Task[None], None] = {}

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.coordinators.apply(delta, image)
        self.partitions.apply(delta, image)

    def _release(self, session: ShareSession) -> None:
        """A session has ended: its member has no records any more, of partitions that it has
        forgotten neither. After the last session of a group, the states of its share partitions may
        be set anew, so the next one loads them."""
        group_id, member_id = session.key
        for led in self.partitions.of_group(group_id):
            led.end_session(member_id)
        if not self.sessions.has_group(group_id):
            self.partitions.retire(group_id)

    def begin(self, work: Coroutine[None, None, None], name: str) -> None:
        """Do work that nobody waits for. It ends with the broker."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.partitions.stop()
        self._letters.close()
        await self._cutter.stop()
        await self.end_offsets.stop()
        await self.states.stop()
        await self.coordinators.stop()
