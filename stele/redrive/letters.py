"""Dead letters as a redrive reads them (KIP-1191): which records they were, and what becomes of
them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.records import ConsumerRecord, Headers, ProducerRecord

_PREFIX: Final = "__dlq.errors."
_NAMES: Final = tuple(
    f"{_PREFIX}{each}"
    for each in ("topic", "partition", "offset", "group", "delivery.count", "message")
)


class Fate(enum.StrEnum):
    """What a redrive does with a letter of its group."""

    DUE = "due"
    """It is sent back, or would be."""
    FILTERED = "filtered"
    """The filter leaves it. A later redrive finds it again."""
    WITHOUT_CONTENT = "without content"
    """It is not sent back: the group copies no content (errors.deadletterqueue.copy.record.enable),
    or its record was gone before the letter was written."""
    WITHOUT_TOPIC = "without topic"
    """It is not sent back: its topic does not exist any more."""


class Letter(NamedTuple):
    """A dead letter. ``reason``: the message of the broker, empty if it has none."""

    group: str
    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those of the record, without those that make it a letter."""

    @property
    def has_content(self) -> bool:
        """A record without key, value and headers counts as none: its letter looks the same."""
        return self.key is not None or self.value is not None or bool(self.headers)


def letter_of(record: ConsumerRecord) -> Letter | None:
    """None: the record is no letter.

    Only the last header of each name makes it a letter. A group may read dead letters itself: then
    earlier headers of these names belong to the record.
    """
    places = {name: at for at, (name, _) in enumerate(record.headers) if name in _NAMES}
    told = {name: record.headers[at][1] for name, at in places.items()}
    try:
        topic, partition, offset, group = (_text(told[name]) for name in _NAMES[:4])
        reason = _text(told.get(_NAMES[5]))
        return Letter(
            *(group, topic, int(partition), int(offset), reason, record.key, record.value),
            tuple(each for at, each in enumerate(record.headers) if places.get(each[0]) != at),
        )
    except (KeyError, ValueError):
        return None


def _text(value: bytes | None) -> str:
    """Raises ValueError."""
    return "" if value is None else value.decode()


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are sent back. Without anything: all."""

    topics: frozenset[str] = frozenset()
    """Topics that they came from. Empty: any."""
    reason: str = ""
    """A part of the reason, in whatever case."""
    accepts: Callable[[ConsumerRecord], bool] | None = None
    """Takes the letter as a record, with all its headers."""

    def takes(self, letter: Letter, record: ConsumerRecord) -> bool:
        return (
            (not self.topics or letter.topic in self.topics)
            and self.reason.casefold() in letter.reason.casefold()
            and (self.accepts is None or self.accepts(record))
        )


def fate_of(
    letter: Letter,
    record: ConsumerRecord,
    letter_filter: LetterFilter,
    partitions: Mapping[str, int],
) -> Fate:
    """``partitions``: how many partitions each existing topic has."""
    if not letter_filter.takes(letter, record):
        return Fate.FILTERED
    if letter.topic not in partitions:
        return Fate.WITHOUT_TOPIC
    return Fate.DUE if letter.has_content else Fate.WITHOUT_CONTENT


def record_of(letter: Letter, partition_count: int) -> ProducerRecord:
    """The record as it goes back. It goes to its partition again, whichever partitioner its
    producer had. If its topic was made anew with fewer partitions, its key decides."""
    partition = letter.partition if letter.partition < partition_count else None
    return ProducerRecord(
        letter.topic, letter.value, letter.key, letter.headers, partition=partition
    )
