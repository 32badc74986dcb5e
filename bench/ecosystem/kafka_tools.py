"""Kafka's own command-line tools, by the classes that its shell scripts start."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from bench.ecosystem.stage import Stage, same
from stele import Admin
from stele.ids import encode_uuid

_TOOLS: Final = "org.apache.kafka.tools"
_COUNT: Final = 2_000


def topics(stage: Stage) -> str:
    """kafka-topics: create, describe, alter, list, delete."""
    tool = (f"{_TOOLS}.TopicCommand", "--bootstrap-server", stage.servers)
    config = ("--config", "retention.ms=86400000")
    size = ("--partitions", "4", "--replication-factor", "3")
    said = stage.java(*tool, "--create", "--topic", "tool-topics", *size, *config)
    same(said.strip(), "Created topic tool-topics.", "create")
    with Admin(stage.servers) as admin:
        (known,) = admin.describe_topics(["tool-topics"])
    lines = stage.java(*tool, "--describe", "--topic", "tool-topics").splitlines()
    for expected in (
        f"TopicId: {encode_uuid(known.topic_id)}",
        "PartitionCount: 4",
        "ReplicationFactor: 3",
        "retention.ms=86400000",
    ):
        same(expected in lines[0], True, f"{expected!r} in {lines[0]!r}")
    rows = [re.split(r"\t", line.strip()) for line in lines[1:]]
    expected_rows = [
        [
            "Topic: tool-topics",
            f"Partition: {each.partition}",
            f"Leader: {each.leader}",
            f"Replicas: {','.join(map(str, each.replicas))}",
            f"Isr: {','.join(map(str, each.isr))}",
        ]
        for each in known.partitions
    ]
    same([row[:5] for row in rows], expected_rows, "describe")
    stage.java(*tool, "--alter", "--topic", "tool-topics", "--partitions", "6")
    same(_partition_count(stage, "tool-topics"), 6, "partitions after --alter")
    stage.java(*tool, "--delete", "--topic", "tool-topics")
    listed = stage.java(*tool, "--list").split()
    same("tool-topics" in listed, False, "deleted topic in the list")
    return "create, describe (every field), alter, delete, list"


def _partition_count(stage: Stage, topic: str) -> int:
    with Admin(stage.servers) as admin:
        (known,) = admin.describe_topics([topic])
    return len(known.partitions)


def configs(stage: Stage) -> str:
    """kafka-configs: topics, groups, brokers, clients' quotas."""
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", stage.servers)
    stage.make_topics("tool-configs")
    entities = {
        ("topics", "tool-configs"): "retention.ms=3600000",
        ("groups", "tool-configs"): "share.auto.offset.reset=earliest",
        ("clients", "tool-configs"): "producer_byte_rate=1048576.0",
    }
    for (kind, name), setting in entities.items():
        entity = ("--entity-type", kind, "--entity-name", name)
        stage.java(*tool, *entity, "--alter", "--add-config", setting)
        said = stage.java(*tool, *entity, "--describe")
        same(setting in said, True, f"{setting} in {said!r}")
        stage.java(*tool, *entity, "--alter", "--delete-config", setting.partition("=")[0])
        said = stage.java(*tool, *entity, "--describe")
        same(setting in said, False, f"{setting} in {said!r} after its deletion")
    return "topics, groups and quotas: set, shown, deleted"


def console(stage: Stage) -> str:
    """kafka-console-producer, kafka-console-consumer in a group, kafka-consumer-groups."""
    stage.make_topics("tool-console")
    servers = ("--bootstrap-server", stage.servers)
    lines = [f"k{number % 7}:line {number}" for number in range(_COUNT)]
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    stage.java(
        f"{_TOOLS}.ConsoleProducer",
        *servers,
        *("--topic", "tool-console"),
        *keys,
        given="\n".join(lines) + "\n",
    )
    printed = ("--property", "print.key=true", "--property", "key.separator=:")
    group = ("--group", "tool-console", "--from-beginning", "--max-messages", str(_COUNT))
    consumer = f"{_TOOLS}.consumer.ConsoleConsumer"
    read = stage.java(consumer, *servers, "--topic", "tool-console", *group, *printed)
    same(sorted(read.splitlines()), sorted(lines), "the lines that were read")
    for key in range(7):
        of_key = [line for line in read.splitlines() if line.startswith(f"k{key}:")]
        same(of_key, lines[key::7], f"the order of key k{key}")
    groups = (f"{_TOOLS}.consumer.group.ConsumerGroupCommand", *servers)
    same(_lags(stage, groups), [0, 0, 0], "the lag")
    reset = ("--reset-offsets", "--to-earliest", "--execute")
    stage.java(*groups, *reset, "--group", "tool-console", "--topic", "tool-console")
    same(sum(_lags(stage, groups)), _COUNT, "the lag after the reset")
    stage.java(*groups, "--delete", "--group", "tool-console")
    listed = stage.java(*groups, "--list").split()
    same("tool-console" in listed, False, "the deleted group in the list")
    return f"{_COUNT} lines the same and in order by key; lag 0, reset, deleted"


def _lags(stage: Stage, groups: tuple[str, ...]) -> list[int]:
    said = stage.java(*groups, "--describe", "--group", "tool-console")
    rows = [line.split() for line in said.splitlines() if " tool-console " in line]
    return [int(row[5]) for row in rows]


