"""Decoders as column functions. One query for all of them: each costs Spark a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes  # it shares the session of the tests with a cluster

JSON = b'{"id": 7, "name": "x"}'


def test_values_decode_or_are_null(spark: SparkSession) -> None:
    from stele.spark import decoders

    values = [JSON, b"{", b'a,"b ""c""",3', b"\x00\x00\x00\x01\x02" + JSON, b"\x00", None]
    frame = spark.createDataFrame([(n, v) for n, v in enumerate(values)], "n int, value binary")
    rows = (
        frame.select(
            "n",
            decoders.json("value", "id INT, name STRING").alias("json"),
            decoders.csv("value", "one STRING, two STRING, three INT").alias("csv"),
            decoders.schema_id("value").alias("schema"),
            decoders.without_header("value").alias("rest"),
            decoders.json(decoders.without_header("value"), "id INT").alias("inner"),
        )
        .orderBy("n")
        .collect()
    )
    assert [row.json and (row.json.id, row.json.name) for row in rows] == [
        (7, "x"), None, None, None, None, None,
    ]  # fmt: skip
    assert (rows[2].csv.one, rows[2].csv.two, rows[2].csv.three) == ("a", 'b "c"', 3)
    assert [row.schema for row in rows] == [None, None, None, 258, None, None]
    assert bytes(rows[3].rest) == JSON
    assert [row.inner and row.inner.id for row in rows] == [None, None, None, 7, None, None]


def test_a_value_that_does_not_decode_fails_the_query_if_it_must(spark: SparkSession) -> None:
    from stele.spark import decoders

    frame = spark.createDataFrame([(JSON,)], "value binary")
    strict = frame.select(decoders.without_header("value", on_error="fail"))
    with pytest.raises(Exception, match="has no header of 5 bytes"):
        strict.collect()
