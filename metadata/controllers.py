"""The controllers that have registered in an image: by id, which process each of them is."""

from __future__ import annotations

from collections.abc import Iterator

from metadata.image_part import MapDelta, MapPart
from stele.wire.v1 import metadata_pb2 as pb


class Controllers(MapPart[int, bytes]):
    """Incarnation ids, by controller id."""

    __slots__ = ()

    def begin(self) -> ControllersDelta:
        return ControllersDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for controller_id in sorted(self):
            controller = pb.RegisterControllerRecord(
                controller_id=controller_id, incarnation_id=self[controller_id]
            )
            yield pb.MetadataRecord(register_controller=controller)


class ControllersDelta(MapDelta[int, bytes, Controllers]):
    """Controllers that registered."""

    def replay(self, record: pb.RegisterControllerRecord) -> None:
        self.set(record.controller_id, record.incarnation_id)
