"""What the share groups of one broker do, counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from broker.share.values import AcknowledgementBatch, AcknowledgeType, Acquired


class ShareMeasures:
    """Records, not batches. Shared by all share partitions of a broker."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.redeliveries = 0
        """Deliveries of records that were delivered before."""
        self.answered: Final[dict[AcknowledgeType, int]] = dict.fromkeys(AcknowledgeType, 0)
        """Records whose acknowledgement was taken and persisted, by its type."""
        self.letters = 0
        """Dead letters that were written."""
        self.lost_letters = 0
        """Records that were given up without a dead letter, although the group had a dead letter
        topic: retention had deleted them first, or the topic was taken from the group."""

    def delivered(self, acquired: Iterable[Acquired]) -> None:
        """A member has these records now."""
        for each in acquired:
            count = each.last - each.first + 1
            self.deliveries += count
            if each.delivery_count > 1:
                self.redeliveries += count

    def acknowledged(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """These acknowledgements count."""
        for first, last, types in batches:
            if len(types) == 1:
                self.answered[types[0]] += last - first + 1
                continue
            for kind, same in groupby(types):
                self.answered[kind] += sum(1 for _ in same)
