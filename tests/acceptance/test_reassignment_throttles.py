"""A move by command that is throttled, then gets a higher rate, and whose throttles are removed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from chaos.process_cluster import ProcessCluster
from cli.reassignment_throttles import FETCHING, RATES, SENDING
from stele.sync import Admin, Producer

pytestmark = pytest.mark.processes

SLOW, FAST = 1_000, 100_000_000


class Mover:
    """Moves partition 0 of a topic to a broker that it is not on, by command."""

    def __init__(self, cluster: ProcessCluster, topic: str, plan: Path) -> None:
        self._servers = cluster.bootstrap_servers
        self.topic, self._plan = topic, plan
        with Admin(self._servers) as admin:
            (self.source,) = admin.describe_topics([topic])[0].partitions[0].replicas
        self.target = next(each for each in cluster.broker_ids if each != self.source)
        entry = {"topic": topic, "partition": 0, "replicas": [self.target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    def reassign(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli.main", "reassign", verb, "-f", str(self._plan)]
        return subprocess.run(
            [*command, *options, "-b", self._servers], capture_output=True, text=True, timeout=60
        )

    def execute(self, rate: int, *options: str) -> None:
        done = self.reassign("execute", "--throttle", str(rate), *options)
        assert done.returncode == 0, done
        assert "it removes the throttles" in done.stderr
        self.until_rates({str(rate)})

    def until_verified(self) -> None:
        deadline = time.monotonic() + 60
        while (done := self.reassign("verify")).returncode:
            assert "in progress" in done.stdout, done
            assert time.monotonic() < deadline

    def until_rates(self, wanted: set[str]) -> None:
        """Wait until each broker reports its own rate."""
        deadline = time.monotonic() + 30
        while (found := self.rates()) != wanted:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def rates(self) -> set[str]:
        """The rates of source and target, if they are set."""
        client = AdminClient({"bootstrap.servers": self._servers})
        found = set()
        for broker in (self.source, self.target):
            asked = [ConfigResource(ResourceType.BROKER, str(broker))]
            (answer,) = client.describe_configs(asked).values()
            found |= {
                entry.value
                for entry in answer.result(30).values()
                if entry.name in RATES and entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
            }
        return found

    def lists(self) -> dict[str, str]:
        with Admin(self._servers) as admin:
            configs = admin.describe_topics([self.topic])[0].configs
        return {name: configs[name] for name in (SENDING, FETCHING) if name in configs}


@pytest.fixture
def mover(
    process_cluster: ProcessCluster, create_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Mover]:
    topic = create_topic(1, 1, min_insync_replicas="1")
    with Producer(process_cluster.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send(topic, b"v" * 20_000)
    mover = Mover(process_cluster, topic, tmp_path / "plan.json")
    yield mover
    mover.reassign("cancel")


def test_a_throttled_move_takes_a_higher_rate_and_verify_lifts_it(mover: Mover) -> None:
    mover.execute(SLOW)
    assert mover.lists() == {SENDING: f"0:{mover.source}", FETCHING: f"0:{mover.target}"}
    early = mover.reassign("verify")
    assert early.returncode == 1
    assert "in progress" in early.stdout
    assert mover.rates() == {str(SLOW)}, "only what is completed needs none"

    mover.execute(FAST, "--additional")
    mover.until_verified()
    assert mover.lists() == {}
    mover.until_rates(set())


def test_cancel_lifts_a_throttle_unless_it_is_to_stay(mover: Mover) -> None:
    mover.execute(SLOW)
    kept = mover.reassign("cancel", "--preserve-throttles")
    assert kept.returncode == 0, kept
    assert mover.rates() == {str(SLOW)}
    lifted = mover.reassign("cancel")
    assert f"topic {mover.topic} is throttled no more" in lifted.stderr
    assert mover.lists() == {}
    mover.until_rates(set())


def test_a_move_that_paces_itself_ends_with_the_throttles_as_they_were(
    mover: Mover, process_cluster: ProcessCluster
) -> None:
    nodes = [process_cluster.nodes[each] for each in process_cluster.broker_ids]
    servers = ",".join(f"127.0.0.1:{node.metrics_port}" for node in nodes)
    done = mover.reassign("execute", "--throttle", "auto", "--metrics-servers", servers)
    assert done.returncode == 0, done
    assert "each broker moves at most 4 MiB/s" in done.stderr
    assert "the throttles are as before the move" in done.stderr
    assert "in progress" not in mover.reassign("verify", "--preserve-throttles").stdout
    assert mover.lists() == {}
    mover.until_rates(set())
