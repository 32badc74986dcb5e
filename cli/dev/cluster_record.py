"""What the owner of a cluster writes down beside it: the cluster's state, its processes, and how
it is reached. Only its user may read it, since settings may be secret. Only the process that holds
the directory's lock writes it.

An owner that was killed could not write that its cluster has ended. So a cluster runs if the
record says so and its owner is alive. Readers do not try the lock: an owner that begins at that
moment would be refused it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cli.dev.process_identity import ProcessIdentity
from cli.output import CommandError

RECORD_FILE: Final = "dev.json"
LOG_FILE: Final = "dev.log"
"""What the owner of a detached cluster says."""

STARTING, SERVING, STOPPING = "starting", "serving", "stopping"
STOPPED, FAILED = "stopped", "failed"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    node_id: int
    name: str
    process: ProcessIdentity | None
    """The present or last one; None: it was not started, or had ended before it was looked at."""
    ended: str | None
    """How it ended, and its last words; None: it runs."""
    kafka_port: int | None
    grpc_port: int | None
    controller: str | None
    """The address of its controller."""
    metrics_port: int
    log_file: str
    config_file: str


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    state: str
    since_ms: int
    reason: str | None
    """Why a cluster has stopped or failed."""
    owner: ProcessIdentity
    is_detached: bool
    arguments: tuple[str, ...]
    """With these arguments ``stele dev`` starts it again."""
    cluster_id: str
    bootstrap_servers: str
    nodes: tuple[NodeRecord, ...]
    console: str | None = None
    """The address of its console, with the key; None: it has none."""

    @property
    def was_stopped(self) -> bool:
        """Its owner has brought it to an end, good or bad."""
        return self.state in (STOPPED, FAILED)

    def is_running(self) -> bool:
        return not self.was_stopped and self.owner.is_alive()

    @property
    def start_command(self) -> str:
        import shlex

        return shlex.join(["stele", "dev", "--detach", *self.arguments])

    def node(self, name: str) -> NodeRecord:
        """By its id or its name. Raises CommandError."""
        for each in self.nodes:
            if name in (str(each.node_id), each.name):
                return each
        known = ", ".join(each.name for each in self.nodes)
        raise CommandError(f"there is no node {name!r} in this cluster; there are {known}")


def write_record(directory: Path, record: ClusterRecord) -> None:
    """Readers see the record before or this one."""
    fresh = directory / f"{RECORD_FILE}.new"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(record), indent=2) + "\n")
    fresh.replace(directory / RECORD_FILE)


def read_record(directory: Path) -> ClusterRecord | None:
    """None: no cluster ran in this directory since records are written. Raises CommandError."""
    path = directory / RECORD_FILE
    try:
        return _record_of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise CommandError(f"{path} is not what stele dev writes; remove it") from None


def _record_of(told: dict[str, Any]) -> ClusterRecord:
    nodes = tuple(
        NodeRecord(**{**each, "process": _identity_of(each["process"])}) for each in told["nodes"]
    )
    owner = ProcessIdentity(**told["owner"])
    return ClusterRecord(
        **{**told, "owner": owner, "nodes": nodes, "arguments": tuple(told["arguments"])}
    )


def _identity_of(told: dict[str, Any] | None) -> ProcessIdentity | None:
    return None if told is None else ProcessIdentity(**told)


def known_record(directory: Path) -> ClusterRecord:
    """Raises CommandError if ``stele dev`` has never run in the directory."""
    record = read_record(directory)
    if record is None:
        raise CommandError(
            f"stele dev has never run in {directory.resolve()}; name the directory with --dir"
        )
    return record
