"""Rows go to the topics and partitions that each would go to alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from stele.producer.partitioner import partition_of
from stele.spark.option_error import OptionError
from stele.spark.rows import RowError, RowShape

PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SHAPE = StructType(
    [
        StructField("topic", StringType()),
        StructField("headers", ArrayType(PAIR)),
        StructField("value", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("offset", IntegerType()),
    ]
)
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("value", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("offset", pa.int32()),
    ]
)
HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary()})
ROW = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b"]),
        "headers": st.none() | st.lists(HEADER, max_size=2),
        "value": st.none() | st.text(max_size=5),
        "partition": st.none() | st.integers(0, 4),
        "key": st.none() | st.binary(max_size=9),
        "offset": st.just(7),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ARROW)


@given(st.lists(ROW, max_size=30), st.integers(0, 2))
def test_each_row_goes_where_it_would_go_alone(rows: list[dict[str, Any]], before: int) -> None:
    found: dict[str, list[Any]] = {}
    batch = batch_of([*rows[:before], *rows]).slice(len(rows[:before]))
    for each in RowShape.of(SHAPE, "").by_topic(batch):
        columns = each.columns
        assert columns.headers is not None
        found[each.topic] = list(
            zip(
                each.chosen(3).tolist(),
                columns.keys.to_pylist(),
                columns.values.to_pylist(),
                columns.headers.to_pylist(),
                strict=True,
            )
        )
    expected: dict[str, list[Any]] = {}
    for row in rows:
        key, partition = row["key"], row["partition"]
        if partition is None:
            partition = -1 if key is None else partition_of(key, 3)
        value = None if row["value"] is None else row["value"].encode()
        place = expected.setdefault(row["topic"], [])
        place.append((partition, key, value, row["headers"]))
    assert {topic: rows for topic, rows in found.items() if rows} == expected


@pytest.mark.parametrize("first", ["topic", "headers", "value", "partition", "key"])
def test_any_column_may_be_the_first(first: str) -> None:
    names = [first, *(name for name in SHAPE.names if name != first)]
    shape = RowShape.of(StructType([SHAPE[name] for name in names]), "")
    headers = [{"key": "h", "value": b"1"}]
    row = {"topic": "a", "headers": headers, "value": "v", "partition": 2, "key": b"k"}
    (rows,) = shape.by_topic(batch_of([row]).select(names))
    assert rows.topic == "a"
    assert rows.chosen(3).tolist() == [2]
    assert rows.columns.keys.to_pylist() == [b"k"]
    assert rows.columns.values.to_pylist() == [b"v"]
    assert rows.columns.headers is not None
    assert rows.columns.headers.to_pylist() == [headers]


def test_a_key_decides_where_no_column_names_partitions() -> None:
    shape = RowShape.of(StructType([SHAPE["value"], SHAPE["key"]]), "t")
    rows = [{"value": "v", "key": key} for key in (b"a", b"b", None)]
    schema = pa.schema([ARROW.field("value"), ARROW.field("key")])
    (found,) = shape.by_topic(pa.RecordBatch.from_pylist(rows, schema=schema))
    assert found.chosen(5).tolist() == [partition_of(b"a", 5), partition_of(b"b", 5), -1]


@pytest.mark.parametrize("topic", ["orders", None])
def test_the_option_names_the_topic_of_all_rows_whatever_their_column_says(
    topic: str | None,
) -> None:
    """A frame that was read names the topic that it comes from."""
    row = {"topic": topic, "headers": None, "value": "v", "partition": 0, "key": None}
    shape = RowShape.of(SHAPE, "copy")
    assert [rows.topic for rows in shape.by_topic(batch_of([row, row]))] == ["copy"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"topic": None}, "a row has no topic"),
        ({"partition": -3}, "a row has the partition -3"),
        ({"headers": [{"key": None, "value": b"x"}]}, "a header without a key"),
        ({"headers": [{"key": "a", "value": b"x"}, None]}, "a header without a key"),
    ],
)
def test_rows_that_cannot_be_records_are_refused(row: dict[str, Any], words: str) -> None:
    good = {"topic": "a", "headers": None, "value": "v", "partition": None, "key": None}
    with pytest.raises(RowError, match=words):
        list(RowShape.of(SHAPE, "").by_topic(batch_of([good, {**good, **row}])))


VALUE = StructField("value", StringType())
TOPIC = StructField("topic", StringType())


def headers_of(key: DataType, value: DataType) -> StructField:
    pair = StructType([StructField("key", key), StructField("value", value)])
    return StructField("headers", ArrayType(pair))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([TOPIC], 'no column "value"'),
        ([VALUE], 'neither an option "topic" nor a column "topic"'),
        ([VALUE, TOPIC, StructField("total", IntegerType())], "the columns total, which"),
        ([StructField("value", IntegerType()), TOPIC], "string or binary"),
        ([VALUE, StructField("topic", BinaryType())], "string"),
        ([VALUE, TOPIC, StructField("partition", StringType())], "int"),
        ([VALUE, TOPIC, StructField("headers", PAIR)], "headers"),
        ([VALUE, TOPIC, StructField("headers", ArrayType(StringType()))], "headers"),
        ([VALUE, TOPIC, headers_of(BinaryType(), BinaryType())], "key:string,value:binary"),
        ([VALUE, TOPIC, headers_of(StringType(), IntegerType())], "key:string,value:binary"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(fields: list[StructField], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        RowShape.of(StructType(fields), "")


def test_the_option_topic_goes_before_the_column() -> None:
    assert RowShape.of(StructType([VALUE]), "t") == RowShape("t", 0, -1, -1, -1, -1)
    assert RowShape.of(StructType([VALUE, StructField("topic", BinaryType())]), "t").topic == -1
    shape = RowShape.of(StructType([VALUE, TOPIC]), "")
    assert (shape.default_topic, shape.topic) == ("", 1)
