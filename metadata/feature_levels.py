"""The finalized levels of features in an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from metadata.image_part import MapDelta, MapPart
from stele.wire.v1 import metadata_pb2 as pb


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    name: str
    min_level: int
    max_level: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_level <= level <= self.max_level


class FeatureLevels(MapPart[str, int]):
    """By name; a feature that is not there is at level 0: it is not used."""

    __slots__ = ()

    def begin(self) -> FeatureLevelsDelta:
        return FeatureLevelsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for name in sorted(self):
            feature = pb.FeatureLevelRecord(name=name, level=self[name])
            yield pb.MetadataRecord(feature_level=feature)


class FeatureLevelsDelta(MapDelta[str, int, FeatureLevels]):
    """Changed levels. Whether this node knows a level is for those to say who know them."""

    def replay(self, record: pb.FeatureLevelRecord) -> None:
        if record.level:
            self.set(record.name, record.level)
        elif record.name in self.map:
            self.delete(record.name)
