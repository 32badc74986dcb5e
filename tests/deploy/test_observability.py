"""Dashboards and alerts with Debian's own Prometheus, on a real cluster under load.

Every query of every panel must give data, and every metric that an alert names must be there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import metrics_of
from chaos.process_cluster import ProcessCluster, is_free
from deploy.dashboards import DASHBOARDS, DIRECTORY, of_cluster, render
from stele import Admin, Consumer, Producer, QuotaAlteration

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
QUERIES = sorted(
    {
        of_cluster(query.expression).replace("$cluster", "stele|other")
        for board in DASHBOARDS
        for panel in board.panels
        for query in panel.queries
    }
)
ALERT_QUERIES = re.findall(r"^        expr: (.*)$", RULES.read_text(), re.MULTILINE)
METRIC = re.compile(r"\b((?:stele|process)_[a-z_]+|up)\b(?!\()")
EMPTY_WHILE_ALL_IS_WELL = {"stele_request_failures_total"}
"""Counters by API that appear with the first failure."""

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
    ),
]


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.uid)
def test_the_dashboards_are_up_to_date(board: Any) -> None:
    file = DIRECTORY / f"{board.uid}.json"
    assert file.read_text() == render(board), "run python -m deploy.dashboards"


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=RULES.parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_files_and_the_alerts_fire_when_they_must() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts_test.yml")


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expression.replace("$__rate_interval", "10s")})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            pytest.fail(f"{expression}: {error.read().decode()}")
        return list(told["data"]["result"])

    def is_up(self, nodes: int) -> bool:
        """Whether it has started, and has scraped so many nodes."""
        try:
            urllib.request.urlopen(f"{self._url}/-/ready", timeout=10).close()
        except OSError:
            return False
        return len(self.query("up == 1")) == nodes

    def wait_for_data(self, expression: str, within_s: float) -> list[Any]:
        deadline = time.monotonic() + within_s
        while not (found := self.query(expression)) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found


def keep_busy(bootstrap: str, topic: str, end: threading.Event) -> None:
    """Write and read as a group, so that everything moves."""
    with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, group_id=f"{topic}-group", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic])
        while not end.is_set():
            producer.send(topic, b"x" * 100)
            producer.flush()
            if consumer.poll(timeout_ms=100):
                consumer.commit()


@pytest.fixture(scope="module")
def prometheus(
    process_cluster: ProcessCluster,
    bootstrap: str,
    create_topic: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    targets = [f"127.0.0.1:{node.metrics_port}" for node in process_cluster.nodes.values()]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "stele",
                "static_configs": [{"targets": targets, "labels": {"cluster": "stele"}}],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = next(each for each in range(32_000, 32_700) if is_free(each))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    quota = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
    with Admin(bootstrap) as admin:  # so high that it holds nobody back
        admin.alter_client_quotas([QuotaAlteration({"user": None}, quota)])
    end = threading.Event()
    busy = threading.Thread(target=keep_busy, args=(bootstrap, create_topic(3, 3), end))
    busy.start()
    found = Prometheus(port)
    try:
        deadline = time.monotonic() + 60
        while not found.is_up(len(targets)):
            assert process.poll() is None, "prometheus has ended"
            assert time.monotonic() < deadline, "prometheus does not reach every node"
            time.sleep(0.2)
        yield found
    finally:
        end.set()
        busy.join()
        process.terminate()
        process.wait(30)
        with Admin(bootstrap) as admin:
            admin.alter_client_quotas([QuotaAlteration({"user": None}, dict.fromkeys(quota))])


def test_every_panel_shows_data(prometheus: Prometheus, bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([])  # the controllers have something to do
    empty = [each for each in QUERIES if not prometheus.wait_for_data(each, 30)]
    assert empty == []


def test_every_alert_asks_for_what_is_there(prometheus: Prometheus) -> None:
    assert len(ALERT_QUERIES) == RULES.read_text().count("- alert:")
    for expression in ALERT_QUERIES:
        prometheus.query(expression)
        for metric in set(METRIC.findall(expression)) - EMPTY_WHILE_ALL_IS_WELL:
            assert prometheus.wait_for_data(metric, 10), f"{metric} of {expression}"


def test_the_lag_of_the_group_is_reported(prometheus: Prometheus) -> None:
    (board,) = [each for each in DASHBOARDS if each.uid == "stele-groups"]
    (lag,) = prometheus.wait_for_data(board.panels[0].queries[0].expression, 30)[:1]
    assert float(lag["value"][1]) >= 0
    assert set(lag["metric"]) == {"group", "topic"}


KAFKAS_NAME = re.compile(r"\([\w./, '-]+\)\.?$")
OURS = {
    "stele_revoked_sessions_total",
    "stele_broker_fencings_total", "stele_cleaner_rounds_total", "stele_connection_memory_bytes",
    "stele_connections_closed_total", "stele_connections_refused_by_address",
    "stele_connections_refused_total", "stele_connections_waiting_for_a_turn",
    "stele_connections_waiting_for_memory",
    "stele_event_loop_lag_max_seconds", "stele_event_loop_lag_seconds",
    "stele_event_loop_long_turns_total", "stele_event_loop_turn_max_seconds",
    "stele_group_committed_offset", "stele_group_load_bytes_total",
    "stele_group_load_failures_total", "stele_group_load_records_total",
    "stele_group_load_seconds_total", "stele_group_loads_total", "stele_group_partitions",
    "stele_lag_samples_left_out", "stele_log_directory_free_bytes", "stele_log_directory_full",
    "stele_quorum_elections_total", "stele_refused_producers_total", "stele_replica_moves",
    "stele_request_failures_total",
    "stele_share_dead_letters_total", "stele_share_deliveries_total", "stele_share_full_windows",
    "stele_share_lost_dead_letters_total", "stele_share_partitions",
    "stele_share_redeliveries_total", "stele_share_troubled_dead_letters",
    "stele_share_waiting_dead_letters",
    "stele_thin_streams", "stele_tls_certificate_days_left", "stele_tls_exchange_refused",
    "stele_under_replicated_partitions",
}  # fmt: skip
"""Kafka has nothing of the kind."""
OF_COORDINATORS = ("stele_group_load", "stele_transaction")
"""What the runtime of coordinators counts, which Kafka does not."""


def test_every_help_text_says_what_kafka_calls_it(process_cluster: ProcessCluster) -> None:
    unnamed = set()
    for node in process_cluster.nodes.values():
        assert metrics_of(node)["process_cpu_seconds_total"] > 0
        url = f"http://127.0.0.1:{node.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            if line.startswith("# HELP "):
                _, _, name, text = line.split(" ", 3)
                if not KAFKAS_NAME.search(text):
                    unnamed.add(name)
    assert {each for each in unnamed - OURS if not each.startswith(OF_COORDINATORS)} == set()
