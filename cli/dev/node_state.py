"""How the nodes of a cluster are now, by their processes and their ``/readyz``."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cli.dev.cluster_record import ClusterRecord, NodeRecord

_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class NodeState:
    node: NodeRecord
    is_alive: bool
    is_ready: bool
    text: str


def states_of(record: ClusterRecord) -> list[NodeState]:
    """All nodes are asked at the same time."""
    if not record.nodes:
        return []
    with ThreadPoolExecutor(len(record.nodes)) as threads:
        return list(threads.map(_state_of, record.nodes))


def _state_of(node: NodeRecord) -> NodeState:
    if node.process is not None and node.process.is_alive():
        why_not = _why_not_ready(node.metrics_port)
        return NodeState(node, True, why_not is None, why_not or "serves")
    if node.ended is not None and _why_not_ready(node.metrics_port) is None:
        return NodeState(node, False, True, "serves; not started by stele dev")
    return NodeState(node, False, False, node.ended or "does not run")


def _why_not_ready(port: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return "not ready: " + _failed_checks(error.read())
    except OSError:  # also a time-out
        return "runs, but does not answer"


def _failed_checks(page: bytes) -> str:
    try:
        checks = json.loads(page)["checks"]
        return "; ".join(f"{each['name']}: {each['reason']}" for each in checks if not each["ok"])
    except (ValueError, TypeError, KeyError):
        return "its /readyz cannot be read"
