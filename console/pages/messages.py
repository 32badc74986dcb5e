"""Records of a topic: browsed, one in full, and one produced."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.clients import Isolation
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.reading import MOST_RECORDS, Place, Span, read, spans, within
from console.record_text import LONG_BYTES, SHORT_BYTES, Form, Shown, shown
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, Headers

Choice = TypeVar("Choice", bound=enum.StrEnum)
Order = Callable[[ConsumerRecord], tuple[int, ...]]

DEFAULT_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as a page shows it."""

    record: ConsumerRecord
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]

    @classmethod
    def of(cls, record: ConsumerRecord, form: Form, most_bytes: int = SHORT_BYTES) -> RecordView:
        return cls(
            record,
            shown(record.key, form, most_bytes),
            shown(record.value, form, most_bytes),
            tuple((name, shown(value, form, most_bytes)) for name, value in record.headers),
        )


@dataclass(frozen=True, slots=True)
class Browsing:
    """What a person asks for. ``partition`` None: all of them."""

    topic: str
    partition: int | None
    place: Place
    number: int
    """For OFFSET the offset, for TIME the timestamp in milliseconds."""
    limit: int
    form: Form
    isolation: Isolation
    at: str
    """The offset or the time as it was written."""

    @classmethod
    def of(cls, fields: Fields) -> Browsing:
        """Raises FormError."""
        place = _one_of(Place, fields.text("from") or "last")
        number = 0
        if place is Place.OFFSET:
            number = fields.number("at", "the offset")
        elif place is Place.TIME:
            number = fields.time_ms("at", "the time")
        limit = fields.number("limit", "the number of records", DEFAULT_LIMIT)
        return cls(
            fields.needed("topic", "the name of the topic"),
            fields.number("partition", "the partition") if fields.text("partition") else None,
            place,
            number,
            min(max(1, limit), MOST_RECORDS),
            _one_of(Form, fields.text("as") or "auto"),
            isolation_of(fields),
            fields.text("at"),
        )


def isolation_of(fields: Fields) -> Isolation:
    return "read_committed" if fields.has("committed") else "read_uncommitted"


def form_of(fields: Fields) -> Form:
    """Raises FormError."""
    return _one_of(Form, fields.text("as") or "auto")


def _one_of(kind: type[Choice], text: str) -> Choice:
    try:
        return kind(text)
    except ValueError:
        raise FormError(f"{text!r} is none of {', '.join(kind)}") from None


async def messages_page(request: Request) -> Response:
    desk, wanted = desk_of(request), Browsing.of(Fields.of_link(request))
    partitions, count = await led_partitions(desk, wanted.topic, wanted.partition)
    found = await spans(desk.admin, partitions, wanted.place, wanted.number, wanted.limit)
    records: Sequence[ConsumerRecord] = ()
    unread: list[str] = []
    if found:
        async with desk.clients.consumer(wanted.isolation) as consumer:
            found = within(found, await consumer.end_offsets(found))
            result = await read(
                consumer, found, wanted.limit, desk.clients.clock, desk.settings.timeout_s
            )
        records = sorted(result.records, key=_order(wanted))
        unread = [f"{name}: {why}" for name, why in result.unread.items()]
    if wanted.place is Place.LAST:
        records = list(reversed(records))
    return desk.page(
        "messages.html",
        wanted=wanted,
        partition_count=count,
        views=[RecordView.of(each, wanted.form) for each in records],
        unread=unread,
        older=_older(wanted, records),
        newer=max((each.offset for each in records), default=0) + 1,
        most_records=MOST_RECORDS,
    )


def _order(wanted: Browsing) -> Order:
    if wanted.partition is not None:
        return lambda record: (record.offset,)
    return lambda record: (record.timestamp_ms, record.partition, record.offset)


def _older(wanted: Browsing, records: Sequence[ConsumerRecord]) -> int | None:
    """The offset where the page before this one begins, of one partition."""
    first = min((each.offset for each in records), default=0)
    if wanted.partition is None or first == 0:
        return None
    return max(0, first - wanted.limit)


async def led_partitions(
    desk: Desk, topic: str, partition: int | None
) -> tuple[list[TopicPartition], int]:
    """The partitions that can be read, and the number of all. Raises ApiError."""
    (described,) = await desk.admin.describe_topics([topic], linearizable=False)
    chosen = [each for each in described.partitions if partition in (None, each.partition)]
    if not chosen:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {partition}"
        )
    led = [TopicPartition(topic, each.partition) for each in chosen if each.leader is not None]
    if not led:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {topic!r} has a leader")
    return led, len(described.partitions)


async def message_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    name = TopicPartition(
        fields.needed("topic", "the name of the topic"),
        fields.number("partition", "the partition"),
    )
    offset = fields.number("offset", "the offset")
    await led_partitions(desk, *name)
    found = await spans(desk.admin, [name], Place.OFFSET, offset, 1)
    if name not in found or found[name].start != offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{name} has no offset {offset} now")
    async with desk.clients.consumer("read_uncommitted") as consumer:
        span = {name: Span(offset, offset + 1)}
        result = await read(consumer, span, 1, desk.clients.clock, desk.settings.timeout_s)
    if not result.records:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{name} has no record at offset {offset}")
    view = RecordView.of(result.records[0], form_of(fields), LONG_BYTES)
    return desk.page("message.html", view=view, form=form_of(fields))


async def produce_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    topic = fields.needed("topic", "the name of the topic")
    await desk.admin.describe_topics([topic], linearizable=False)
    return desk.page("produce.html", topic=topic)


async def produce(desk: Desk, fields: Fields) -> Response:
    topic = fields.needed("topic", "the name of the topic")
    partition = fields.number("partition", "the partition", -1)
    async with desk.clients.producer() as producer:
        delivery = await producer.send(
            topic,
            None if fields.has("tombstone") else fields.raw("value").encode(),
            key=fields.raw("key").encode() if fields.has("key") else None,
            headers=_headers(fields.raw("headers")),
            partition=None if partition < 0 else partition,
        )
        written = await delivery
    return go_to("/message", topic=topic, partition=written.partition, offset=written.offset)


def _headers(text: str) -> Headers:
    """Lines of the form ``name: value``. Raises FormError."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise FormError(f"the header {line!r} is not of the form name: value")
        found.append((name.strip(), value.strip().encode()))
    return tuple(found)


ROUTES: Final[list[BaseRoute]] = [
    Route("/messages", messages_page),
    Route("/message", message_page),
    Route("/produce", produce_page, methods=["GET"]),
    change("/produce", produce),
]
