"""Connectors: files, Parquet, tables of databases and search indexes, from and to topics.

lines   DIRECTORY TOPIC         each line of the text files in a directory is a record
parquet TOPIC DIRECTORY         each record once in Parquet files, by day
import  DATABASE TABLE TOPIC    the rows of a table, and those that are added later
export  TOPIC DATABASE TABLE    a table with the last value of each key
search  TOPIC URL INDEX         a search index with the last value of each key
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base, file_connectors, search_connector, table_connectors
from stele import Consumer
from stele.ids import TopicPartition

Start = Callable[[SparkSession, base.Settings, argparse.Namespace], StreamingQuery]


def _lines(
    session: SparkSession, settings: base.Settings, options: argparse.Namespace
) -> StreamingQuery:
    base.ensure_topics(settings, options.topic)
    return file_connectors.lines_to_topic(session, settings, options.directory, options.topic)


def _parquet(
    session: SparkSession, settings: base.Settings, options: argparse.Namespace
) -> StreamingQuery:
    return file_connectors.topic_to_parquet(
        session,
        settings,
        options.topic,
        options.directory,
        schema=options.schema,
        rows_per_file=options.rows_per_file,
        longest_wait=options.longest_wait,
    )


def _import(
    session: SparkSession, settings: base.Settings, options: argparse.Namespace
) -> StreamingQuery:
    table_connectors.Database(options.database)  # a wrong address is told before anything starts
    base.ensure_topics(settings, options.topic)
    return table_connectors.table_to_topic(
        session,
        settings,
        options.database,
        options.table,
        options.topic,
        cursor=options.cursor,
        key=options.key or options.cursor,
    )


def _export(
    session: SparkSession, settings: base.Settings, options: argparse.Namespace
) -> StreamingQuery:
    table_connectors.Database(options.database)
    columns = [name.strip() for name in options.columns.split(",") if name.strip()]
    return table_connectors.topic_to_table(
        session, settings, options.topic, options.database, options.table, columns=columns
    )


def _search(
    session: SparkSession, settings: base.Settings, options: argparse.Namespace
) -> StreamingQuery:
    return search_connector.topic_to_search(
        session, settings, options.topic, options.url, options.index
    )


def result(settings: base.Settings, options: argparse.Namespace) -> None:
    """Show what is there now: files by day, or records by partition."""
    if options.connector == "parquet":
        found = file_connectors.sizes(options.directory)
        base.show(str(options.directory), ("day", "files", "bytes"), found)
        return
    name = settings.topic(options.topic)
    with Consumer(settings.bootstrap_servers, **settings.security) as consumer:
        places = [TopicPartition(name, number) for number in consumer.partitions_for(name)]
        begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    rows = [(str(place.partition), ends[place] - begins[place]) for place in places]
    base.show(name, ("partition", "offsets"), rows)


def parser() -> argparse.ArgumentParser:
    common = base.parser("connectors", (__doc__ or "").splitlines()[0])
    kinds = common.add_subparsers(dest="connector", required=True)

    def connector(name: str, start: Start, *arguments: str, **more: Any) -> argparse.ArgumentParser:
        made = kinds.add_parser(name, **more)
        for argument in arguments:
            made.add_argument(argument, type=Path if argument == "directory" else str)
        made.set_defaults(start=start)
        return made

    connector("lines", _lines, "directory", "topic", help="text files into a topic")
    parquet = connector("parquet", _parquet, "topic", "directory", help="a topic into Parquet")
    parquet.add_argument("--schema", default="", help='of JSON values, e.g. "id INT, name STRING"')
    parquet.add_argument("--rows-per-file", type=int, default=500_000)
    parquet.add_argument("--longest-wait", default="15m", help="for so many rows, with --follow")
    table = connector("import", _import, "database", "table", "topic", help="a table into a topic")
    table.add_argument("--cursor", default="id", help="a column whose unique values rise")
    table.add_argument("--key", default="", help="the column of the record's key: the cursor")
    export = connector("export", _export, "topic", "database", "table", help="a topic into a table")
    export.add_argument("--columns", required=True, help="fields of the JSON, with commas")
    connector("search", _search, "topic", "url", "index", help="a topic into a search index")
    return common


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    settings = base.settings(options)

    def run() -> None:
        session = base.session("connectors")
        base.run(settings, [lambda: options.start(session, settings, options)])
        result(settings, options)

    return base.exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
