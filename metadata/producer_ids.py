"""Which producer ids are handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """All ids below ``next_id`` are taken."""

    next_id: int = 0

    def begin(self) -> ProducerIdsDelta:
        return ProducerIdsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        if self.next_id:
            ids = pb.ProducerIdsRecord(next_producer_id=self.next_id)
            yield pb.MetadataRecord(producer_ids=ids)


class ProducerIdsDelta:
    """Ids that were handed out."""

    def __init__(self, before: ProducerIds) -> None:
        self._ids = before

    def replay(self, record: pb.ProducerIdsRecord) -> None:
        """Raises MetadataError."""
        if record.next_producer_id < self._ids.next_id:
            raise MetadataError("producer ids would be handed out twice")
        self._ids = ProducerIds(record.next_producer_id)

    def skip_to(self, after: ProducerIds) -> None:
        self._ids = after

    def apply(self) -> ProducerIds:
        return self._ids
