"""The names of the files of a segment, which are Kafka's."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
"""The suffix of a file that is to be removed."""
CLEANED_SUFFIX: Final = ".cleaned"
"""The suffix of a compacted segment's file that is not part of the log yet."""


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a file that belongs to a segment."""
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Base offset and suffix of a segment's file; None for any other name."""
    stem, dot, suffix = name.partition(".")
    if len(stem) != 20 or not stem.isdigit():
        return None
    return int(stem), dot + suffix


def segment_paths(directory: str, base_offset: int, suffix: str = "") -> tuple[str, str, str]:
    """The paths of the batches, the offset index and the time index. ``suffix``: of a segment that
    is not part of the log."""
    stem = f"{directory}/{file_name(base_offset, '')}"
    return (
        f"{stem}{LOG_SUFFIX}{suffix}",
        f"{stem}{INDEX_SUFFIX}{suffix}",
        f"{stem}{TIME_INDEX_SUFFIX}{suffix}",
    )


def txn_index_path(directory: str, base_offset: int, suffix: str = "") -> str:
    """The path of the transaction index, which only segments with aborted transactions have."""
    return f"{directory}/{file_name(base_offset, TXN_INDEX_SUFFIX)}{suffix}"
