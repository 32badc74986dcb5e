"""Between files and topics: lines of text files into a topic, a topic into Parquet files."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from spark.pipelines import base

SCHEMA_FILE = "_schema.json"
"""Beside the Parquet files, which Spark reads without files that begin with ``_``."""
UNREADABLE = "_unreadable"
"""The column with a value that does not fit the schema."""
PLACE = ("topic", "partition", "offset", "timestamp")


# ----------------------------------------------------------------------- files into a topic


def lines_to_topic(
    session: SparkSession, settings: base.Settings, directory: Path, topic: str
) -> StreamingQuery:
    """Each line of each file is a record, whose key is the file's name. Files must appear whole
    (write elsewhere, then rename), and are not read again when they change."""
    lines = (
        session.readStream.format("text")
        .option("maxFilesPerTrigger", "100")
        .load(str(directory))
        .select("value", fn.col("_metadata.file_name").alias("key"))
        .withColumn("topic", fn.lit(settings.topic(topic)))
    )
    return base.to_topics(lines, settings, f"files-to-{topic}")


# ---------------------------------------------------------------------- a topic into Parquet


def topic_to_parquet(
    session: SparkSession,
    settings: base.Settings,
    topic: str,
    directory: Path,
    *,
    schema: str,
    rows_per_file: int,
    longest_wait: str,
) -> StreamingQuery:
    """Each record is once in the files, with its place in the topic.

    A batch is one file by day, of at most ``rows_per_file``: a query that follows waits for so many
    rows, but no longer than ``longest_wait``. Raises PipelineError if the files have another schema
    (``kept_schema``).
    """
    columns = kept_schema(directory, schema) if schema else None
    records = base.stream_of(
        session,
        settings,
        topic,
        maxOffsetsPerTrigger=str(rows_per_file),
        minOffsetsPerTrigger=str(rows_per_file),
        maxTriggerDelay=longest_wait,
    )
    rows = as_columns(records, columns).withColumn("day", fn.to_date("timestamp"))
    return base.to_files(rows.coalesce(1), settings, f"parquet-of-{topic}", directory, ["day"])


def as_columns(records: DataFrame, schema: StructType | None) -> DataFrame:
    """Values by their schema, or keys and values as they are. A value that does not fit is kept in
    the column ``_unreadable``: nothing is lost."""
    if schema is None:
        return records.select("key", "value", *PLACE)
    text = fn.col("value").cast("string")
    with_unreadable = StructType([*schema.fields]).add(UNREADABLE, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE}
    row = fn.from_json(text, with_unreadable, options)
    key = fn.col("key").cast("string").alias("_key")
    return records.select(key, row.alias("row"), *PLACE).select("_key", "row.*", *PLACE)


def kept_schema(directory: Path, ddl: str) -> StructType:
    """The schema of the files of a directory. It may get new columns, which are null in earlier
    files, and keeps those that it has. Raises PipelineError for a column of another type."""
    file, wanted = directory / SCHEMA_FILE, StructType.fromDDL(ddl)
    if not isinstance(wanted, StructType):
        raise base.PipelineError(f"--schema is of columns (id INT, name STRING), not {ddl!r}")
    fields = {field.name: field for field in wanted.fields}
    reserved = {"_key", UNREADABLE, "day", *PLACE}
    if taken := sorted(reserved & fields.keys()):
        raise base.PipelineError(f"the files have a column {taken[0]} of their own: name it else")
    merged = wanted
    if file.exists():
        before = StructType.fromJson(json.loads(file.read_text()))
        for field in before.fields:
            asked = fields.pop(field.name, field)
            if asked.dataType != field.dataType:
                raise base.PipelineError(
                    f"column {field.name} of {directory} is {field.dataType.simpleString()}, not "
                    f"{asked.dataType.simpleString()}: use another directory or another name"
                )
        merged = StructType([*before.fields, *fields.values()])
    directory.mkdir(parents=True, exist_ok=True)
    following = file.with_suffix(".next")
    following.write_text(merged.json())
    following.replace(file)
    return merged


def sizes(directory: Path) -> list[tuple[str, int, int]]:
    """Each day, the number of its files, and their bytes."""
    days: dict[str, list[int]] = {}
    for file in directory.glob("day=*/*.parquet"):
        days.setdefault(file.parent.name.removeprefix("day="), []).append(file.stat().st_size)
    return [(day, len(found), sum(found)) for day, found in sorted(days.items())]
