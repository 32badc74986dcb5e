"""The metadata log as a list of decisions, each with the image before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.records import decode
from metadata.snapshot import image_of
from stele.wire.v1 import metadata_pb2 as pb


@dataclass(frozen=True, slots=True)
class Decision:
    """One committed batch: a decision of a controller."""

    offset: int  # of its first record
    epoch: int  # of the controller that decided
    time_ms: int  # of that controller's wall clock
    records: tuple[pb.MetadataRecord, ...]
    before: MetadataImage
    after: MetadataImage


@dataclass(slots=True)
class MetadataHistory:
    """Everything that is still known. What happened before ``begins_at`` is only known as the image
    that a snapshot holds."""

    begins_at: int = 0
    begins_at_ms: int = 0  # the time of the last decision in the snapshot; 0: there is none
    decisions: list[Decision] = field(default_factory=list)
    image: MetadataImage = EMPTY

    def take_snapshot(self, end_offset: int, time_ms: int, values: Sequence[bytes]) -> None:
        """Begin anew where a snapshot ends. Raises MetadataError."""
        self.decisions.clear()
        self.begins_at, self.begins_at_ms = end_offset, time_ms
        self.image = image_of(end_offset, values)

    def take(self, offset: int, epoch: int, time_ms: int, values: Iterable[bytes]) -> None:
        """Take in the next decision. Raises MetadataError."""
        records = tuple(decode(value) for value in values)
        delta = MetadataDelta(self.image)
        for place, record in enumerate(records):
            delta.replay(offset + place, record)
        after = delta.apply()
        self.decisions.append(Decision(offset, epoch, time_ms, records, self.image, after))
        self.image = after

    def until(self, time_ms: int) -> MetadataHistory:
        """The history as it was at a moment: without the decisions after it."""
        kept = [each for each in self.decisions if each.time_ms <= time_ms]
        image = kept[-1].after if kept else self._first_image()
        return MetadataHistory(self.begins_at, self.begins_at_ms, kept, image)

    def _first_image(self) -> MetadataImage:
        return self.decisions[0].before if self.decisions else self.image

    @property
    def first_image(self) -> MetadataImage:
        """Before the first decision that is known."""
        return self._first_image()

    def newest_first(self) -> Iterator[Decision]:
        return reversed(self.decisions)