def offsets(stage: Stage) -> str:
    """kafka-get-offsets, kafka-delete-records."""
    servers = ("--bootstrap-server", stage.servers)
    stage.make_topics("tool-offsets", partitions=1)
    stage.write("tool-offsets", _COUNT)
    shell = (f"{_TOOLS}.GetOffsetShell", *servers, "--topic", "tool-offsets")
    same(stage.java(*shell, "--time", "-1").strip(), f"tool-offsets:0:{_COUNT}", "latest")
    wanted = {"version": 1, "partitions": [{"topic": "tool-offsets", "partition": 0, "offset": 99}]}
    file = stage.directory / "delete.json"
    file.write_text(json.dumps(wanted))
    delete = f"{_TOOLS}.DeleteRecordsCommand"
    said = stage.java(delete, *servers, "--offset-json-file", str(file))
    same("low_watermark: 99" in said, True, f"low_watermark: 99 in {said!r}")
    same(stage.java(*shell, "--time", "-2").strip(), "tool-offsets:0:99", "earliest")
    return "latest and earliest offset, records deleted before 99"


def verifiable(stage: Stage) -> str:
    """kafka-verifiable-producer, kafka-verifiable-consumer."""
    servers = ("--bootstrap-server", stage.servers)
    stage.make_topics("tool-verifiable")
    count = str(_COUNT)
    topic = ("--topic", "tool-verifiable", "--max-messages", count)
    said = _events(stage.java(f"{_TOOLS}.VerifiableProducer", *servers, *topic))
    same((said[-1]["sent"], said[-1]["acked"]), (_COUNT, _COUNT), "sent and acknowledged")
    read = (f"{_TOOLS}.VerifiableConsumer", *servers, *topic, "--group-id", "tool-verifiable")
    events = _events(stage.java(*read, "--reset-policy", "earliest"))
    consumed = sum(each["count"] for each in events if each["name"] == "records_consumed")
    same(consumed, _COUNT, "records consumed")
    values = sorted(int(each.value or b"") for each in stage.read("tool-verifiable"))
    same(values, list(range(_COUNT)), "values")
    return f"{_COUNT} acknowledged, {_COUNT} consumed, each once"


def _events(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def share_groups(stage: Stage) -> str:
    """kafka-console-share-consumer, kafka-verifiable-share-consumer, kafka-share-groups."""
    servers = ("--bootstrap-server", stage.servers)
    stage.make_topics("tool-share")
    stage.write("tool-share", _COUNT)
    for group in ("tool-share-console", "tool-share-verifiable"):
        stage.java(
            "kafka.admin.ConfigCommand",
            *servers,
            *("--entity-type", "groups", "--entity-name", group),
            *("--alter", "--add-config", "share.auto.offset.reset=earliest"),
        )
    topic = ("--topic", "tool-share", "--max-messages", str(_COUNT))
    console_consumer = f"{_TOOLS}.consumer.ConsoleShareConsumer"
    read = stage.java(console_consumer, *servers, *topic, "--group", "tool-share-console")
    same(sorted(map(int, read.split())), list(range(_COUNT)), "values of the console consumer")
    command = (f"{_TOOLS}.VerifiableShareConsumer", *servers, *topic)
    events = _events(stage.java(*command, "--group-id", "tool-share-verifiable"))
    acknowledged = [each for each in events if each["name"] == "offsets_acknowledged"]
    same(sum(int(each["count"]) for each in acknowledged), _COUNT, "offsets acknowledged")
    groups = (f"{_TOOLS}.consumer.group.ShareGroupCommand", *servers)
    listed = stage.java(*groups, "--list").split()
    same("tool-share-verifiable" in listed, True, "the group in the list")
    described = stage.java(*groups, "--describe", "--group", "tool-share-verifiable")
    same(described.count(" tool-share "), 3, "partitions described")
    stage.java(*groups, "--delete", "--group", "tool-share-verifiable")
    listed = stage.java(*groups, "--list").split()
    same("tool-share-verifiable" in listed, False, "the deleted group in the list")
    return f"{_COUNT} records once to each group, acknowledged; list, describe, delete"


def kcat(stage: Stage) -> str:
    """kcat: metadata, producing with keys and headers, consuming alone and in a group."""
    stage.make_topics("tool-kcat")
    command = ["kcat", "-b", stage.servers]
    found = json.loads(stage.program([*command, "-L", "-J", "-t", "tool-kcat"]))
    (topic,) = found["topics"]
    same((len(found["brokers"]), len(topic["partitions"])), (3, 3), "brokers and partitions")
    lines = [f"k{number % 7}:line {number}" for number in range(_COUNT)]
    write = [*command, "-P", "-t", "tool-kcat", "-K:", "-H", "from=kcat", "-z", "snappy"]
    stage.program(write, given="\n".join(lines) + "\n")
    read = [*command, "-C", "-t", "tool-kcat", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n"]
    same(sorted(stage.program(read).splitlines()), sorted(lines), "the lines that were read")
    headers = {each.headers for each in stage.read("tool-kcat")}
    same(headers, {(("from", b"kcat"),)}, "headers")
    in_group = [*command, "-X", "auto.offset.reset=earliest", "-c", str(_COUNT), "-q"]
    of_group = stage.program([*in_group, "-G", "tool-kcat", "tool-kcat"])
    same(len(of_group.splitlines()), _COUNT, "lines that the group has read")
    return f"{_COUNT} lines the same, with headers; a group read as many"
