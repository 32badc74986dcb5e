"""Dead letters as a redrive reads them."""

from __future__ import annotations

import pytest

from stele.records import ConsumerRecord, Headers, ProducerRecord, TimestampType
from stele.redrive.letters import Fate, Letter, LetterFilter, fate_of, letter_of, record_of

REJECTED = b"Offset rejected by client."


def errors(topic: bytes = b"orders", offset: bytes = b"42", message: bytes = REJECTED) -> Headers:
    return (
        ("__dlq.errors.topic", topic),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", offset),
        ("__dlq.errors.group", b"mails"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", message),
    )


def record(
    headers: Headers, key: bytes | None = b"k", value: bytes | None = b"v"
) -> ConsumerRecord:
    return ConsumerRecord(
        "dlq.orders", 0, 7, 1000, TimestampType.CREATE_TIME, key, value, headers, 0
    )


def parsed(given: ConsumerRecord) -> Letter:
    letter = letter_of(given)
    assert letter is not None
    return letter


def test_a_letter_becomes_its_record_again() -> None:
    letter = parsed(record((("a", b"1"), *errors(), ("b", None))))
    assert letter[:5] == ("mails", "orders", 3, 42, "Offset rejected by client.")
    headers = (("a", b"1"), ("b", None))
    assert record_of(letter, 4) == ProducerRecord("orders", b"v", b"k", headers, partition=3)
    assert record_of(letter, 3).partition is None


def test_a_letter_of_a_letter_becomes_the_letter_again() -> None:
    inner = errors(topic=b"first", offset=b"1")
    letter = parsed(record((*inner, *errors(topic=b"dlq.first"))))
    assert (letter.topic, letter.offset, letter.headers) == ("dlq.first", 42, inner)


def test_a_letter_without_reason_is_a_letter() -> None:
    assert parsed(record(errors()[:4])).reason == ""


@pytest.mark.parametrize(
    "headers",
    [(), errors()[1:], errors(offset=b"x"), errors(topic=b"\xff"), (("a", b"1"),)],
)
def test_other_records_are_no_letters(headers: Headers) -> None:
    assert letter_of(record(headers)) is None


@pytest.mark.parametrize(
    ("letter_filter", "fate"),
    [
        (LetterFilter(), Fate.DUE),
        (LetterFilter(topics=frozenset({"orders", "x"})), Fate.DUE),
        (LetterFilter(topics=frozenset({"x"})), Fate.FILTERED),
        (LetterFilter(reason="REJECTED"), Fate.DUE),
        (LetterFilter(reason="count exceeded"), Fate.FILTERED),
        (LetterFilter(accepts=lambda each: each.key == b"k"), Fate.DUE),
        (LetterFilter(accepts=lambda each: each.key == b"j"), Fate.FILTERED),
    ],
)
def test_a_filter_asks_for_topic_reason_and_record(letter_filter: LetterFilter, fate: Fate) -> None:
    given = record(errors())
    assert fate_of(parsed(given), given, letter_filter, {"orders": 4}) is fate


def test_letters_without_content_or_topic_are_not_due() -> None:
    empty = record(errors(), key=None, value=None)
    assert fate_of(parsed(empty), empty, LetterFilter(), {"orders": 4}) is Fate.WITHOUT_CONTENT
    assert fate_of(parsed(empty), empty, LetterFilter(), {}) is Fate.WITHOUT_TOPIC
    tombstone = record(errors(), value=None)
    assert fate_of(parsed(tombstone), tombstone, LetterFilter(), {"orders": 4}) is Fate.DUE
