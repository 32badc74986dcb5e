"""One Spark session for all tests of a process."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.maven import Coordinates, MavenError, fetched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_MISSING = shutil.which("java") is None
NEEDS_JAVA = pytest.mark.skipif(JAVA_MISSING, reason="Spark needs Java 17")
HAS_STREAMS = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this PySpark is 4.2 or later: ./scripts/test-pyspark runs these tests with others."""
collect_ignore = (
    []
    if HAS_STREAMS
    else ["test_stream.py", "test_pipelines.py", "test_pipeline_runs.py", "test_connectors.py"]
)

KAFKA_SOURCE = Coordinates("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0")
GATEWAY_WITHIN_S = 120.0
CHEAP = [
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    # Tests run each query once: what the JVM's second compiler and generated code would save later
    # is not earned back.
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.adaptive.enabled=false",
    "spark.sql.streaming.minBatchesToRetain=2",
    "spark.sql.streaming.noDataMicroBatches.enabled=false",
]
"""Settings of Spark's JVM in tests, also in tests that start a JVM of their own."""


@contextmanager
def gateway(directory: Path) -> Iterator[None]:
    """Spark's JVM, for sessions of this process.

    PySpark would fork to start it. That breaks gRPC, which tests may have used before. A process
    that is started here does not run Python between fork and exec.
    """
    import pyspark

    told = directory / "gateway"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = [*(part for each in CHEAP for part in ("--conf", each)), "--driver-memory", "700m"]
    environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
    jvm = subprocess.Popen(
        [submit, *options, "pyspark-shell"], stdin=subprocess.PIPE, env=environment
    )
    try:
        deadline = time.monotonic() + GATEWAY_WITHIN_S
        while not told.exists():
            assert jvm.poll() is None, "Spark's JVM has ended"
            assert time.monotonic() < deadline, "Spark's JVM does not tell its port"
            time.sleep(0.05)
        told_bytes = told.read_bytes()
        port, length = struct.unpack_from(">ii", told_bytes)
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = told_bytes[8 : 8 + length].decode()
        yield
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
        assert jvm.stdin is not None
        jvm.stdin.close()  # it ends then
        jvm.wait(60)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Skipped without Java. The data source is registered."""
    if JAVA_MISSING:
        pytest.skip("Spark needs Java 17")
    from pyspark.sql import SparkSession

    import stele.spark

    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    handler = signal.getsignal(signal.SIGINT)
    with gateway(warehouse):
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.sql.warehouse.dir", str(warehouse))
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        # PySpark's own handler would stay for all later tests of this process.
        signal.signal(signal.SIGINT, handler)
        session.sparkContext.setLogLevel("OFF")
        stele.spark.register(session)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def kafka_source(spark: SparkSession) -> None:
    """Spark's own source and sink for Kafka, which is Kafka's client in Java."""
    try:
        folder = fetched(f"spark-kafka-{KAFKA_SOURCE.version}", [KAFKA_SOURCE])
    except MavenError as error:
        pytest.skip(str(error))
    for name in ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"):
        (jar,) = folder.glob(f"{name}*.jar")
        spark.sql(f"ADD JAR '{jar}'")
