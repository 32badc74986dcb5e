"""What happened between two looks at the nodes: pure.

A total that is less than before counts from zero: the node's process began anew in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.top.node_metrics import Client, NodeMetrics


@dataclass(frozen=True, slots=True)
class NodeLook:
    """A node at one moment: its metrics, or why there are none."""

    name: str
    server: str
    metrics: NodeMetrics | None
    why_none: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """None: it is not known, because there is no look before, or the node is no broker."""

    name: str
    server: str
    down: str | None
    """Why it does not answer."""
    cpu_percent: float | None = None
    memory_bytes: float | None = None
    requests_per_s: float | None = None
    queue_ms: float | None = None
    """How long a request waited that came while the one before was not answered."""
    loop_lag_ms: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    """To consumers and followers."""
    under_replicated: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    messages_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client that has quotas: what it uses of each, over all brokers."""

    user: str
    client_id: str
    usage: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Page:
    nodes: tuple[NodeRow, ...]
    topics: tuple[TopicRow, ...] = ()
    """The busiest first."""
    clients: tuple[ClientRow, ...] = ()


def page_of(before: Sequence[NodeLook], now: Sequence[NodeLook], most: int) -> Page:
    """``before``: the looks before at the same nodes. ``most``: so many topics, and clients."""
    earlier = {each.server: each.metrics for each in before}
    pairs = [(earlier.get(each.server), each) for each in now]
    return Page(
        tuple(_node_row(then, look) for then, look in pairs),
        _busiest_topics([(then, look.metrics) for then, look in pairs], most),
        _busiest_clients([look.metrics for look in now], most),
    )


def growth(then: float, now: float) -> float:
    return now - then if now >= then else now


def _node_row(then: NodeMetrics | None, look: NodeLook) -> NodeRow:
    now = look.metrics
    if now is None:
        return NodeRow(look.name, look.server, look.why_none)
    is_broker = now.under_replicated is not None
    lag_ms = now.loop_lag_s * 1000
    under = None if now.under_replicated is None else int(now.under_replicated)
    if then is None or now.at_s <= then.at_s:
        return NodeRow(
            look.name,
            look.server,
            None,
            memory_bytes=now.memory_bytes,
            loop_lag_ms=lag_ms,
            under_replicated=under,
        )
    past_s = now.at_s - then.at_s
    queued = growth(then.queued, now.queued)
    queued_ms = growth(then.queued_s, now.queued_s) * 1000
    bytes_in = _sum_of_growth(then.bytes_in, now.bytes_in)
    bytes_out = _sum_of_growth(then.bytes_out, now.bytes_out)
    bytes_out += growth(then.replication_bytes_out, now.replication_bytes_out)
    return NodeRow(
        look.name,
        look.server,
        None,
        growth(then.cpu_s, now.cpu_s) / past_s * 100,
        now.memory_bytes,
        growth(then.requests, now.requests) / past_s if is_broker else None,
        (queued_ms / queued if queued else 0.0) if is_broker else None,
        lag_ms,
        bytes_in / past_s if is_broker else None,
        bytes_out / past_s if is_broker else None,
        under,
    )


def _sum_of_growth(then: Mapping[str, float], now: Mapping[str, float]) -> float:
    return sum(growth(then.get(name, 0.0), value) for name, value in now.items())


@dataclass(slots=True)
class _TopicRates:
    messages_in: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0


def _busiest_topics(
    pairs: Sequence[tuple[NodeMetrics | None, NodeMetrics | None]], most: int
) -> tuple[TopicRow, ...]:
    """Over all brokers that answered twice. Topics that nobody uses are left out."""
    rates: dict[str, _TopicRates] = defaultdict(_TopicRates)
    for then, now in pairs:
        if then is None or now is None or now.at_s <= then.at_s:
            continue
        past_s = now.at_s - then.at_s
        for name, value in now.messages_in.items():
            rates[name].messages_in += growth(then.messages_in.get(name, 0.0), value) / past_s
        for name, value in now.bytes_in.items():
            rates[name].bytes_in += growth(then.bytes_in.get(name, 0.0), value) / past_s
        for name, value in now.bytes_out.items():
            rates[name].bytes_out += growth(then.bytes_out.get(name, 0.0), value) / past_s
    rows = [
        TopicRow(name, each.messages_in, each.bytes_in, each.bytes_out)
        for name, each in rates.items()
        if each.messages_in or each.bytes_in or each.bytes_out
    ]
    rows.sort(key=lambda row: (-row.bytes_in_per_s - row.bytes_out_per_s, row.name))
    return tuple(rows[:most])


def _busiest_clients(metrics: Sequence[NodeMetrics | None], most: int) -> tuple[ClientRow, ...]:
    usage: dict[Client, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for each in metrics:
        for (client, quota), value in each.quota_usage.items() if each is not None else ():
            usage[client][quota] += value
    rows = [ClientRow(*client, dict(used)) for client, used in usage.items()]
    rows.sort(key=lambda row: (-sum(row.usage.values()), row.user, row.client_id))
    return tuple(rows[:most])
