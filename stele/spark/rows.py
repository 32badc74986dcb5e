"""The rows of a frame that is written: which columns there are, and the records in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from stele.records import ProducerRecord
from stele.spark.options import OptionError
from stele.wire.record import Header

_TEXT = (StringType, BinaryType)
_OF_THE_SOURCE = ("offset", "timestamp", "timestamptype")
"""Columns of a frame that was read. They are passed over, so that a frame can be written again."""


class RowError(ValueError):
    """A row cannot be a record."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Where the columns of a frame are. -1: it has none of this name."""

    default_topic: str
    value: int
    key: int
    topic: int
    partition: int
    headers: int

    @classmethod
    def of(cls, schema: StructType, default_topic: str) -> RowShape:
        """Check the columns of a frame. Raises OptionError."""
        places = {field.name.lower(): number for number, field in enumerate(schema.fields)}
        known = ("key", "value", "topic", "partition", "headers", *_OF_THE_SOURCE)
        strange = [field.name for field in schema.fields if field.name.lower() not in known]
        if strange:
            raise OptionError(
                f"the frame has the columns {', '.join(strange)}, which records do not have: "
                "select key, value, topic, partition and headers, and put the rest into the value"
            )
        if "value" not in places:
            raise OptionError('the frame has no column "value" (string or binary)')
        if "topic" not in places and not default_topic:
            raise OptionError('there is neither an option "topic" nor a column "topic"')
        for name in ("key", "value"):
            _check(schema, places, name, _TEXT, "string or binary")
        _check(schema, places, "topic", (StringType,), "string")
        _check(schema, places, "partition", (IntegerType,), "int")
        _check_headers(schema, places)
        columns = ("value", "key", "topic", "partition", "headers")
        return cls(default_topic, *(places.get(name, -1) for name in columns))

    def records(self, batch: pa.RecordBatch) -> Iterator[ProducerRecord]:
        """Raises RowError."""
        count = batch.num_rows

        def column(place: int, kind: Any = None) -> list[Any]:
            if place < 0:
                return [None] * count
            values = batch.column(place)
            return (values if kind is None else values.cast(kind)).to_pylist()  # type: ignore[no-any-return]

        binary = pa.binary()
        for value, key, topic, partition, headers in zip(
            column(self.value, binary),
            column(self.key, binary),
            column(self.topic),
            column(self.partition),
            column(self.headers),
            strict=True,
        ):
            name = topic if topic is not None else self.default_topic
            if not name:
                raise RowError('a row has no topic, and there is no option "topic"')
            if partition is not None and partition < 0:
                raise RowError(f"a row has the partition {partition}")
            pairs = [_header(each) for each in headers or ()]
            yield ProducerRecord(name, value, key, pairs, None, partition)


def _header(pair: dict[str, Any] | None) -> Header:
    if pair is None or pair["key"] is None:
        raise RowError("a row has a header without a key")
    value = pair["value"]
    return pair["key"], value.encode() if isinstance(value, str) else value


def _check(
    schema: StructType,
    places: dict[str, int],
    name: str,
    kinds: tuple[type[DataType], ...],
    words: str,
) -> None:
    if name in places:
        found = schema.fields[places[name]].dataType
        if not isinstance(found, kinds):
            raise OptionError(f'the column "{name}" is {found.simpleString()}, not {words}')


def _check_headers(schema: StructType, places: dict[str, int]) -> None:
    if "headers" not in places:
        return
    found = schema.fields[places["headers"]].dataType
    pair = found.elementType if isinstance(found, ArrayType) else None
    fields = [(each.name, type(each.dataType)) for each in getattr(pair, "fields", [])]
    if [name for name, _ in fields] != ["key", "value"] or not (
        fields[0][1] is StringType and fields[1][1] in _TEXT
    ):
        raise OptionError(
            f'the column "headers" is {found.simpleString()}, not '
            "array<struct<key:string,value:binary>>"
        )
