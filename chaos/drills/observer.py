"""Watches the cluster's metadata during a drill, and takes each change down."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.drills.history import PartitionHistory, QuorumState
from chaos.drills.recorder import Recorder
from stele.admin.descriptions import PartitionDescription
from stele.aio import Admin
from stele.errors import SteleError
from stele.security.options import SecurityOptions

_INTERVAL_S: Final = 0.1
_ASK_TIMEOUT_MS: Final = 2_000


class Observer:
    """Asks a broker for its view of the topic, and the quorum for its leader.

    A broker that has lost the controllers knows older metadata, which the partition epoch shows.
    The history has only newer views than those before.
    """

    def __init__(
        self, bootstrap: str, topic: str, recorder: Recorder, security: SecurityOptions
    ) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._security = security
        self._recorder = recorder
        self._has_moved = asyncio.Event()
        self._epochs: dict[int, int] = {}
        self._quorum: tuple[int, int] = (-1, -1)

    async def run(self) -> None:
        """Watch until it is cancelled."""
        while True:
            self._has_moved.clear()
            async with (
                self._admin() as topics,
                self._admin() as quorum,
                asyncio.TaskGroup() as both,
            ):
                watching = [
                    both.create_task(self._watch_topic(topics)),
                    both.create_task(self._watch_quorum(quorum)),
                ]
                await self._has_moved.wait()
                for task in watching:
                    task.cancel()

    def move(self, bootstrap: str, security: SecurityOptions) -> None:
        """Go on with clients that connect with these options."""
        self._bootstrap, self._security = bootstrap, security
        self._has_moved.set()

    def _admin(self) -> Admin:
        return Admin(
            self._bootstrap,
            request_timeout_ms=_ASK_TIMEOUT_MS,
            default_api_timeout_ms=_ASK_TIMEOUT_MS,
            on_wait=lambda _: None,
            **self._security,
        )

    async def _watch_topic(self, admin: Admin) -> None:
        while True:
            try:
                described = await admin.describe_topics([self._topic], linearizable=False)
            except SteleError:
                described = []
            for topic in described:
                for partition in topic.partitions:
                    self._take(partition)
            await asyncio.sleep(_INTERVAL_S)

    def _take(self, state: PartitionDescription) -> None:
        if state.partition_epoch <= self._epochs.get(state.partition, -1):
            return
        self._epochs[state.partition] = state.partition_epoch
        self._recorder.add(
            PartitionHistory(
                self._recorder.now_ms,
                state.partition,
                -1 if state.leader is None else state.leader,
                state.leader_epoch,
                state.isr,
                state.elr,
                state.unclean_elections,
            )
        )

    async def _watch_quorum(self, admin: Admin) -> None:
        while True:
            try:
                quorum = await admin.describe_quorum()
                seen = (quorum.epoch, -1 if quorum.leader_id is None else quorum.leader_id)
            except SteleError:
                seen = (self._quorum[0], -1)
            if seen != self._quorum and seen[0] >= self._quorum[0]:
                self._quorum = seen
                self._recorder.add(QuorumState(self._recorder.now_ms, seen[1], seen[0]))
            await asyncio.sleep(_INTERVAL_S)
