"""Programs that run on Kafka: Streams, Connect, MirrorMaker."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from bench.ecosystem.stage import PROGRAMS, Stage, same

_COUNT: Final = 10_000
_KEYS: Final = 10
_STREAMS_PROGRAM: Final = PROGRAMS / "RunningCounts.java"


def streams(stage: Stage) -> str:
    """Kafka Streams with exactly_once_v2 and a state store, killed -9 in the middle."""
    stage.make_topics("streams-in", "streams-out")
    stage.write("streams-in", _COUNT, _KEYS)
    state = stage.directory / "streams-state"
    command = stage.java_command(str(_STREAMS_PROGRAM), stage.servers, str(state))
    first = stage.start(command, "streams.log")
    stage.wait_for("the first results of Kafka Streams", lambda: bool(stage.read("streams-out")))
    stage.write("streams-in", _COUNT, _KEYS)
    first.kill()
    first.wait()
    stage.running.remove(first)
    before = len(stage.read("streams-out"))
    stage.start(command, "streams.log")
    stage.wait_for(
        "all results of Kafka Streams", lambda: len(stage.read("streams-out")) >= 2 * _COUNT
    )
    stage.stop_all()
    counts: dict[bytes, list[int]] = {}
    for record in stage.read("streams-out"):
        counts.setdefault(record.key or b"", []).append(int(record.value or b""))
    expected = {b"k%d" % key: list(range(1, 2 * _COUNT // _KEYS + 1)) for key in range(_KEYS)}
    same(counts, expected, "counts by key")
    return f"{2 * _COUNT} records, killed -9 after {before} results: each counted once, in order"


def connect(stage: Stage) -> str:
    """Kafka Connect: a standalone worker with the file source and the file sink."""
    stage.make_topics("connect-lines", partitions=1)
    source, sink = stage.directory / "connect-in.txt", stage.directory / "connect-out.txt"
    lines = [f"line {number}" for number in range(_COUNT)]
    source.write_text("".join(f"{line}\n" for line in lines))
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": stage.servers,
        "key.converter": text,
        "value.converter": text,
        "offset.storage.file.filename": stage.directory / "connect.offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": "http://127.0.0.1:0",
    }
    read = {"name": "lines-in", "connector.class": "FileStreamSource", "file": source}
    written = {"name": "lines-out", "connector.class": "FileStreamSink", "file": sink}
    command = stage.java_command(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        stage.properties("worker.properties", worker),
        stage.properties("source.properties", {**read, "topic": "connect-lines"}),
        stage.properties("sink.properties", {**written, "topics": "connect-lines"}),
    )
    stage.start(command, "connect.log")
    stage.wait_for(
        "the lines of the sink",
        lambda: sink.exists() and sink.read_text().count("\n") >= _COUNT,
    )
    same(sink.read_text().splitlines(), lines, "the lines of the sink")
    with source.open("a") as more:
        more.write("one more\n")
    stage.wait_for("a line that came later", lambda: sink.read_text().endswith("one more\n"))
    stage.stop_all()
    values = [record.value for record in stage.read("connect-lines")]
    same(values, [line.encode() for line in [*lines, "one more"]], "the records of the topic")
    return f"{_COUNT + 1} lines from a file through a topic into a file, the same and in order"


def mirror_maker(stage: Stage) -> str:
    """MirrorMaker 2 with Stele as source and as target; checked by stele verify mirror."""
    stage.make_topics("mirrored")
    stage.write("mirrored", _COUNT)
    settings: dict[str, object] = {
        "clusters": "here,there",
        "here.bootstrap.servers": stage.servers,
        "there.bootstrap.servers": stage.servers,
        "here->there.enabled": "true",
        "here->there.topics": "mirrored",
        "here->there.consumer.isolation.level": "read_committed",
        "here->there.emit.heartbeats.enabled": "false",
        "there->here.emit.heartbeats.enabled": "false",
        "replication.factor": 3,
    }
    file = stage.properties("mirror.properties", settings)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    stage.start(stage.java_command(main, file), "mirror.log")
    command = [sys.executable, "-m", "cli", "verify", "mirror", "mirrored", "--prefix", "here."]
    command += ["--source", stage.servers, "--target", stage.servers]
    root = Path(__file__).parents[2]

    def is_same() -> bool:
        return subprocess.run(command, capture_output=True, cwd=root, check=False).returncode == 0

    stage.wait_for("the mirror", is_same)
    stage.stop_all()
    keys = Counter(record.key for record in stage.read("here.mirrored"))
    same(sum(keys.values()), _COUNT, "records of the mirror")
    return f"{_COUNT} records the same, partition by partition"
