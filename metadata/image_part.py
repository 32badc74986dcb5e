"""What every part of an image is, and what collects the changes to one.

A noun (brokers, topics, configs, …) is one file: the part of the image, its delta, and the records
of a snapshot that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from immutables import Map

from stele.wire.v1 import metadata_pb2 as pb

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound="MapPart[Any, Any]")


class ImagePart(Protocol):
    """Immutable; images share the parts that did not change between them."""

    def begin(self) -> PartDelta:
        """Changes on top of this."""
        ...

    def records(self) -> Iterator[pb.MetadataRecord]:
        """That lead from the empty part to this one. The same part always gives the same."""
        ...


class PartDelta(Protocol):
    """The changes to one part. Methods of its own replay its records."""

    def skip_to(self, after: Any) -> None:
        """Take in what leads to a later part, whatever records led there."""
        ...

    def apply(self) -> ImagePart:
        """The part after everything so far; the very same one where nothing changed."""
        ...


class MapPart(Mapping[K, V]):
    """A part that is one map. Its own order differs from process to process: sort it."""

    __slots__ = ("map",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self.map: Map[K, V] = entries if isinstance(entries, Map) else Map(entries or {})

    def __getitem__(self, key: K) -> V:
        return self.map[key]

    def __contains__(self, key: object) -> bool:
        return key in self.map

    def __iter__(self) -> Iterator[K]:
        return iter(self.map)

    def __len__(self) -> int:
        return len(self.map)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapPart) and self.map == other.map

    def __hash__(self) -> int:
        return hash(self.map)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.map)})"


class MapDelta(Generic[K, V, P]):
    """The changes to a part that is one map."""

    def __init__(self, before: P) -> None:
        self.before = before
        self.map: Map[K, V] = before.map
        self.touched: set[K] = set()
        """Keys that were set or deleted, even if the value is the former one."""
        self._result = before

    def set(self, key: K, value: V) -> None:
        self.map = self.map.set(key, value)
        self.touched.add(key)

    def delete(self, key: K) -> None:
        """Raises KeyError."""
        self.map = self.map.delete(key)
        self.touched.add(key)

    def skip_to(self, after: P) -> None:
        gone = {key for key in self.map if key not in after}
        self.touched |= gone | {key for key in after if self.map.get(key) != after[key]}
        self.map, self._result = after.map, after

    def apply(self) -> P:
        if self._result.map is not self.map:
            self._result = type(self.before)(self.map)
        return self._result
