"""The request and the answer of a compaction: plain values, as for all long work."""

from __future__ import annotations

from typing import NamedTuple


class CompactionRequest(NamedTuple):
    """One round of one log. All segments are sealed, adjacent, and below the first uncleanable
    offset as a whole."""

    directory: str
    segments: tuple[tuple[int, int, int], ...]
    """Base offset, end offset and size in bytes of each segment from the log's first on."""
    first_dirty: int
    """The keys of the records from here on are put into the map."""
    map_bytes: int
    load_factor: float
    bytes_per_s: float
    now_ms: int
    delete_retention_ms: int
    kept_batches: tuple[int, ...]
    kept_markers: tuple[tuple[int, int], ...]
    """Producer id and epoch of producers that are remembered by a marker only."""
    aborted_later: tuple[tuple[int, int, int, int], ...]
    """The aborted transactions with records in the segments and a marker behind them, as the fields
    of an ``AbortedTransaction``."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int


class Compacted(NamedTuple):
    """A compacted segment is complete and on disk under the names for it (``.cleaned``).

    It takes the place of the segments from ``base_offset`` to ``end_offset``. The tombstones and
    end markers that it lacks are below ``dropped_end``; 0: it lacks none.
    """

    base_offset: int
    end_offset: int
    dropped_end: int


class Finished(NamedTuple):
    """The end of a round: the log is clean below ``clean_end``."""

    clean_end: int
    bytes_read: int
    bytes_written: int


class Failed(NamedTuple):
    """The log cannot be compacted, and would not be the next time."""

    reason: str


CompactionAnswer = Compacted | Finished | Failed


def encode_answer(answer: CompactionAnswer) -> tuple[str, tuple[object, ...]]:
    """An answer as plain values."""
    return type(answer).__name__, tuple(answer)


def decode_answer(kind: str, fields: tuple[int, ...]) -> CompactionAnswer:
    """The reverse of ``encode_answer``."""
    kinds: dict[str, type[Compacted] | type[Finished] | type[Failed]] = {
        each.__name__: each for each in (Compacted, Finished, Failed)
    }
    return kinds[kind](*fields)  # type: ignore[arg-type]
