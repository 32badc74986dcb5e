"""The share coordinators of one broker: machines and configuration put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.coordinator.runtime import CoordinatorRuntime, Host
from broker.coordinator.share.machine import ShareMachine
from broker.coordinator.share.types import TopicIdsDeleted
from broker.replication.deletion import Deletion
from broker.replication.parts import Deletions
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.internal_topics import SHARE_TOPIC
from runtime.config.node import NodeConfig
from stele.ids import PartitionId
from stele.world import Clock

_CUT_TIMEOUT_MS = 30_000


class ShareCoordinators(CoordinatorRuntime[ShareMachine]):
    """The coordinators of the partitions of ``__share_group_state`` that ``host`` leads."""

    def __init__(self, config: NodeConfig, host: Host, *, clock: Clock) -> None:
        self._image = EMPTY
        self.on_cut_due: Callable[[], None] = lambda: None
        """Called when the log of a machine may be cut. It must not call a machine at once."""

        def cut_due() -> None:
            self.on_cut_due()

        super().__init__(
            SHARE_TOPIC,
            host=host,
            make_machine=lambda: ShareMachine(
                self._has_partition,
                config.share_coordinator_snapshot_update_records_per_snapshot,
                on_cut_due=cut_due,
            ),
            clock=clock,
            commit_timeout_ms=config.share_coordinator_write_timeout_ms,
        )

    def _has_partition(self, topic_id: bytes, number: int) -> bool:
        topic = self._image.topic_by_id(topic_id)
        return topic is not None and 0 <= number < len(topic.partitions)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Also have the states of deleted topics removed. A coordinator that is loaded later looks
        for them in the newest image by itself."""
        self._image = image
        super().apply(delta, image)
        deleted = tuple(each.topic_id for each in delta.deleted_topics)
        if deleted:
            self.inform(TopicIdsDeleted(deleted))


class ShareLogCutter:
    """Deletes the records of ``__share_group_state`` that no coordinator needs any more.

    It begins when a coordinator can spare many of them. A deletion that fails is repeated with the
    next one.
    """

    def __init__(self, coordinators: ShareCoordinators, deletions: Deletions) -> None:
        self._coordinators = coordinators
        self._deletions = deletions
        self._task: asyncio.Task[None] | None = None
        self._is_due = False
        self._cut: dict[PartitionId, int] = {}  # up to which offset
        coordinators.on_cut_due = self._begin

    def _begin(self) -> None:
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="share-state-cutter"
            )

    async def _run(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await self._cut_all()
        finally:
            self._task = None

    async def _cut_all(self) -> None:
        topic_id = self._coordinators.topic_id
        wanted = [
            Deletion(PartitionId(topic_id, number), machine.cut_offset)
            for number, _, machine in self._coordinators.each_active()
        ]
        wanted = [each for each in wanted if each.offset > self._cut.get(each.id, 0)]
        if wanted:
            results = await self._deletions.delete(wanted, _CUT_TIMEOUT_MS)
            for each, result in zip(wanted, results, strict=True):
                if not result.error:
                    self._cut[each.id] = each.offset

    async def stop(self) -> None:
        task, self._is_due = self._task, False
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
