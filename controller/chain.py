"""The committed image, and the images of what was proposed on top of it.

Each proposed batch keeps the image it leads to. When it commits, that becomes the committed
image; when leadership is lost, all of them are dropped and the committed one counts again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from metadata.delta import replay_values
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError
from raft.api import CommittedBatch


@dataclass(frozen=True, slots=True)
class _Proposed:
    base_offset: int
    last_offset: int
    image: MetadataImage  # after the batch
    settled: asyncio.Future[bool]  # True: committed; False: the outcome is not known here


class ImageChain:
    """``committed`` ← proposed batches, oldest first. Without leadership there are none."""

    def __init__(self) -> None:
        self.committed: MetadataImage = EMPTY
        self._proposed: deque[_Proposed] = deque()

    @property
    def newest(self) -> MetadataImage:
        """What the next decision builds on."""
        return self._proposed[-1].image if self._proposed else self.committed

    def propose(self, base_offset: int, count: int, image: MetadataImage) -> None:
        """A batch of ``count`` records was appended to the log; ``image`` is what it leads to."""
        last_offset = base_offset + count - 1
        if image.offset != last_offset:
            raise MetadataError(f"decided for offset {image.offset}, appended at {last_offset}")
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._proposed.append(_Proposed(base_offset, last_offset, image, settled))

    def commit(self, batch: CommittedBatch) -> None:
        """A batch is committed: one of ours, or one of another leader."""
        if not self._proposed:
            self.committed = replay_values(self.committed, batch.base_offset, batch.records)
            return
        oldest = self._proposed.popleft()
        if (oldest.base_offset, oldest.last_offset) != (batch.base_offset, batch.last_offset):
            raise MetadataError(
                f"committed {batch.base_offset}-{batch.last_offset} where "
                f"{oldest.base_offset}-{oldest.last_offset} had been proposed"
            )
        self.committed = oldest.image
        if not oldest.settled.done():
            oldest.settled.set_result(True)

    def reset(self, image: MetadataImage) -> None:
        """A snapshot takes the place of what was committed: never while this node decides."""
        if self._proposed:
            raise MetadataError("a snapshot came while decisions were under way")
        self.committed = image

    def drop(self) -> None:
        """Leadership is lost: whether what was proposed will commit is for the next leader."""
        for proposed in self._proposed:
            if not proposed.settled.done():
                proposed.settled.set_result(False)
        self._proposed.clear()

    async def settled(self) -> bool:
        """Wait until everything proposed so far is committed; False if leadership was lost."""
        return await self._settled(self._proposed[-1]) if self._proposed else True

    async def caught_up(self, end_offset: int) -> bool:
        """Wait until everything proposed below ``end_offset`` is committed; else as above."""
        below = [each for each in self._proposed if each.last_offset < end_offset]
        return await self._settled(below[-1]) if below else True

    @staticmethod
    async def _settled(proposed: _Proposed) -> bool:
        return await asyncio.shield(proposed.settled)
