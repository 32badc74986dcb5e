"""The JSON files of Kafka's reassignment tool: which partition goes where, which topics move."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.output import CommandError

VERSION = 1

Assignments = dict[tuple[str, int], tuple[int, ...]]
"""(topic, partition) → replicas, the preferred leader first."""


def read_assignments(path: Path) -> Assignments:
    """Of ``{"version": 1, "partitions": [{"topic", "partition", "replicas"}]}``.

    Raises CommandError that says what is wrong with the file, and where.
    """
    found: Assignments = {}
    for number, entry in enumerate(_entries(path, "partitions")):
        where = f"{path}: partitions[{number}]"
        topic = _field(entry, "topic", str, where)
        partition = _field(entry, "partition", int, where)
        replicas = _field(entry, "replicas", list, where)
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in replicas):
            raise CommandError(f"{where}: replicas must be broker ids, they are {replicas}")
        if any(each != "any" for each in entry.get("log_dirs", [])):
            raise CommandError(
                f"{where}: this command does not choose log directories: leave log_dirs out, give "
                '"any", or let kafka-reassign-partitions carry the plan out'
            )
        if (topic, partition) in found:
            raise CommandError(f"{where}: {topic}-{partition} is there already")
        found[topic, partition] = tuple(replicas)
    if not found:
        raise CommandError(f"{path} names no partitions")
    return found


def read_topics(path: Path) -> list[str]:
    """Of ``{"version": 1, "topics": [{"topic"}]}``, in its order. Raises CommandError."""
    topics = [
        _field(entry, "topic", str, f"{path}: topics[{number}]")
        for number, entry in enumerate(_entries(path, "topics"))
    ]
    if not topics:
        raise CommandError(f"{path} names no topics")
    return list(dict.fromkeys(topics))


def document(assignments: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[str, object]:
    """The form that ``read_assignments`` reads, by topic and partition."""
    return {
        "version": VERSION,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(assignments.items())
        ],
    }


def _entries(path: Path, name: str) -> list[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON and of UTF-8
        raise CommandError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get(name), list):
        raise CommandError(f'{path} must be of the form {{"version": 1, "{name}": […]}}')
    if content.get("version", VERSION) != VERSION:
        raise CommandError(f"{path} is of version {content['version']}; only 1 is known")
    entries: list[Any] = content[name]
    return entries


def _field(entry: Any, name: str, kind: type[Any], where: str) -> Any:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CommandError(f"{where}: {name!r} is missing or not a {_KINDS[kind]}")
    return value


_KINDS = {str: "text", int: "whole number", list: "list"}
