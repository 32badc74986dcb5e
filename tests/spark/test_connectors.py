"""Connectors with a real cluster, a real Spark, SQLite and an HTTP server."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pyspark.sql import Row

from spark.pipelines import base, connectors, file_connectors, search_connector, table_connectors
from spark.pipelines.search_connector import RefusedDocumentError
from spark.pipelines.table_connectors import Database, TableSource
from stele import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes

APACHE = Path(__file__).resolve().parents[3] / "shared" / "data" / "loghub" / "Apache.log"


@pytest.fixture
def connect(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Callable[..., base.Settings]:
    """Run a connector as its command line does."""

    def run(prefix: str, *arguments: str) -> base.Settings:
        common = ["--bootstrap-server", bootstrap, "--prefix", prefix, "--at-least-once"]
        common += ["--checkpoints", str(tmp_path / "checkpoints")]
        options = connectors.parser().parse_args([*common, *arguments])
        settings = base.settings(options)
        base.run(settings, [lambda: options.start(spark, settings, options)], lambda line: None)
        connectors.result(settings, options)
        return settings

    return run


# ---------------------------------------------------------------------------------- files


@pytest.mark.skipif(not APACHE.exists(), reason=f"{APACHE} is not here")
def test_lines_of_files_come_into_a_topic_and_from_there_into_parquet_once(
    spark: SparkSession,
    connect: Callable[..., base.Settings],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inbox, outbox = tmp_path / "inbox", tmp_path / "outbox"
    inbox.mkdir()
    lines = APACHE.read_text().splitlines()
    (inbox / "apache.log").write_text("\n".join(lines[:1_500]) + "\n")
    connect("files-", "lines", str(inbox), "lines")
    parquet = ("parquet", "lines", str(outbox), "--rows-per-file", "1000")
    connect("files-", *parquet)
    (inbox / "later.log").write_text("\n".join(lines[1_500:]) + "\n")
    connect("files-", "lines", str(inbox), "lines")
    connect("files-", *parquet)
    rows = spark.read.parquet(str(outbox)).collect()
    assert sorted(bytes(row.value).decode() for row in rows) == sorted(lines)
    assert {bytes(row.key) for row in rows} == {b"apache.log", b"later.log"}
    assert len({(row.partition, row.offset) for row in rows}) == len(lines)
    assert sum(files for _, files, _ in file_connectors.sizes(outbox)) == 3  # 1000, 500, 500
    assert "day         files" in capsys.readouterr().out


def test_files_keep_their_schema_and_what_does_not_fit_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = file_connectors.kept_schema(tmp_path, "id INT, name STRING")
    wider = file_connectors.kept_schema(tmp_path, "name STRING, price DOUBLE")
    assert first.names == ["id", "name"]
    assert wider.names == ["id", "name", "price"]
    with pytest.raises(base.PipelineError, match="is int, not string"):
        file_connectors.kept_schema(tmp_path, "id STRING")
    with pytest.raises(base.PipelineError, match="have a column offset of their own"):
        file_connectors.kept_schema(tmp_path, "offset INT")
    records = spark.sql(
        """select encode(key, 'utf-8') as key, encode(value, 'utf-8') as value, 't' as topic,
                  0 as partition, 0L as offset, timestamp'2026-01-01' as timestamp
           from values ('a', '{"id": 1, "name": "x", "price": 0.5}'), ('b', '{"id": "no"}'),
                       ('c', null) as t(key, value)"""
    )
    found = file_connectors.as_columns(records, wider).collect()
    assert [(row["_key"], row.id, row.price, row["_unreadable"]) for row in found] == [
        ("a", 1, 0.5, None),
        ("b", None, None, '{"id": "no"}'),
        ("c", None, None, None),
    ]


# --------------------------------------------------------------------------------- tables


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("create table items (id integer primary key, name text, price real)")
        database.execute("create table copies (key text primary key, name text, price real)")
        database.executemany(
            "insert into items (name, price) values (?, ?)", [("mug", 1.5), ("clock", 20)]
        )
    database.close()
    return path


def table(path: Path, query: str) -> list[Any]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_a_table_becomes_a_topic_and_a_topic_becomes_a_table(
    connect: Callable[..., base.Settings], shop: Path, bootstrap: str
) -> None:
    address = f"sqlite:{shop}"
    to_topic = ("import", address, "items", "items")
    to_table = ("export", "items", address, "copies", "--columns", "name,price")
    settings = connect("table-", *to_topic)
    with Producer(bootstrap) as producer:
        producer.send(settings.topic("items"), b'{"name": "vase", "price": 3}', b"77")
    connect("table-", *to_table)
    assert table(shop, "select * from copies order by key") == [
        ("1", "mug", 1.5), ("2", "clock", 20.0), ("77", "vase", 3.0),
    ]  # fmt: skip
    with sqlite3.connect(shop) as database:
        database.execute("insert into items (name, price) values ('bell', 2)")
    database.close()
    connect("table-", *to_topic)
    with Producer(bootstrap) as producer:
        producer.send(settings.topic("items"), None, b"77")
    connect("table-", *to_table)
    assert table(shop, "select key, name from copies order by key") == [
        ("1", "mug"), ("2", "clock"), ("3", "bell"),
    ]  # fmt: skip


def test_rows_of_a_table_are_read_again_as_before(shop: Path) -> None:
    options = {"database": f"sqlite:{shop}", "table": "items", "cursor": "id", "key": "name"}
    reader = TableSource({**options, "rows": "1"}).simpleStreamReader(None)
    begin = reader.initialOffset()
    rows, first = reader.read(begin)
    assert [json.loads(value) for _, value in rows] == [{"id": 1, "name": "mug", "price": 1.5}]
    rows, second = reader.read(first)
    assert (list(rows)[0][0], second) == ("clock", {"after": 2})  # noqa: RUF015
    assert reader.read(second)[1] == second
    assert [key for key, _ in reader.readBetweenOffsets(begin, second)] == ["mug", "clock"]


def test_a_batch_of_a_table_is_stored_once(shop: Path) -> None:
    def put(batch: int, *rows: Row) -> None:
        database = Database(f"sqlite:{shop}")
        table_connectors.store(database, "copies", ["name"], "q", batch, iter(rows))

    put(0, Row(key="a", is_deleted=False, row=Row(name="x")))
    put(0, Row(key="a", is_deleted=False, row=Row(name="again")))
    assert table(shop, "select key, name from copies") == [("a", "x")]
    with pytest.raises(sqlite3.Error):  # the batch is undone as a whole
        put(1, Row(key="a", is_deleted=True, row=None), Row(key=[], is_deleted=True, row=None))
    assert table(shop, "select key, name from copies") == [("a", "x")]
    put(1, Row(key="a", is_deleted=True, row=None))
    assert table(shop, "select key, name from copies") == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("shop.db", "a database is sqlite:PATH or MODULE:ADDRESS"),
        ("no_such_module:x", "the database module 'no_such_module'"),
    ],
)
def test_databases_that_cannot_be_used_are_reported(address: str, words: str) -> None:
    with pytest.raises(base.PipelineError, match=words):
        Database(address)
    with pytest.raises(base.PipelineError, match="is no name of a table"):
        table_connectors.checked("items; drop table items")


# --------------------------------------------------------------------------------- search


class Index(BaseHTTPRequestHandler):
    """As much of a search index as the bulk API needs: documents with versions."""

    documents: ClassVar[dict[str, tuple[int, Any]]] = {}
    refusals: ClassVar[list[int]] = []  # statuses for the next requests
    item_refusals: ClassVar[list[int]] = []  # statuses for the next items

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.refusals:
            self.send_error(self.refusals.pop(0))
            return
        assert self.path == "/base/_bulk"
        lines = iter(body.decode().split("\n")[:-1])
        answer = json.dumps({"items": [self._item(json.loads(line), lines) for line in lines]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.encode())

    def _item(self, action: dict[str, Any], lines: Iterator[str]) -> dict[str, Any]:
        ((kind, place),) = action.items()
        document = json.loads(next(lines)) if kind == "index" else None
        status, name = 200, place["_id"]
        if self.item_refusals:
            status = self.item_refusals.pop(0)
        elif place["version"] < self.documents.get(name, (-1, None))[0]:
            status = 409
        else:
            self.documents[name] = (place["version"], document)
        return {kind: {"_id": name, "status": status, "error": "no such field"}}

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def index() -> Iterator[str]:
    Index.documents.clear()
    Index.refusals.clear()
    Index.item_refusals.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/base/"
    server.shutdown()
    server.server_close()
    thread.join()


def action(kind: str, name: str, version: int, document: str = "") -> str:
    place = {"_index": "i", "_id": name, "version": version, "version_type": "external_gte"}
    line = json.dumps({kind: place})
    return f"{line}\n{document}" if document else line


def test_documents_are_sent_until_the_index_has_taken_them(index: str) -> None:
    Index.refusals.extend([503, 429])
    Index.item_refusals.append(429)
    lines = [action("index", "a", 1, '{"x": 1}'), action("index", "b", 2, '{"x": 2}')]
    search_connector.send_all(index, lines)
    search_connector.send_all(index, [action("index", "a", 0, '{"x": 0}')])  # an earlier version
    search_connector.send_all(index, [action("delete", "b", 3)])
    assert Index.documents == {"a": (1, {"x": 1}), "b": (3, None)}
    Index.item_refusals.append(400)
    with pytest.raises(RefusedDocumentError, match="document 'a': 400 no such field"):
        search_connector.send_all(index, lines)
    Index.refusals.append(401)
    with pytest.raises(RefusedDocumentError, match="_bulk answers 401"):
        search_connector.send_all(index, lines)


def test_a_topic_becomes_a_search_index(
    connect: Callable[..., base.Settings],
    bootstrap: str,
    create_topic: Callable[..., str],
    index: str,
) -> None:
    topic = create_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b'{"x":\n 1}', b"a")
        producer.send(topic, b'{"x": 2}', b"a")
        producer.send(topic, b'{"x": 3}')
        producer.send(topic, None, b"gone")
    connect("", "search", topic, index, "documents")
    assert Index.documents == {
        "a": (1, {"x": 2}), f"{topic}-0-2": (2, {"x": 3}), "gone": (3, None),
    }  # fmt: skip
