"""A standalone cluster of Spark: a master and workers as processes on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

READY_WITHIN_S = 120.0
JOB_WITHIN_S = 240.0
_BIN = Path(pyspark.__file__).parent / "bin"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CHEAP_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def environment(**more: str) -> dict[str, str]:
    """Without the JVM of the tests' session, and on loopback."""
    own = {name: value for name, value in os.environ.items() if "PYSPARK_GATEWAY" not in name}
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def spark_cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master that knows its workers, each with one core."""
    daemon = environment(
        SPARK_DAEMON_MEMORY="128m", SPARK_DAEMON_JAVA_OPTS=_CHEAP_JVM, SPARK_NO_DAEMONIZE="1"
    )
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [_BIN / "spark-class", *command], stdout=output, stderr=output, env=daemon
                )
            )
        return log

    try:
        master_log = start(
            "master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        master = _found(master_log, r"Starting Spark master at (spark://\S+)", processes)
        for number in range(workers):
            work = ["--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"w{number}")]
            start(
                f"worker-{number}",
                _WORKER,
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                *work,
                master,
            )
        for number in range(workers):
            _found(directory / f"worker-{number}.log", r"(Successfully registered)", processes)
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


def _found(log: Path, pattern: str, processes: list[subprocess.Popen[bytes]]) -> str:
    """The text that the log has at last."""
    deadline = time.monotonic() + READY_WITHIN_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert all(process.poll() is None for process in processes), log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return found[1]


def submit(
    master: str, job: Path, arguments: list[str], conf: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a job with ``spark-submit``. Its executors run this Python, unless ``conf`` says else."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": _CHEAP_JVM,
        "spark.executor.extraJavaOptions": _CHEAP_JVM,
        "spark.executor.memory": "500m",
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        **(conf or {}),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    root = Path(__file__).parents[2]
    return subprocess.run(
        [_BIN / "spark-submit", "--master", master, *options, job, *arguments],
        capture_output=True,
        text=True,
        timeout=JOB_WITHIN_S,
        check=False,
        cwd=root,
        env=environment(PYTHONPATH=str(root)),
    )
