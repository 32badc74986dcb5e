"""A topic into a search index, by the bulk API of Elasticsearch and OpenSearch over HTTP."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import base

_BULK_BYTES = 4 * 1024 * 1024
_BUSY = (429, 502, 503, 504)
_PATIENCE_S = 60.0


class RefusedDocumentError(Exception):
    """The index refused documents for good. Spark fails the batch, and runs it again later."""


def topic_to_search(
    session: SparkSession, settings: base.Settings, topic: str, url: str, index: str
) -> StreamingQuery:
    """Index the value of each record, which is JSON, under its key, or its place if it has none. A
    tombstone deletes. Documents have the record's offset as their version, so a batch that is
    repeated, or comes late, changes nothing."""
    records = base.stream_of(session, settings, topic)

    def write(changed: DataFrame, _: int) -> None:
        actions(changed, index).foreachPartition(lambda rows: send_all(url, (r[0] for r in rows)))

    return base.for_each_batch(records, settings, f"search-{topic}", write)


def actions(records: DataFrame, index: str) -> DataFrame:
    """The lines of the bulk request for each record: an action, and the document. Of a key's
    records only the last counts."""
    place = fn.concat_ws("-", "topic", "partition", "offset")
    name = fn.coalesce(fn.col("key").cast("string"), place)
    last = (
        records.withColumn("id", name)
        .groupBy("id")
        .agg(fn.max_by(fn.struct("value", "offset"), "offset").alias("last"))
    )
    is_put = fn.col("last.value").isNotNull()
    fields: list[Column] = [
        fn.lit(index).alias("_index"),
        fn.col("id").alias("_id"),
        fn.col("last.offset").alias("version"),
        fn.lit("external_gte").alias("version_type"),
    ]
    action = fn.struct(*fields)
    put = fn.concat_ws(
        "\n",
        fn.to_json(fn.struct(action.alias("index"))),
        # One line: a document with line breaks would end its own line.
        fn.regexp_replace(fn.col("last.value").cast("string"), "[\r\n]+", " "),
    )
    delete = fn.to_json(fn.struct(action.alias("delete")))
    return last.select(fn.when(is_put, put).otherwise(delete).alias("lines"))


def send_all(url: str, lines: Iterable[str]) -> None:
    """Send the actions in requests of some megabytes. Raises RefusedDocumentError."""
    for body in _bodies(lines):
        _send(url, body)


def _bodies(lines: Iterable[str]) -> Iterator[list[bytes]]:
    waiting: list[bytes] = []
    size = 0
    for each in lines:
        encoded = each.encode() + b"\n"
        if waiting and size + len(encoded) > _BULK_BYTES:
            yield waiting
            waiting, size = [], 0
        waiting.append(encoded)
        size += len(encoded)
    if waiting:
        yield waiting


def _send(url: str, entries: list[bytes]) -> None:
    """Send actions until all are done. Busy indexes are asked again, for a minute at most."""
    deadline, pause_s = time.monotonic() + _PATIENCE_S, 0.1
    while entries:
        try:
            items = _post(url, b"".join(entries))
            left = [entries[n] for n, item in enumerate(items) if _is_busy(item)]
            reason = "the index is busy"
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            left, reason = entries, str(error)
        if not left:
            return
        if time.monotonic() + pause_s > deadline:
            raise RefusedDocumentError(
                f"{len(left)} documents were not taken within {_PATIENCE_S} s: {reason}"
            )
        time.sleep(pause_s)
        entries, pause_s = left, min(2 * pause_s, 5.0)


def _is_busy(item: dict[str, Any]) -> bool:
    """Whether the action is to be repeated. Raises RefusedDocumentError if it is of no use."""
    (answer,) = item.values()
    status = answer["status"]
    if status < 300 or status == 409 or (status == 404 and "delete" in item):
        return False  # done; there is a later version; it was not there
    if status in _BUSY:
        return True
    raise RefusedDocumentError(f"document {answer.get('_id')!r}: {status} {answer.get('error')}")


def _post(url: str, body: bytes) -> list[dict[str, Any]]:
    """The items of the answer. Raises RefusedDocumentError, URLError if it may be tried again."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname + (f":{parts.port}" if parts.port else "") if parts.hostname else ""
    address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/_bulk"
    headers = {"Content-Type": "application/x-ndjson"}
    if parts.username:
        secret = f"{parts.username}:{parts.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
    except urllib.error.HTTPError as error:
        if error.code in _BUSY:
            raise urllib.error.URLError(f"{error.code} {error.reason}") from None
        raise RefusedDocumentError(f"{address} answers {error.code} {error.reason}") from None
    return items
