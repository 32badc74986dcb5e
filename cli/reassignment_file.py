"""The JSON files of Kafka's reassignment tool: which partition goes where, which topics move."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.output import CommandError

VERSION = 1

Assignments = dict[tuple[str, int], tuple[int, ...]]
"""(topic, partition) → replicas, the preferred leader first."""

Replica = tuple[str, int, int]
"""(topic, partition, broker id)"""

LogDirs = dict[Replica, str]
"""The path of the log directory in which each replica is, or is to be."""

ANY = "any"
"""Where a plan leaves the log directory to the broker."""


class Plan(NamedTuple):
    """What a file asks for."""

    assignments: Assignments
    log_dirs: LogDirs  # without those that the broker is to choose

    @property
    def names(self) -> list[tuple[str, int]]:
        """Its partitions in their order."""
        return sorted(self.assignments)


def read_plan(path: Path) -> Plan:
    """The plan in ``{"version": 1, "partitions": [{"topic", "partition", "replicas",
    "log_dirs"}]}``.

    ``log_dirs`` has a path or ``"any"`` for each of the replicas, or is left out.
    Raises CommandError that says what is wrong with the file, and where.
    """
    found: Assignments = {}
    log_dirs: LogDirs = {}
    for number, entry in enumerate(_entries(path, "partitions")):
        where = f"{path}: partitions[{number}]"
        topic = _field(entry, "topic", str, where)
        partition = _field(entry, "partition", int, where)
        replicas = _field(entry, "replicas", list, where)
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in replicas):
            raise CommandError(f"{where}: replicas must be broker ids, they are {replicas}")
        paths = _log_dirs(entry, len(replicas), where)
        if (topic, partition) in found:
            raise CommandError(f"{where}: {topic}-{partition} is there already")
        found[topic, partition] = tuple(replicas)
        for broker_id, log_dir in zip(replicas, paths, strict=True):
            if log_dir != ANY:
                log_dirs[topic, partition, broker_id] = log_dir
    if not found:
        raise CommandError(f"{path} names no partitions")
    return Plan(found, log_dirs)


def _log_dirs(entry: Mapping[str, Any], count: int, where: str) -> list[str]:
    """The directory of each replica."""
    if entry.get("log_dirs") is None:
        return [ANY] * count
    paths: list[str] = _field(entry, "log_dirs", list, where)
    if len(paths) != count:
        raise CommandError(f"{where}: there are {count} replicas and {len(paths)} log_dirs")
    for path in paths:
        if path != ANY and not (isinstance(path, str) and path.startswith("/")):
            raise CommandError(f'{where}: log_dirs must be absolute paths or "any", not {path!r}')
    return paths


def read_topics(path: Path) -> list[str]:
    """The topics of ``{"version": 1, "topics": [{"topic"}]}``, in order. Raises CommandError."""
    topics = [
        _field(entry, "topic", str, f"{path}: topics[{number}]")
        for number, entry in enumerate(_entries(path, "topics"))
    ]
    if not topics:
        raise CommandError(f"{path} names no topics")
    return list(dict.fromkeys(topics))


def document(assignments: Assignments, log_dirs: LogDirs | None = None) -> dict[str, object]:
    """The form that ``read_plan`` reads, by topic and partition."""
    partitions = []
    for (topic, partition), replicas in sorted(assignments.items()):
        entry: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
        }
        paths = [(log_dirs or {}).get((topic, partition, each), ANY) for each in replicas]
        if any(path != ANY for path in paths):
            entry["log_dirs"] = paths
        partitions.append(entry)
    return {"version": VERSION, "partitions": partitions}


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
