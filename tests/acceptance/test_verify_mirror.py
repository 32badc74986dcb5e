"""``stele verify mirror`` between topics of one cluster, which stands for two."""

from __future__ import annotations

import json
import socket

import pytest

from cli import main
from stele import Admin, NewTopic, Producer

pytestmark = pytest.mark.processes


@pytest.fixture
def mirrored(bootstrap: str) -> str:
    """A topic of two partitions and its mirror ``kafka.mirrored``, whose offsets differ."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1) for name in ("mirrored", "kafka.mirrored")])
    with Producer(bootstrap) as producer:
        producer.send("kafka.mirrored", b"before the mirror", partition=0).result()
    with Admin(bootstrap) as admin:
        admin.delete_records({("kafka.mirrored", 0): 1})
    with Producer(bootstrap) as producer:
        for topic in ("mirrored", "kafka.mirrored"):
            for number in range(2_500):
                producer.send(
                    topic, b"%d" % number, b"key", {"n": b"1"}, timestamp_ms=number, partition=0
                )
        producer.flush()
    return bootstrap


def test_what_is_missing_too_much_or_other_is_told(
    mirrored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def verified() -> tuple[int, list[dict[str, object]]]:
        command = ["verify", "mirror", "mirrored", "--source", mirrored, "--target", mirrored]
        code = main.run([*command, "--prefix", "kafka.", "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, (first, second) = verified()
    assert (code, first["same"], first["missing"], first["surplus"]) == (0, 2_500, 0, 0)
    assert second["same"] == 0
    with Producer(mirrored) as producer:
        producer.send("mirrored", b"late", partition=1).result()
        producer.send("kafka.mirrored", b"other", partition=0, timestamp_ms=1).result()
    code, (first, second) = verified()
    assert (code, first["surplus"], second["missing"]) == (3, 1, 1)
    with Producer(mirrored) as producer:
        producer.send("mirrored", b"another", partition=0, timestamp_ms=1).result()
    code, (first, _) = verified()
    assert code == 3
    assert first["difference"] == {
        "source_offset": 2_500,
        "target_offset": 2_501,
        "fields": ["value"],
    }


def test_a_mirror_with_fewer_partitions_is_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("wide", 2, 1), NewTopic("m.wide", 1, 1)])
    command = ["verify", "mirror", "wide", "--source", bootstrap, "--target", bootstrap]
    assert main.run([*command, "--prefix", "m."]) == 1
    told = "topic 'wide' has 2 partitions, and 'm.wide' in the target has 1"
    assert told in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_named(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        command = ["verify", "mirror", "t", "--timeout", "1"]
        assert main.run([*command, "--source", nobody, "--target", bootstrap]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("stele: ")
    assert nobody in told
