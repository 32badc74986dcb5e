"""The rows of a frame that is written: which columns there are, and the records in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from stele.column_encoder import RecordColumns, partitions_of
from stele.columns import SCHEMA
from stele.spark.option_error import OptionError

_TEXT = (StringType, BinaryType)
_OF_THE_SOURCE = ("offset", "timestamp", "timestamptype")
"""Columns of a frame that was read. They are passed over, so that a frame can be written again."""


class RowError(ValueError):
    """A row cannot be a record."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Where the columns of a frame are. -1: it has none of this name."""

    default_topic: str
    """The topic of all rows, whatever their column says. Empty: each row names its own."""
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
        if default_topic:
            places.pop("topic", None)
        _check(schema, places, "topic", (StringType,), "string")
        _check(schema, places, "partition", (IntegerType,), "int")
        _check_headers(schema, places)
        columns = ("value", "key", "topic", "partition", "headers")
        return cls(default_topic, *(places.get(name, -1) for name in columns))

    def topics(self, batch: pa.RecordBatch) -> list[str]:
        """The topics that rows name. Raises RowError."""
        names: list[str | None] = batch.column(self.topic).cast(pa.string()).unique().to_pylist()
        found = [name for name in names if name]
        if len(found) < len(names):
            raise RowError('a row has no topic, and there is no option "topic"')
        return found

    def by_topic(self, batch: pa.RecordBatch) -> Iterator[TopicRows]:
        """The rows of each topic, in their order. Raises RowError."""
        values = batch.column(self.value).cast(pa.binary())
        keys = pa.nulls(len(values), pa.binary())
        if self.key >= 0:
            keys = batch.column(self.key).cast(pa.binary())
        headers = _headers(batch.column(self.headers)) if self.headers >= 0 else None
        partitions = _partitions(batch.column(self.partition)) if self.partition >= 0 else None
        everything = TopicRows(self.default_topic, RecordColumns(keys, values, headers), partitions)
        if self.topic < 0:
            yield everything
            return
        topics = batch.column(self.topic).cast(pa.string())
        for name in self.topics(batch):
            is_of_it = pc.equal(topics, name).to_numpy(zero_copy_only=False)
            yield everything.of(name, np.flatnonzero(is_of_it))


class TopicRows(NamedTuple):
    """Rows for one topic. ``partitions``: those that the rows name, null where the key decides;
    None if there is no such column."""

    topic: str
    columns: RecordColumns
    partitions: pa.Array | None

    def of(self, topic: str, rows: Any) -> TopicRows:
        if len(rows) == len(self.columns):
            return self._replace(topic=topic)
        partitions = None if self.partitions is None else self.partitions.take(pa.array(rows))
        return TopicRows(topic, self.columns.take(rows), partitions)

    def chosen(self, partition_count: int) -> Any:
        """The partition of each row; -1 where neither the row nor its key says one."""
        keys = self.columns.keys
        if self.partitions is None:
            return partitions_of(keys, partition_count)
        if not self.partitions.null_count:
            return self.partitions.to_numpy().astype(np.int64)
        given = self.partitions.fill_null(-1).to_numpy().astype(np.int64)
        return np.where(given >= 0, given, partitions_of(keys, partition_count))


def _partitions(column: pa.Array) -> pa.Array:
    """Raises RowError."""
    if pc.any(pc.less(column, 0)).as_py():
        raise RowError(f"a row has the partition {pc.min(column).as_py()}")
    return column


def _headers(column: pa.Array) -> pa.ListArray:
    """Raises RowError."""
    if pc.struct_field(column.flatten(), 0).null_count:
        raise RowError("a row has a header without a key")
    return column.cast(SCHEMA.field("headers").type)


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
