"""Decoders of values, as column functions.

>>> from stele.spark import decoders
>>> frame.select(decoders.json("value", "id INT, name STRING").alias("order"))

A value that does not decode is null, or fails the query with ``on_error="fail"``. With null such
rows can go to a topic of their own: ``where(col("order").isNull() & col("value").isNotNull())``.

Avro and Protobuf need Spark's packages ``org.apache.spark:spark-avro_2.13`` and
``org.apache.spark:spark-protobuf_2.13`` of Spark's version (``spark.jars.packages``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as fn

OnError = Literal["null", "fail"]

HEADER_BYTES = 5
"""What registries' serializers write before the value: a zero byte, and the schema's id in four
bytes."""


def json(
    value: Column | str,
    schema: str,
    *,
    on_error: OnError = "null",
    options: Mapping[str, str] | None = None,
) -> Column:
    """A struct of this schema (DDL) from JSON. ``options``: those of ``from_json``."""
    mode = {"mode": "FAILFAST"} if on_error == "fail" else {"mode": "PERMISSIVE"}
    text = _column(value).cast("string")
    found = fn.from_json(text, schema, {**mode, **(options or {})})
    return (
        found if on_error == "fail" else fn.when(fn.get_json_object(text, "$").isNotNull(), found)
    )


def csv(
    value: Column | str,
    schema: str,
    *,
    on_error: OnError = "null",
    options: Mapping[str, str] | None = None,
) -> Column:
    """A struct of this schema (DDL) from one CSV line. Quotes within quotes are doubled.
    ``options``: those of ``from_csv``. With ``on_error="null"`` single fields are null."""
    mode = "FAILFAST" if on_error == "fail" else "PERMISSIVE"
    given = {"escape": '"', "mode": mode, **(options or {})}
    return fn.from_csv(_column(value).cast("string"), schema, given)


def schema_id(value: Column | str) -> Column:
    """The schema's id in a registry's header; null if there is no such header."""
    column = _column(value)
    number = fn.conv(fn.hex(_substring(column, 2, 4)), 16, 10).cast("int")
    return fn.when(_has_header(column), number)


def without_header(value: Column | str, *, on_error: OnError = "null") -> Column:
    """The bytes behind a registry's header."""
    column = _column(value)
    rest = _substring(column, HEADER_BYTES + 1, 2**31 - 1)
    return _checked(column, _has_header(column), rest, "a value has no header of 5 bytes", on_error)


def avro(
    value: Column | str, schema: str, *, has_header: bool = False, on_error: OnError = "null"
) -> Column:
    """The value of an Avro schema (JSON). ``has_header``: it was written by way of a registry, with
    this schema."""
    from pyspark.sql.avro.functions import from_avro

    data = without_header(value, on_error=on_error) if has_header else _column(value)
    mode = "FAILFAST" if on_error == "fail" else "PERMISSIVE"
    return from_avro(data, schema, {"mode": mode})


def protobuf(
    value: Column | str,
    message: str,
    descriptor: bytes,
    *,
    has_header: bool = False,
    on_error: OnError = "null",
) -> Column:
    """The value of a Protobuf message. ``descriptor``: the bytes of ``protoc
    --descriptor_set_out``.

    ``has_header``: it was written by way of a registry. Behind the header is the index of the
    message in its file; only the first message (a zero byte) can be read.
    """
    from pyspark.sql.protobuf.functions import from_protobuf

    data = _column(value)
    if has_header:
        inner = without_header(value, on_error=on_error)
        is_first = _substring(inner, 1, 1) == fn.lit(b"\x00")
        words = "a value is not of the first message of its file"
        data = _checked(inner, is_first, _substring(inner, 2, 2**31 - 1), words, on_error)
    mode = "FAILFAST" if on_error == "fail" else "PERMISSIVE"
    return from_protobuf(data, message, options={"mode": mode}, binaryDescriptorSet=descriptor)


def _column(value: Column | str) -> Column:
    return fn.col(value) if isinstance(value, str) else value


def _substring(value: Column, start: int, length: int) -> Column:
    return fn.substring(value, start, length)


def _has_header(value: Column) -> Column:
    is_long = fn.octet_length(value) >= HEADER_BYTES
    return is_long & (_substring(value, 1, 1) == fn.lit(b"\x00"))


def _checked(
    value: Column, is_good: Column, found: Column, words: str, on_error: OnError
) -> Column:
    if on_error == "null":
        return fn.when(is_good, found)
    problem = fn.raise_error(fn.concat(fn.lit(f"{words}: "), fn.hex(value))).cast("binary")
    return fn.when(value.isNull() | is_good, found).otherwise(problem)
