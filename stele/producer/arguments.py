"""What callers of a producer give it, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from stele.errors import ApiError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.records import GroupMetadata, OffsetAndMetadata
from stele.wire.batch import Header

HeadersArgument = Iterable[Header] | Mapping[str, bytes | None]


class Reader(Protocol):
    """A consumer of a group, as far as a transaction needs it."""

    @property
    def commits_by_itself(self) -> bool: ...

    def group_metadata(self) -> GroupMetadata: ...

    def consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]: ...


def check_reader(consumer: Reader) -> None:
    """Raises ConfigError if its offsets would be committed with or without the transaction."""
    if consumer.commits_by_itself:
        raise ConfigError(
            "a consumer whose offsets are sent in a transaction must not commit by itself: "
            "Consumer(..., enable_auto_commit=False)"
        )


def bytes_or_none(data: object, what: str) -> bytes | None:
    """The data as immutable bytes. Raises ApiError INVALID_RECORD if it is not bytes."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise ApiError(
        ErrorCode.INVALID_RECORD,
        f"a record's {what} must be bytes or None, not {type(data).__name__}: encode it first",
    )


def headers_of(headers: HeadersArgument) -> list[Header]:
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[Header] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise ApiError(ErrorCode.INVALID_RECORD, f"a header's name must be text: {name!r}")
        checked.append((name, bytes_or_none(value, f"header {name!r}")))
    return checked
