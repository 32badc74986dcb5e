"""Committed metadata → delta and image → the replica manager and the broker's own views.

Every delivery of the quorum, whatever number of batches it holds, becomes one delta, one image
and one application: nobody ever sees an image of half a batch.

To apply a large decision takes several turns of the event loop. The image is the new one from the
first turn on. Its offset counts as applied only after the last turn: the lease and the heartbeats
go by that. What the quorum delivers meanwhile becomes the next delta.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from metadata.brokers import BrokerRegistration
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError
from metadata.snapshot import image_of, records_of
from raft.api import CommittedBatch, LeaderAndEpoch

logger = logging.getLogger(__name__)


class MetadataSubscriber(Protocol):
    """Brings something in line with a new image; called once per delivery, in order."""

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        """Returns the steps. Each step is one turn of the event loop. None if there is nothing to
        do."""
        ...


class MetadataPublisher:
    """A ``raft.api.QuorumListener``: keeps the image and hands (delta, image) on.

    Nothing is published before this incarnation's own registration is committed. Until then the log
    has the leaderships of an earlier incarnation, which this one must not take up. The first delta
    then holds everything from the empty image on.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        incarnation_id: bytes,
        on_published: Callable[[], None],
        on_leader_change: Callable[[LeaderAndEpoch], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._subscribers: list[MetadataSubscriber] = []
        self._on_published = on_published
        self._on_leader_change = on_leader_change
        self._on_fatal = on_fatal
        # As published last.
        self.image: MetadataImage = EMPTY
        # The last one that was applied completely: `image`, or the one before it.
        self._applied: MetadataImage = EMPTY
        # The remaining steps for `image`. None: there are none.
        self._steps: Iterator[None] | None = None
        self._is_taken_up = False  # the first delta was published
        # Everything replayed since `image`, as long as it may not be published.
        self._held_back: MetadataDelta | None = MetadataDelta(EMPTY)
        # After a failure the image may lack a batch: nothing is published any more.
        self._failed = False
        self._published = asyncio.Event()

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Have it called, after those before it and before ``on_published``. To be called before
        the registration: until then the image is empty, and nothing is missed."""
        assert not self._is_taken_up, "something was published already"
        self._subscribers.append(subscriber)

    @property
    def offset(self) -> int:
        """The offset of the last metadata record applied here; -1 before the first."""
        return self._applied.offset

    @property
    def registration(self) -> BrokerRegistration | None:
        """This broker's own registration, if it is this incarnation's."""
        registration = self.image.broker(self._broker_id)
        if registration is None or registration.incarnation_id != self._incarnation_id:
            return None
        return registration

    async def wait_until(self, holds: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until an image is applied that ``holds`` accepts; False if none was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self._applied):
                    await self._published.wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------------ QuorumListener

    def on_commit(self, batches: Sequence[CommittedBatch], end_offset: int) -> None:
        if self._failed:
            return
        try:
            self._take(self._replayed(batches, end_offset))
        except Exception as error:
            self._fail(error, self._applied.offset + 1, end_offset - 1)

    def on_snapshot(self, end_offset: int, records: Sequence[bytes]) -> None:
        """It, too, arrives as a delta: from the image that was to the one it holds."""
        if self._failed:
            return
        try:
            self._take(MetadataDelta.between(self.image, image_of(end_offset, records)))
        except Exception as error:
            self._fail(error, 0, end_offset - 1)

    def _fail(self, error: Exception, first: int, last: int) -> None:
        self._failed = True
        logger.error(
            "broker %d: metadata of offsets %d to %d cannot be applied",
            self._broker_id,
            first,
            last,
            exc_info=error,
        )
        self._on_fatal(error)

    def snapshot_records(self) -> Iterable[bytes] | None:
        """The image of everything committed, also of batches that are held back; None if it may
        lack something."""
        if self._failed:
            return None
        held_back = self._held_back
        return records_of(self.image if held_back is None else held_back.apply())

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._on_leader_change(leader)

    def on_claimed(self, epoch: int) -> None:
        """The controller's business, where this node is one too."""

    def on_resigned(self, epoch: int) -> None:
        """The controller's business, where this node is one too."""

    # ------------------------------------------------------------------ publishing

    def _replayed(self, batches: Sequence[CommittedBatch], end_offset: int) -> MetadataDelta:
        delta = self._held_back or MetadataDelta(self.image)
        for batch in batches:
            delta.replay_values(batch.base_offset, batch.records)
        delta.advance_to(end_offset - 1)
        return delta

    def _take(self, delta: MetadataDelta) -> None:
        self._is_taken_up = self._is_taken_up or self._is_registered(delta)
        if not self._is_taken_up or self._steps is not None:
            self._held_back = delta
        else:
            self._held_back = None
            self._publish(delta)

    def _publish(self, delta: MetadataDelta) -> None:
        image = delta.apply()
        if image.offset < self.image.offset:
            raise MetadataError(f"metadata went back from {self.image.offset} to {image.offset}")
        self.image = image
        self._steps = self._apply(delta, image)
        self._go_on(self._steps)

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        for subscriber in self._subscribers:
            steps = subscriber.apply(delta, image)
            if steps is not None:
                yield from steps

    def _go_on(self, steps: Iterator[None]) -> None:
        """Take a step. Raises the errors of subscribers."""
        for _ in steps:
            asyncio.get_running_loop().call_soon(self._go_on_later, steps)
            return
        self._steps = None
        self._applied = self.image
        self._published.set()
        self._published = asyncio.Event()
        self._on_published()
        if self._held_back is not None and self._steps is None:
            self._take(self._held_back)

    def _go_on_later(self, steps: Iterator[None]) -> None:
        try:
            self._go_on(steps)
        except Exception as error:
            self._fail(error, self._applied.offset + 1, self.image.offset)

    def _is_registered(self, delta: MetadataDelta) -> bool:
        return any(
            change.broker_id == self._broker_id
            and change.after is not None
            and change.after.incarnation_id == self._incarnation_id
            for change in delta.changed_brokers
        )
