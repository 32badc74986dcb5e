"""The frame of every decision: an image and a request in, records and a reply out.

A decision is pure. It reads a ``Context`` and writes to a ``Decision``, which replays each record
at once, so that later steps of the same decision see the earlier ones. All its records go into the
log as one batch: no node ever sees a part of a decision.
Refusals are ``ApiError``; then nothing was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from raft.quorum import FeatureLevels
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.world import Rng

Reply = TypeVar("Reply")

RECORDS_MAX = 10_000
"""Records that one request may cause: a batch is applied in one go, so its size is a pause."""


def check_size(count: int, what: str) -> None:
    """Refuse a request that names too much: a decision is one step of the controller's loop.

    Raises ApiError POLICY_VIOLATION, as Kafka's controller does for over-long requests.
    """
    if count > RECORDS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} {what} are too many for one request, {RECORDS_MAX} are the most",
        )


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a decision may read besides its request."""

    # Everything decided so far, whether committed or not.
    image: MetadataImage
    # The offset of the next record. It is above `image.offset`, but not always by one: the quorum
    # writes records of its own.
    next_offset: int
    # The controller's own server.properties: the layer under the dynamic configuration.
    static: Mapping[str, str]
    rng: Rng
    cluster_id: str
    # The features that each voter told it supports, by node id; also of one that is being added.
    controllers: Mapping[int, Sequence[FeatureLevels]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Reply]):
    """The records to write as one batch, and the reply to give once they are committed."""

    records: tuple[pb.MetadataRecord, ...]
    # The image after the records: the service keeps it instead of replaying them again.
    image: MetadataImage
    reply: Reply
    # Whether the reply is that of an earlier decision, which may not be committed yet.
    repeats: bool = False


class Decision:
    """Records in the making, and the image they lead to."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.image = context.image
        self._records: list[pb.MetadataRecord] = []

    @classmethod
    def after(cls, context: Context, result: ControllerResult[Any]) -> Decision:
        """Continue another decision: its records come first in the same batch."""
        decision = cls(context)
        decision.image = result.image
        decision._records = list(result.records)
        return decision

    @property
    def next_offset(self) -> int:
        """The offset that the next record added will have."""
        return self.context.next_offset + len(self._records)

    def add(self, *records: pb.MetadataRecord) -> None:
        """Write records; ``image`` shows them at once."""
        self.extend(records)

    def extend(self, records: Iterable[pb.MetadataRecord]) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(self.next_offset, record)
            self._records.append(record)
        self.image = delta.apply()

    def result(self, reply: Reply) -> ControllerResult[Reply]:
        return ControllerResult(tuple(self._records), self.image, reply)

    def nothing(self, reply: Reply) -> ControllerResult[Reply]:
        """The reply alone: for a request that only asked what would happen."""
        return ControllerResult((), self.context.image, reply)
