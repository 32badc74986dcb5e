"""What a console asks about losses that have not happened. Its start chooses what answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from metadata.image import MetadataImage
from stele.ids import TopicPartition


class Consequence(Protocol):
    """What becomes of one partition."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def moves_to(self) -> int | None: ...
    @property
    def loses_reads(self) -> bool: ...
    @property
    def loses_writes(self) -> bool: ...
    @property
    def loses_records(self) -> bool: ...
    @property
    def copies(self) -> int: ...


class Quorum(Protocol):
    """The controllers that would be left."""

    @property
    def voters(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def survives(self) -> bool: ...


class Forecast(Protocol):
    @property
    def consequences(self) -> Sequence[Consequence]: ...
    @property
    def quorum(self) -> Quorum: ...
    @property
    def harmless(self) -> bool: ...


class Foresee(Protocol):
    def __call__(
        self, image: MetadataImage, voters: Mapping[int, bool], *, dead: Collection[int]
    ) -> Forecast:
        """``voters``: by id, whether each is there now. ``dead``: nodes, whatever their roles."""
        ...
