"""Between tables of a database and topics, by Python's DB-API.

A database is ``sqlite:PATH``, or ``MODULE:ADDRESS`` for any module with ``connect(ADDRESS)``, such
as ``psycopg:postgresql://…``. The tables are those of one micro-batch at a time, so the driver does
this work. For tables of many gigabytes use Spark's own JDBC source with ``base.to_topics``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.datasource import DataSource, DataSourceReader, SimpleDataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base

PROGRESS = "stele_progress"
"""The table in which a query notes its last batch, in the transaction of the batch."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class Database:
    """A connection, and what is special about its module. Raises PipelineError."""

    def __init__(self, address: str) -> None:
        module, colon, where = address.partition(":")
        if not colon or not where:
            raise base.PipelineError(
                f"a database is sqlite:PATH or MODULE:ADDRESS, not {address!r}"
            )
        try:
            self._module = importlib.import_module("sqlite3" if module == "sqlite" else module)
        except ImportError as error:
            raise base.PipelineError(f"the database module {module!r}: {error}") from None
        style = self._module.paramstyle
        if style not in ("qmark", "format", "pyformat"):
            raise base.PipelineError(f"the module {module!r} has the parameter style {style!r}")
        self.mark = "?" if style == "qmark" else "%s"
        self._where = where

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor. What it does is committed at the end, or rolled back after an exception."""
        with contextlib.closing(self._module.connect(self._where)) as connection:
            cursor = connection.cursor()
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()


def checked(name: str) -> str:
    """A name of a table or column, which becomes part of a statement. Raises PipelineError."""
    if not _NAME.fullmatch(name):
        raise base.PipelineError(f"{name!r} is no name of a table or column")
    return name


# ---------------------------------------------------------------------- a table into a topic


class TableSource(DataSource):
    """``format("stele-table")``: the rows of a table in the order of a column that rises, as key
    and JSON. A query reads on from the highest value that its checkpoint has."""

    @classmethod
    def name(cls) -> str:
        return "stele-table"

    def schema(self) -> str:
        return "key STRING, value STRING"

    def reader(self, schema: Any) -> DataSourceReader:
        raise base.PipelineError("tables are read as streams only")

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        given = self.options
        return _TableReader(
            given["database"], given["table"], given["cursor"], given["key"], int(given["rows"])
        )


class _TableReader(SimpleDataSourceStreamReader):
    def __init__(self, address: str, table: str, cursor: str, key: str, most: int) -> None:
        self._address = address
        self._table, self._cursor = checked(table), checked(cursor)
        self._key = key
        self._most = most

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        return {"after": None}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[str, str]], dict[str, Any]]:
        rows = list(self._rows(start["after"], None))
        end = rows[-1][0] if rows else start["after"]
        return iter([row for _, *row in rows]), {"after": end}  # type: ignore[misc]

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[str, str]]:
        return iter([(k, v) for _, k, v in self._rows(start["after"], end["after"])])

    def _rows(self, after: Any, until: Any) -> Iterator[tuple[Any, str, str]]:
        database, bounds, values = Database(self._address), [], []
        for sign, value in ((">", after), ("<=", until)):
            if value is not None:
                bounds.append(f"{self._cursor} {sign} {database.mark}")
                values.append(value)
        where = f"where {' and '.join(bounds)}" if bounds else ""
        query = f"select * from {self._table} {where} order by {self._cursor}"
        with database.transaction() as cursor:
            cursor.execute(query, values)
            names = [column[0] for column in cursor.description]
            at, key = names.index(self._cursor), names.index(self._key)
            found = cursor.fetchall() if until is not None else cursor.fetchmany(self._most)
        for row in found:
            fields = dict(zip(names, row, strict=True))
            yield row[at], str(row[key]), json.dumps(fields, default=str)


def table_to_topic(
    session: SparkSession,
    settings: base.Settings,
    database: str,
    table: str,
    topic: str,
    *,
    cursor: str,
    key: str,
) -> StreamingQuery:
    """Each row once. ``cursor``: a column in whose order rows come, with a value that no two rows
    share, such as a serial number. A row that changes afterwards is not read again."""
    session.dataSource.register(TableSource)
    rows = (
        session.readStream.format("stele-table")
        .options(database=database, table=table, cursor=cursor, key=key)
        .option("rows", str(settings.max_offsets_per_trigger))
        .load()
        .withColumn("topic", fn.lit(settings.topic(topic)))
    )
    return base.to_topics(rows, settings, f"table-{table}")


# ---------------------------------------------------------------------- a topic into a table


def topic_to_table(
    session: SparkSession,
    settings: base.Settings,
    topic: str,
    database: str,
    table: str,
    *,
    columns: Sequence[str],
) -> StreamingQuery:
    """The table has the last value of each key: a column ``key`` with a unique index, and
    ``columns``, which are fields of the JSON. A tombstone deletes its row.

    A batch is one transaction of the database. It also notes the batch's number, so that a batch
    that Spark repeats changes nothing.
    """
    schema = ", ".join(f"{checked(name)} STRING" for name in columns)
    records = base.stream_of(session, settings, topic).where("key is not null")
    name = f"{settings.topic(topic)}-to-{checked(table)}"

    def write(changed: DataFrame, batch: int) -> None:
        place = fn.struct("value", "offset")
        last = changed.groupBy("key").agg(fn.max_by(place, "offset").alias("last"))
        row = fn.from_json(fn.col("last.value").cast("string"), schema).alias("row")
        is_deleted = fn.col("last.value").isNull().alias("is_deleted")
        rows = last.select(fn.col("key").cast("string"), is_deleted, row).toLocalIterator()
        store(Database(database), table, columns, name, batch, rows)

    return base.for_each_batch(records, settings, name, write)


def store(
    database: Database,
    table: str,
    columns: Sequence[str],
    query: str,
    batch: int,
    rows: Iterator[Any],
) -> None:
    """Upsert and delete rows (``key``, ``is_deleted``, ``row``), unless the batch is done."""
    mark = database.mark
    marks = ", ".join([mark] * (1 + len(columns)))
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns)
    upsert = (
        f"insert into {table} (key, {', '.join(columns)}) values ({marks}) "
        f"on conflict (key) do update set {updates}"
    )
    with database.transaction() as cursor:
        cursor.execute(
            f"create table if not exists {PROGRESS} (query varchar(400) primary key, batch bigint)"
        )
        cursor.execute(f"select batch from {PROGRESS} where query = {mark}", [query])
        done = cursor.fetchone()
        if done is not None and done[0] >= batch:
            return
        for row in rows:
            if row.is_deleted:
                cursor.execute(f"delete from {table} where key = {mark}", [row.key])
            else:
                values = [None if row.row is None else row.row[name] for name in columns]
                cursor.execute(upsert, [row.key, *values])
        cursor.execute(
            f"insert into {PROGRESS} (query, batch) values ({mark}, {mark}) "
            "on conflict (query) do update set batch = excluded.batch",
            [query, batch],
        )
