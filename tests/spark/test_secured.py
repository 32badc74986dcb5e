"""Spark on a secure cluster: a job logs in over TLS, and may do what the page allows it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster_security import ADMIN, MECHANISM
from chaos.process_cluster import ProcessCluster
from cli import main
from stele import Acl, Admin, Consumer, NewTopic, Producer, ScramUpsertion, TopicPartition
from stele.properties import format_properties
from stele.security.properties import login_properties
from stele.spark.exactly_once_sink import ExactlyOnceWriter, WriteError
from stele.spark.options import SinkOptions
from stele.spark.rows import RowShape
from tests.spark.conftest import HAS_STREAMS, NEEDS_JAVA
from tests.spark.test_exactly_once import VALUES, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.processes

PAGE = Path(__file__).resolve().parents[2] / "docs/spark.md"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.two.phase.commit.enable": "true",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER = "copy-job"
"""Of the page, as the topics ``orders`` and ``copies`` are."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    made = ProcessCluster(
        tmp_path_factory.mktemp("secure"),
        controllers=1,
        brokers=1,
        settings=SETTINGS,
        is_secure=True,
    )
    asyncio.run(made.start())
    with administrator(made) as admin:
        admin.create_topics([NewTopic("orders", 2, 1), NewTopic("copies", 2, 1)])
    yield made
    asyncio.run(made.stop())


@pytest.fixture
def password(cluster: ProcessCluster) -> str:
    """Of the user of the page, who has the rules of the page."""
    made = uuid.uuid4().hex
    with administrator(cluster) as admin:
        admin.alter_user_scram_credentials([ScramUpsertion(USER, made)])
    config = str(cluster.security.client_file(ADMIN))
    (block,) = re.findall(r"^```sh rules\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        command = [*shlex.split(line, comments=True)[1:], "-b", cluster.bootstrap_servers]
        assert main.run([*command, "--command-config", config]) == 0
    return made


def administrator(cluster: ProcessCluster) -> Admin:
    return Admin(cluster.bootstrap_servers, **cluster.security.of_user(ADMIN))


def options(cluster: ProcessCluster, user: str, password: str) -> dict[str, str]:
    """What the source and the sink need to come in."""
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.certificates": cluster.security.certificates.truststore.read_text(),
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.username": user,
        "kafka.sasl.password": password,
    }


@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
def test_a_stream_copies_a_topic_exactly_once_with_the_rules_of_the_page(
    spark: SparkSession, cluster: ProcessCluster, password: str, tmp_path: Path
) -> None:
    as_admin = cluster.security.of_user(ADMIN)
    sent = [b"%d" % number for number in range(20)]
    with Producer(cluster.bootstrap_servers, **as_admin) as producer:
        for value in sent:
            producer.send("orders", value)
    given = options(cluster, USER, password)
    stream = spark.readStream.format("stele").options(**given, startingOffsets="earliest")
    writer = stream.option("subscribe", "orders").load().selectExpr("key", "value").writeStream
    writer = writer.format("stele").options(**given, topic="copies")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    found: list[bytes | None] = []
    with Consumer(
        cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **as_admin,
    ) as consumer:
        consumer.assign([TopicPartition("copies", each) for each in range(2)])
        while len(found) < len(sent):
            found += [each.value for each in consumer.poll(timeout_ms=1000)]
    assert sorted(found, key=lambda value: int(value or b"-1")) == sent


def test_the_client_in_java_logs_in_over_tls(
    spark: SparkSession, kafka_source: None, cluster: ProcessCluster, password: str
) -> None:
    given = options(cluster, USER, password)
    del given["kafka.sasl.username"], given["kafka.sasl.password"]
    given |= {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.jaas.config": f"{SCRAM} required username='{USER}' password='{password}';",
    }
    values = [f"java {number}" for number in range(20)]
    frame = spark.createDataFrame([(each,) for each in values], ["value"])
    frame.write.format("kafka").options(**given, topic="copies").mode("append").save()
    with administrator(cluster) as admin:
        admin.create_acls([Acl(f"User:{USER}", "READ", "TOPIC", "copies")])
    read = spark.read.format("kafka").options(**given, subscribe="copies").load()
    found = [bytes(row.value).decode() for row in read.select("value").collect()]
    assert sorted(each for each in found if each in values) == sorted(values)


def test_the_error_names_the_permission_to_prepare_transactions(
    cluster: ProcessCluster, password: str
) -> None:
    administration = ["-b", cluster.bootstrap_servers]
    administration += ["--command-config", str(cluster.security.client_file(ADMIN))]
    writer = batch_writer(cluster, password, number=1)
    (written,) = [writer.write(rows("x"))]
    writer.commit([written])  # with the rules of the page
    forbidden = [f"User:{USER}", "TWO_PHASE_COMMIT", "transactional-id:*"]
    assert main.run(["acls", "add", *forbidden, "--deny", *administration]) == 0
    said = "allow the user WRITE and TWO_PHASE_COMMIT on transactional ids .*'spark/spark-ledger/'"
    with pytest.raises(WriteError, match=said):
        batch_writer(cluster, password, number=2).write(rows("x"))
    assert main.run(["acls", "remove", "--principal", f"User:{USER}", *administration]) == 0


def batch_writer(cluster: ProcessCluster, password: str, *, number: int) -> ExactlyOnceWriter:
    """One as Spark makes it for a batch write, here without Spark."""
    given = options(cluster, USER, password)
    given["bootstrap.servers"] = given.pop("kafka.bootstrap.servers")
    given |= {"topic": "copies", "txnAppId": "rules", "txnVersion": str(number)}
    return ExactlyOnceWriter(SinkOptions.parse(given), RowShape.of(VALUES, "copies"))


@NEEDS_JAVA
def test_the_job_of_the_page(cluster: ProcessCluster, password: str, tmp_path: Path) -> None:
    (job,) = re.findall(
        r"^```python copy-job\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    truststore = str(cluster.security.certificates.truststore)
    properties = {"security.protocol": "SASL_SSL", "ssl.truststore.location": truststore}
    properties |= login_properties(USER, password, MECHANISM)
    (tmp_path / "copy-job.properties").write_text(format_properties(properties))
    value = uuid.uuid4().bytes
    as_admin = cluster.security.of_user(ADMIN)
    with Producer(cluster.bootstrap_servers, **as_admin) as producer:
        producer.send("orders", value)
    # A session of this process has left where its JVM is. The job begins with one of its own.
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    environment = {
        **own,
        "PYTHONPATH": str(PAGE.parents[1]),
        "STELE_BOOTSTRAP_SERVER": cluster.bootstrap_servers,
    }
    ended = subprocess.run(
        [sys.executable, "-c", job], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    with Consumer(
        cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **as_admin,
    ) as consumer:
        consumer.assign([TopicPartition("copies", each) for each in range(2)])
        found = [each.value for _ in range(10) for each in consumer.poll(timeout_ms=1000)]
    assert found.count(value) == 1
