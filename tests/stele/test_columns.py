"""Polled records as columns."""

from __future__ import annotations

import datetime

import pyarrow as pa

from stele.columns import SCHEMA
from stele.consumer.polled import ConsumerRecords
from stele.records import ConsumerRecord, TimestampType

RECORDS = ConsumerRecords(
    [
        ConsumerRecord(
            "t", 1, 7, 1_500, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"1"), ("h", None)), 3
        ),
        ConsumerRecord("u", 0, 2**40, 2_000, TimestampType.LOG_APPEND_TIME, None, None, (), 3),
    ]
)


def test_records_become_an_arrow_table() -> None:
    table = RECORDS.to_arrow()
    assert table.schema == SCHEMA
    first, second = table.to_pylist()
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": datetime.datetime.fromtimestamp(1.5, datetime.UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert (second["offset"], second["timestampType"]) == (2**40, 1)


def test_no_records_have_the_same_columns() -> None:
    table = ConsumerRecords().to_arrow()
    assert isinstance(table, pa.Table)
    assert (table.num_rows, table.schema) == (0, SCHEMA)


def test_records_become_a_data_frame() -> None:
    frame = RECORDS.to_pandas()
    assert list(frame.columns) == SCHEMA.names
    assert frame["offset"].tolist() == [7, 2**40]
    assert frame["value"].tolist() == [b"v", None]


def test_a_poll_is_a_list() -> None:
    assert [record.offset for record in RECORDS] == [7, 2**40]
    assert RECORDS[:1] == [RECORDS[0]]
