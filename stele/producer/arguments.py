"""What callers of a producer give it, checked."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, SupportsIndex, cast

from stele.errors import ApiError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.producer.outcomes import Waiting
from stele.records import GroupMetadata, OffsetAndMetadata
from stele.topic_names import is_encodable
from stele.wire.batch import Header
from stele.wire.record import RECORD_OVERHEAD, EncodedRecords, record_size_bound

LATEST_TIME_MS: Final = 2**63 - 1

HeadersArgument = Iterable[Header] | Mapping[str, bytes | None]


class NewRecord(NamedTuple):
    """A record that a batch can take. Its first fields are those of ProducerRecord."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    """A tuple or a list."""
    timestamp_ms: int | None
    partition: int | None
    waiting: Waiting | None
    """Whatever hears of the outcome."""
    size: int
    """The bytes that are counted for it."""


WAITING: Final = NewRecord._fields.index("waiting")

_make: Final = tuple.__new__  # a record is made for each send: the named call costs twice as much


def new_record(
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: HeadersArgument,
    timestamp_ms: int | None,
    partition: int | None,
    waiting: Waiting | None,
) -> NewRecord:
    """Raises ApiError INVALID_RECORD, INVALID_TIMESTAMP for what no batch can hold: it would fail
    with all other records of its batch."""
    if type(value) is not bytes:
        value = bytes_or_none(value, "value")
    if key is not None and type(key) is not bytes:
        key = bytes_or_none(key, "key")
    if timestamp_ms is not None:
        timestamp_ms = time_of(timestamp_ms)
    if partition is not None and type(partition) is not int:
        partition = whole_number(partition, "partition")
    if headers:
        header_list: Sequence[Header] = headers_of(headers)
        size = record_size_bound(key, value, header_list)
    else:  # as most records: the same sum without a call
        header_list = ()
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    made: NewRecord = _make(
        NewRecord, (topic, value, key, header_list, timestamp_ms, partition, waiting, size)
    )
    return made


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


def whole_number(number: object, what: str) -> int:
    """A whole number, of whatever type. Raises ApiError INVALID_RECORD."""
    try:
        return operator.index(cast(SupportsIndex, number))
    except TypeError:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a record's {what} must be a whole number or None, not {number!r}",
        ) from None


def time_of(timestamp_ms: object) -> int:
    """Raises ApiError INVALID_TIMESTAMP."""
    number = whole_number(timestamp_ms, "timestamp_ms")
    if not 0 <= number <= LATEST_TIME_MS:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp_ms={number} must be the milliseconds since 1970, not negative and of at "
            "most 63 bits",
        )
    return number


def check_encoded(records: EncodedRecords) -> None:
    """Raises ApiError INVALID_RECORD unless these can be the records of a batch, as far as their
    frame says."""
    body: object = records.body
    if not isinstance(body, bytes | bytearray | memoryview):
        what = type(body).__name__
        raise ApiError(ErrorCode.INVALID_RECORD, f"encoded records must be bytes, not {what}")
    if whole_number(records.record_count, "count") < 1:
        raise ApiError(ErrorCode.INVALID_RECORD, "there must be at least one encoded record")
    time_of(records.timestamp_ms)


def headers_of(headers: HeadersArgument) -> list[Header]:
    checked: list[Header] = []
    for name, value in _pairs_of(headers):
        if not isinstance(name, str) or not is_encodable(name):
            raise ApiError(ErrorCode.INVALID_RECORD, f"a header's name must be text: {name!r}")
        checked.append((name, bytes_or_none(value, f"header {name!r}")))
    return checked


def _pairs_of(headers: HeadersArgument) -> list[Header]:
    try:
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if all(len(each) == 2 for each in pairs):
            return pairs
    except TypeError:
        pass
    raise ApiError(
        ErrorCode.INVALID_RECORD,
        f"headers must be pairs of a name and bytes, or a mapping, not {headers!r}",
    )
