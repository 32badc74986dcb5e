"""Looks at ``/metrics`` of several nodes at the same time."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cli.dev.cluster_record import read_record
from cli.output import CommandError, UsageError
from cli.top.node_metrics import parse
from cli.top.rates import NodeLook

TIMEOUT_S: Final = 3.0

Place = tuple[str, str]
"""The name of a node, and the address of its metrics."""


def places_of(servers: str | None, directory: Path) -> list[Place]:
    """The places in ``--metrics-servers``, or else of a ``stele dev``. Raises CommandError."""
    if servers is not None:
        found = [each.strip() for each in servers.split(",") if each.strip()]
        if not found:
            raise UsageError("--metrics-servers names no server: give host:port,host:port")
        return [(each, each) for each in found]
    record = read_record(directory)
    if record is None or not record.is_running():
        raise CommandError(
            f"no cluster of stele dev runs in {directory.resolve()}: name its directory with "
            "--dir, or with --metrics-servers the metrics.listener of each node"
        )
    return [(each.name, f"127.0.0.1:{each.metrics_port}") for each in record.nodes]


def look_at(places: Sequence[Place]) -> list[NodeLook]:
    """A node that does not answer is there, too, with the reason."""
    with ThreadPoolExecutor(len(places)) as threads:
        return list(threads.map(_look, places))


def _look(place: Place) -> NodeLook:
    name, server = place
    at_s = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://{server}/metrics", timeout=TIMEOUT_S) as answer:
            text = answer.read().decode(errors="replace")
        return NodeLook(name, server, parse(text, at_s))
    except TimeoutError:
        return NodeLook(name, server, None, f"no answer within {TIMEOUT_S:.0f} s")
    except OSError as error:
        return NodeLook(name, server, None, _said(error))
    except ValueError as error:
        return NodeLook(name, server, None, f"no page of metrics: {error}")


def _said(error: OSError) -> str:
    """Without the wrapping of urllib and the number of Python."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    return getattr(reason, "strerror", None) or str(reason)
