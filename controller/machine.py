"""The frame of every decision: an image and a request in, records and a reply out.

A decision is pure. It reads a ``Context`` and writes to a ``Decision``, which replays each record
at once, so that later steps of the same decision see the earlier ones. All its records go into the
log as one batch, so no node ever sees a part of a decision.
A refusal is an ``ApiError``. Then nothing was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""The most records that one request may cause. A batch is applied in one turn of the event loop, so
its size decides how long everything else waits."""

REQUEST_BYTES_MAX = 8 << 20
"""The most bytes of records that one request may cause: Kafka's largest batch of metadata."""


def check_size(count: int, what: str) -> None:
    """Refuse a request that names too many things: a decision takes one turn of the event loop.

    Raises ApiError POLICY_VIOLATION, as Kafka's controller does for requests that are too long.
    """
    if count > RECORDS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} {what} are too many for one request: the maximum is {RECORDS_MAX}",
        )


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a decision may read besides its request."""

    # Everything decided so far, whether committed or not.
    image: MetadataImage
    # The offset of the next record. It is above `image.offset`, but not always by one, since the
    # quorum also writes control records.
    next_offset: int
    # The controller's server.properties: the values where no dynamic configuration is set.
    static: Mapping[str, str]
    rng: Rng
    cluster_id: str
    # By node id: the feature levels that each voter has reported, also one that is being added.
    controllers: Mapping[int, Sequence[FeatureLevels]] = field(default_factory=dict)
    # The wall clock's time, for data that are remembered for some time, and for delegation tokens,
    # which expire. No other decision depends on it.
    now_ms: int = 0
    # The principal of the client that asks for the change; "" for the controller's own decisions.
    principal: str = ""
    # Whether that client may know that a topic of this name exists.
    sees: Callable[[str], bool] = lambda name: True


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Reply]):
    """The records to write as one batch, and the reply to give once they are committed."""

    records: tuple[pb.MetadataRecord, ...]
    # The image after the records: the service keeps it instead of replaying them again.
    image: MetadataImage
    reply: Reply
    # Whether the reply is that of an earlier decision. That decision may not be committed yet.
    repeats: bool = False


class Decision:
    """The records of a decision so far, and the image after them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.image = context.image
        self._records: list[pb.MetadataRecord] = []
        # How many records, and of how many bytes, the request has asked for.
        self._asked_records = 0
        self._asked_bytes = 0

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
        written = len(self._records)
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(self.next_offset, record)
            self._records.append(record)
        if len(self._records) > written:
            self.image = delta.apply()

    def extend_asked(self, records: Sequence[pb.MetadataRecord]) -> None:
        """Write the records that an item of a request asks for. Raises as ``charge``.

        Use ``extend`` for the consequences (elections, for example), which grow with the cluster
        and not with the request.
        """
        self.charge(records)
        self.extend(records)

    def charge(self, records: Sequence[pb.MetadataRecord]) -> None:
        """Count records that an item of a request asks for, and that are written later.

        Raises ApiError POLICY_VIOLATION, and counts nothing, if the request would cause too much.
        """
        self.check_records(len(records))
        size = sum(record.ByteSize() for record in records)
        if self._asked_bytes + size > REQUEST_BYTES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the metadata of one request would exceed {REQUEST_BYTES_MAX} bytes: ask for less"
                " at once",
            )
        self._asked_records += len(records)
        self._asked_bytes += size

    def check_records(self, count: int) -> None:
        """Raises ApiError POLICY_VIOLATION if the request may not cause that many more records.

        A decision asks before it makes the records.
        """
        if self._asked_records + count > RECORDS_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._asked_records + count} records of metadata are too many for one request,"
                f" {RECORDS_MAX} are the most: split the request",
            )

    def result(self, reply: Reply) -> ControllerResult[Reply]:
        return ControllerResult(tuple(self._records), self.image, reply)

    def nothing(self, reply: Reply) -> ControllerResult[Reply]:
        """The reply without the records: for requests with ``validate_only``."""
        return ControllerResult((), self.context.image, reply)
