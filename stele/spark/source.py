"""The PySpark data source ``stele``.

The driver's processes turn the options into offset ranges. Each Spark task reads one range with a
consumer of its own and passes it to Spark as Arrow batches. The client is imported only where it
runs: Spark forks its Python workers, and an Admin's gRPC must not be loaded before a fork.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from stele.spark.option_error import OptionError
from stele.spark.options import SinkOptions, SourceOptions
from stele.spark.refused import RefusedStreamReader
from stele.spark.rows import RowShape

log = logging.getLogger(__name__)

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
BATCHES_NEED, STREAMS_NEED = (4, 1), (4, 2)
"""The oldest PySpark with filters and Arrow writers, and the oldest with limits for the batches of
Python streams."""


class SteleDataSource(DataSource):
    """``session.read.format("stele")`` and its like. See ``options`` for the options.

    Spark makes an object for each kind of use and asks it for what it needs. So options are checked
    only when something is asked for: a write has other options than a read.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "stele"

    def schema(self) -> str:
        wants_headers = self._given.get("includeheaders", "false")
        return SCHEMA + (_HEADERS if wants_headers.strip().lower() == "true" else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        from stele.spark.batch import SteleReader

        options = SourceOptions.parse(self._given)
        say_ignored(options.ignored)
        return SteleReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            check_version(STREAMS_NEED)
            from stele.spark.stream import SteleStreamReader

            options = SourceOptions.parse(self._given, is_stream=True)
            say_ignored(options.ignored)
            return SteleStreamReader(options)
        except (OptionError, ImportError) as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from stele.spark.exactly_once_sink import ExactlyOnceWriter
        from stele.spark.plain_sink import PlainWriter

        options, shape = self._sink(schema, overwrite)
        return (ExactlyOnceWriter if options.exactly_once else PlainWriter)(options, shape)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from stele.spark.exactly_once_sink import ExactlyOnceStreamWriter
        from stele.spark.plain_sink import PlainStreamWriter

        # ``overwrite`` says that the output mode is "complete": each batch is the whole result.
        options, shape = self._sink(schema, overwrite=False)
        if options.exactly_once:
            return ExactlyOnceStreamWriter(options, shape)
        return PlainStreamWriter(options, shape)

    def _sink(self, schema: StructType, overwrite: bool) -> tuple[SinkOptions, RowShape]:
        options = SinkOptions.parse(self._given)
        say_ignored(options.ignored)
        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        return options, RowShape.of(schema, options.topic)


def say_ignored(options: Sequence[str]) -> None:
    if options:
        log.warning("options without an effect in format stele: %s", ", ".join(options))


def check_version(least: tuple[int, int]) -> None:
    """Raises ImportError for an older PySpark."""
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < least:
        what = "streams of format stele need" if least == STREAMS_NEED else "stele.spark needs"
        raise ImportError(
            f"{what} PySpark {least[0]}.{least[1]} or later, and this is {pyspark.__version__}: "
            f"pip install 'pyspark>={least[0]}.{least[1]}'"
        )


def register(session: SparkSession) -> None:
    """Make ``format("stele")`` available in a session, and let Spark push filters down to it.
    Raises ImportError if PySpark is too old."""
    check_version(BATCHES_NEED)
    session.conf.set(_PUSHDOWN, "true")
    session.dataSource.register(SteleDataSource)
