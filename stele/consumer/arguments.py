"""The arguments of a consumer's calls, checked."""

from __future__ import annotations

from collections.abc import Mapping

from stele.errors import ConfigError
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata

PartitionArgument = tuple[str, int]
OffsetArgument = int | OffsetAndMetadata


def given_offsets(
    offsets: Mapping[PartitionArgument, OffsetArgument],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit. Raises ConfigError for one below 0."""
    given = {
        TopicPartition(*name): each
        if isinstance(each, OffsetAndMetadata)
        else OffsetAndMetadata(each)
        for name, each in offsets.items()
    }
    for name, each in given.items():
        if each.offset < 0:
            raise ConfigError(f"the offset {each.offset} of {name} must not be negative")
    return given


def given_times(timestamps_ms: Mapping[PartitionArgument, int]) -> dict[TopicPartition, int]:
    """Times to look up. Raises ConfigError for one below 0."""
    given = {TopicPartition(*name): time for name, time in timestamps_ms.items()}
    for name, timestamp_ms in given.items():
        if timestamp_ms < 0:
            raise ConfigError(f"the time {timestamp_ms} for {name} must not be negative")
    return given
