"""A page of ``stele top`` as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cli.top.rates import ClientRow, NodeRow, Page, TopicRow

Table = tuple[Sequence[str], list[Sequence[object]]]
"""Columns, and rows."""

_NODES: Final = (
    "NODE",
    "CPU %",
    "RSS MB",
    "REQUESTS/S",
    "QUEUE MS",
    "LOOP LAG MS",
    "IN MB/S",
    "OUT MB/S",
    "UNDER-REPLICATED",
)
_TOPICS: Final = ("TOPIC", "RECORDS/S", "IN MB/S", "OUT MB/S")
_DOWN: Final = "DOWN"


def tables_of(page: Page) -> list[Table]:
    """The table of the nodes, and those of topics and clients if there are any to show."""
    has_down = any(each.down is not None for each in page.nodes)
    columns = (*_NODES, *((_DOWN,) if has_down else ()))
    nodes = [(*_node(each), *((each.down,) if has_down else ())) for each in page.nodes]
    tables: list[Table] = [(columns, list(nodes))]
    if page.topics:
        tables.append((_TOPICS, [_topic(each) for each in page.topics]))
    if page.clients:
        quotas = sorted({quota for each in page.clients for quota in each.usage})
        tables.append(
            (
                ("USER", "CLIENT ID", *(each.upper() for each in quotas)),
                [_client(each, quotas) for each in page.clients],
            )
        )
    return tables


def _node(row: NodeRow) -> tuple[object, ...]:
    return (
        row.name,
        _number(row.cpu_percent, 0),
        _number(row.memory_bytes, 0, 1e6),
        _number(row.requests_per_s, 0),
        _number(row.queue_ms, 1),
        _number(row.loop_lag_ms, 0),
        _number(row.bytes_in_per_s, 2, 1e6),
        _number(row.bytes_out_per_s, 2, 1e6),
        row.under_replicated,
    )


def _topic(row: TopicRow) -> tuple[object, ...]:
    return (
        row.name,
        _number(row.messages_in_per_s, 0),
        _number(row.bytes_in_per_s, 2, 1e6),
        _number(row.bytes_out_per_s, 2, 1e6),
    )


def _client(row: ClientRow, quotas: Sequence[str]) -> tuple[object, ...]:
    usage = (_number(row.usage.get(quota), 1) for quota in quotas)
    return (row.user or None, row.client_id or None, *usage)


def _number(value: float | None, digits: int, unit: float = 1.0) -> str | None:
    return None if value is None else f"{value / unit:.{digits}f}"
