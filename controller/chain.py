"""The committed image, and the image after each proposed batch.

When a batch commits, its image becomes the committed one. When leadership is lost, the images of
all proposed batches are dropped, and the committed image is the newest again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from metadata.delta import replay_values
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError
from raft.api import CommittedBatch


@dataclass(frozen=True, slots=True)
class _Proposed:
    base_offset: int
    last_offset: int
    image: MetadataImage  # after the batch
    settled: asyncio.Future[bool]  # True: committed; False: leadership was lost before


class ImageChain:
    """The committed image and the proposed batches, oldest first. While this node does not lead
    there are no proposed batches."""

    def __init__(self) -> None:
        self.committed: MetadataImage = EMPTY
        self._proposed: deque[_Proposed] = deque()
        # The end offsets that ``caught_up`` waits for, with their futures. The results mean the
        # same as the result of ``_Proposed.settled``.
        self._awaited: list[tuple[int, asyncio.Future[bool]]] = []

    @property
    def newest(self) -> MetadataImage:
        """The image that the next decision builds on."""
        return self._proposed[-1].image if self._proposed else self.committed

    def propose(self, base_offset: int, count: int, image: MetadataImage) -> None:
        """A batch of ``count`` records was appended to the log and leads to ``image``."""
        last_offset = base_offset + count - 1
        if image.offset != last_offset:
            raise MetadataError(f"decided for offset {image.offset}, appended at {last_offset}")
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._proposed.append(_Proposed(base_offset, last_offset, image, settled))

    def commit(self, batch: CommittedBatch) -> None:
        """A batch is committed: the oldest that this node proposed, or another leader's.

        Raises MetadataError if it is not the batch that this node proposed.
        """
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

    def advance(self, end_offset: int) -> None:
        """Everything below ``end_offset`` is committed, including the quorum's control records."""
        if self.committed.offset < end_offset - 1:
            self.committed = replace(self.committed, offset=end_offset - 1)
        self._tell_awaited(lambda wanted: wanted <= end_offset, came=True)

    def _tell_awaited(self, is_over: Callable[[int], bool], *, came: bool) -> None:
        for wanted, told in self._awaited:
            if is_over(wanted) and not told.done():
                told.set_result(came)
        self._awaited = [each for each in self._awaited if not each[1].done()]

    def reset(self, image: MetadataImage) -> None:
        """A snapshot replaces the committed image. This never happens while this node decides."""
        if self._proposed:
            raise MetadataError("a snapshot came while decisions were under way")
        self.committed = image

    def drop(self) -> None:
        """Leadership is lost. The next leader decides whether the proposed batches commit."""
        for proposed in self._proposed:
            if not proposed.settled.done():
                proposed.settled.set_result(False)
        self._proposed.clear()
        self._tell_awaited(lambda wanted: True, came=False)

    async def settled(self) -> bool:
        """Wait until everything proposed so far is committed. False if leadership was lost."""
        return await asyncio.shield(self._proposed[-1].settled) if self._proposed else True

    async def caught_up(self, end_offset: int) -> bool:
        """Wait until ``committed`` has everything below ``end_offset``. False if leadership was
        lost."""
        if self.committed.offset >= end_offset - 1:
            return True
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._awaited.append((end_offset, told))
        return await told
