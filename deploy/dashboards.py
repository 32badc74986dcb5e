"""Makes Grafana's dashboards in deploy/grafana/dashboards: ``python -m deploy.dashboards``.

A panel is a title, a unit and queries. Everything else of Grafana's format is the same for all.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = Path(__file__).parent / "grafana" / "dashboards"
_WIDTH: Final = 12  # two panels beside each other
_HEIGHT: Final = 8
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_METRIC: Final = re.compile(r"\b((?:stele|process)_\w+)(\{[^}]*)?")
_BARS_OPTIONS: Final = {"showValue": "never", "mergeValues": True, "rowHeight": 0.8}
_RATE: Final = "$__rate_interval"
_CPU: Final = 'process_cpu_seconds_total{job="stele"}'


@dataclass(frozen=True, slots=True)
class Query:
    """``legend`` uses labels as ``{{instance}}``."""

    expression: str
    legend: str = ""


class Kind(enum.Enum):
    """How a panel shows its queries, by Grafana's names."""

    GRAPH = "timeseries"
    NUMBER = "stat"
    BARS = "state-timeline"  # a row for each query's sample, coloured while it exists


@dataclass(frozen=True, slots=True)
class Panel:
    """``unit`` is Grafana's: short, s, Bps, ops, percentunit, bytes."""

    title: str
    unit: str
    queries: Sequence[Query]
    what: str
    kind: Kind = Kind.GRAPH


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    panels: Sequence[Panel]


def _rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}[{_RATE}]))"


def _quantile(metric: str, quantile: float, by: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le, {by}) (rate({metric}_bucket[{_RATE}])))"


def _stat(title: str, expression: str, what: str, unit: str = "short") -> Panel:
    return Panel(title, unit, [Query(expression)], what, Kind.NUMBER)


_CLUSTER = Dashboard(
    "stele-cluster",
    "Stele: cluster",
    [
        _stat(
            "Active controllers",
            "sum(stele_controller_active_count)",
            "Must be 1: otherwise metadata cannot change.",
        ),
        _stat(
            "Brokers",
            "sum(stele_active_broker_count)",
            "Registered and not fenced.",
        ),
        _stat(
            "Offline partitions",
            "sum(stele_offline_partitions_count)",
            "Nobody reads or writes them.",
        ),
        _stat(
            "Under min ISR",
            "sum(stele_under_min_isr_partition_count)",
            "They refuse acks=all.",
        ),
        _stat(
            "Under-replicated",
            "sum(stele_under_replicated_partitions)",
            "They work with fewer copies.",
        ),
        _stat(
            "At min ISR",
            "sum(stele_at_min_isr_partition_count)",
            "One replica less, and they refuse acks=all.",
        ),
        Panel(
            "Records in",
            "ops",
            [Query(_rate("stele_messages_in_total"), "{{instance}}")],
            "From producers.",
        ),
        Panel(
            "Bytes",
            "Bps",
            [
                Query(f"sum(rate(stele_bytes_in_total[{_RATE}]))", "from producers"),
                Query(f"sum(rate(stele_bytes_out_total[{_RATE}]))", "to consumers"),
                Query(f"sum(rate(stele_replication_bytes_in_total[{_RATE}]))", "replicated"),
            ],
            "All brokers together.",
        ),
        Panel(
            "Elections",
            "ops",
            [
                Query(f"sum(rate(stele_partition_leader_changes_total[{_RATE}]))", "all"),
                Query(f"sum(rate(stele_unclean_leader_elections_total[{_RATE}]))", "unclean"),
            ],
            "Changes of partitions' leaders. Unclean ones may lose records.",
        ),
        Panel(
            "Partitions and topics",
            "short",
            [
                Query("sum(stele_global_partition_count)", "partitions"),
                Query("sum(stele_global_topic_count)", "topics"),
                Query("sum(stele_preferred_replica_imbalance_count)", "not led by the preferred"),
            ],
            "As the active controller counts them.",
        ),
    ],
)

_BROKER = Dashboard(
    "stele-broker",
    "Stele: brokers",
    [
        Panel(
            "Idle ratio",
            "percentunit",
            [
                Query(
                    f"1 - {_rate(_CPU)}",
                    "{{instance}}",
                )
            ],
            "One event loop does all the work of a node. Near 0 it is the bottleneck.",
        ),
        Panel(
            "Event loop lag",
            "s",
            [Query("stele_event_loop_lag_max_seconds", "{{instance}}")],
            "The queue of requests: how late the loop ran a timer.",
        ),
        Panel(
            "Requests",
            "ops",
            [Query(_rate("stele_requests_total", "api"), "{{api}}")],
            "Answered, by API.",
        ),
        Panel(
            "Total time, 99th percentile",
            "s",
            [Query(_quantile("stele_request_seconds", 0.99, "api"), "{{api}}")],
            "From arrival to answer, waiting included.",
        ),
        Panel(
            "Local time, 99th percentile",
            "s",
            [Query(_quantile("stele_request_local_seconds", 0.99, "api"), "{{api}}")],
            "What the handlers themselves take.",
        ),
        Panel(
            "Remote time, 99th percentile",
            "s",
            [Query(_quantile("stele_request_remote_seconds", 0.99, "api"), "{{api}}")],
            "Waiting for replicas and the disk; of a Fetch: for records.",
        ),
        Panel(
            "Time in queues, 99th percentile",
            "s",
            [
                Query(_quantile("stele_request_queue_seconds", 0.99, "api"), "{{api}} requests"),
                Query(_quantile("stele_response_queue_seconds", 0.99, "api"), "{{api}} answers"),
            ],
            "Of those that wait for earlier ones of their connection; empty while none does.",
        ),
        Panel(
            "Sync of a log directory, 99th percentile",
            "s",
            [Query(_quantile("stele_log_flush_seconds", 0.99, "instance"), "{{instance}}")],
            "Every acknowledgement waits for one.",
        ),
        Panel(
            "Leaders and replicas",
            "short",
            [
                Query("stele_leader_count", "{{instance}} leads"),
                Query("stele_partition_count", "{{instance}} has"),
            ],
            "Partitions on each broker.",
        ),
        Panel(
            "ISR changes",
            "ops",
            [
                Query(f"sum(rate(stele_isr_shrinks_total[{_RATE}]))", "shrinks"),
                Query(f"sum(rate(stele_isr_expands_total[{_RATE}]))", "expands"),
            ],
            "Followers that fell behind, and that caught up.",
        ),
        Panel(
            "Replica lag",
            "short",
            [Query("stele_replica_max_lag", "{{instance}}")],
            "The most records that a follower of a led partition lacks.",
        ),
        Panel(
            "Connections",
            "short",
            [Query("stele_connection_count", "{{instance}}")],
            "Of the Kafka protocol.",
        ),
        Panel(
            "New connections",
            "ops",
            [
                Query(
                    f"sum by (listener) (rate(stele_listener_connections_admitted_total[{_RATE}]))",
                    "{{listener}}",
                ),
                Query(f"sum(rate(stele_connections_refused_total[{_RATE}]))", "refused"),
            ],
            "By listener. Refused: for max.connections and its kin, or for a quota of an address.",
        ),
        Panel(
            "Requests that wait",
            "short",
            [
                Query("stele_produce_purgatory_size", "{{instance}} produce"),
                Query("stele_fetch_purgatory_size", "{{instance}} fetch"),
            ],
            "For replicas, the disk or records.",
        ),
        Panel(
            "Memory",
            "bytes",
            [Query('process_resident_memory_bytes{job="stele"}', "{{instance}}")],
            "Resident, without helper processes.",
        ),
        Panel(
            "Free space",
            "bytes",
            [Query("stele_log_directory_free_bytes", "{{instance}} {{directory}}")],
            "Of log directories.",
        ),
    ],
)

_TOPICS = Dashboard(
    "stele-topics",
    "Stele: topics",
    [
        Panel(
            "Records in",
            "ops",
            [Query(_rate("stele_topic_messages_in_total", "topic"), "{{topic}}")],
            "From producers, by topic.",
        ),
        Panel(
            "Bytes in",
            "Bps",
            [Query(_rate("stele_topic_bytes_in_total", "topic"), "{{topic}}")],
            "From producers, by topic.",
        ),
        Panel(
            "Bytes out",
            "Bps",
            [Query(_rate("stele_topic_bytes_out_total", "topic"), "{{topic}}")],
            "To consumers, by topic.",
        ),
        Panel(
            "Bytes replicated",
            "Bps",
            [Query(_rate("stele_topic_replication_bytes_out_total", "topic"), "{{topic}}")],
            "To followers, by topic.",
        ),
        Panel(
            "Size",
            "bytes",
            [Query("sum by (topic) (stele_log_size_bytes)", "{{topic}}")],
            "On all brokers together, every copy counted.",
        ),
        Panel(
            "Replica lag",
            "short",
            [Query("max by (topic) (stele_replica_lag)", "{{topic}}")],
            "The most records that a follower lacks.",
        ),
        Panel(
            "Refused batches",
            "ops",
            [Query(_rate("stele_failed_produce_requests_total"), "{{instance}}")],
            "Partitions that were refused in Produce.",
        ),
        Panel(
            "Compaction",
            "percent",
            [Query("stele_max_dirty_percent", "{{instance}}")],
            "The dirtiest part of a compacted log.",
        ),
    ],
)

_LAG: Final = (
    "sum by (group, topic) (clamp_min(max by (topic, partition) (stele_high_watermark)"
    " * on (topic, partition) group_right() (0 * stele_group_committed_offset + 1)"
    " - on (topic, partition, group) stele_group_committed_offset, 0))"
)

_GROUPS = Dashboard(
    "stele-groups",
    "Stele: groups",
    [
        Panel(
            "Lag",
            "short",
            [Query(_LAG, "{{group}} {{topic}}")],
            "Records that a group has not committed yet.",
        ),
        Panel(
            "Groups",
            "short",
            [Query("sum by (state) (stele_groups)", "{{state}}")],
            "By state.",
        ),
        Panel(
            "Commits",
            "ops",
            [Query(_rate("stele_group_offset_commits_total"), "{{instance}}")],
            "Offsets of partitions.",
        ),
        Panel(
            "Rebalances",
            "ops",
            [Query(_rate("stele_group_rebalances_total"), "{{instance}}")],
            "Completed ones.",
        ),
        Panel(
            "Loads of coordinators",
            "s",
            [Query("stele_group_load_seconds_max", "{{instance}}")],
            "The longest since the broker started.",
        ),
        Panel(
            "Offsets kept",
            "short",
            [Query("sum(stele_group_offsets)", "offsets")],
            "Committed and not expired.",
        ),
    ],
)

_QUORUM = Dashboard(
    "stele-quorum",
    "Stele: quorum",
    [
        _stat("Leader", "max(stele_quorum_leader)", "Its node id."),
        _stat("Epoch", "max(stele_quorum_epoch)", "Each election raises it."),
        _stat("Voters", "max(stele_quorum_voters)", "Controllers that vote."),
        _stat(
            "Behind",
            "max(stele_quorum_log_end_offset) - min(stele_quorum_log_end_offset)",
            "Records that the slowest node lacks.",
        ),
        Panel(
            "Commit time, 99th percentile",
            "s",
            [Query(_quantile("stele_quorum_commit_seconds", 0.99, "instance"), "{{instance}}")],
            "From a decision to its commit by a majority.",
        ),
        Panel(
            "Committed records",
            "ops",
            [Query(f"rate(stele_quorum_high_watermark[{_RATE}])", "{{instance}}")],
            "Of the metadata log.",
        ),
        Panel(
            "State",
            "short",
            [Query("stele_quorum_state == 1", "{{instance}} {{state}}")],
            "What each replica was, and when.",
            Kind.BARS,
        ),
        Panel(
            "Elections",
            "short",
            [Query(f"increase(stele_quorum_elections_total[{_RATE}])", "{{instance}}")],
            "Leaders that each replica has heard of.",
        ),
    ],
)

_TENANTS = Dashboard(
    "stele-tenants",
    "Stele: tenants",
    [
        *(
            Panel(
                title,
                unit,
                [
                    Query(
                        f'topk(20, sum by (user, client_id) (stele_quota_usage{{quota="{key}"}}))',
                        "{{user}} {{client_id}}",
                    )
                ],
                f"{what} The 20 clients with a quota that use most, over all brokers.",
            )
            for title, unit, key, what in (
                ("Written by clients", "Bps", "producer_byte_rate", "Bytes of Produce requests."),
                ("Read by clients", "Bps", "consumer_byte_rate", "Bytes of records."),
                (
                    "Time of event loops by clients",
                    "percent",
                    "request_percentage",
                    "100 is all that one broker has.",
                ),
            )
        ),
        Panel(
            "Waits for quotas",
            "percentunit",
            [
                Query(
                    "topk(20, sum by (user, client_id) "
                    f"(rate(stele_quota_throttled_seconds[{_RATE}])))",
                    "{{user}} {{client_id}}",
                )
            ],
            "The share of the time in which clients were told to wait. Above 1: several clients "
            "share the quota, or several brokers hold them back.",
        ),
        Panel(
            "Connections that are not read",
            "short",
            [Query("stele_connections_muted", "{{instance}}")],
            "Because their client is above a quota.",
        ),
        Panel(
            "Time of event loops by nodes",
            "percentunit",
            [Query(f"rate(stele_exempt_request_seconds_total[{_RATE}])", "{{instance}}")],
            "Requests of other nodes, which no quota holds back. Counted while there are quotas.",
        ),
    ],
)

DASHBOARDS: Final = (_CLUSTER, _BROKER, _TOPICS, _GROUPS, _QUORUM, _TENANTS)


def of_cluster(expression: str) -> str:
    """A query about the chosen clusters alone. The scrape configuration sets the label."""

    def chosen(metric: re.Match[str]) -> str:
        labels = f"{metric[2]}," if metric[2] else "{"
        return metric[1] + labels + 'cluster=~"$cluster"' + ("" if metric[2] else "}")

    return _METRIC.sub(chosen, expression)


_VARIABLES: Final = [
    {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
    },
    {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": "label_values(stele_quorum_epoch, cluster)",
        "refresh": 2,  # with the time range: clusters come and go
        "includeAll": True,
        "allValue": ".*",  # also metrics without the label
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    },
]


def render(dashboard: Dashboard) -> str:
    """As Grafana reads it."""
    return json.dumps(_dashboard(dashboard), indent=1) + "\n"


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["stele"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": _VARIABLES},
        "links": [{"type": "dashboards", "tags": ["stele"], "title": "Stele"}],
        "panels": list(_panels(dashboard.panels)),
    }


def _panels(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Small numbers first, six in a row; then graphs, two in a row."""
    made: list[dict[str, Any]] = []
    stats = [panel for panel in panels if panel.kind is Kind.NUMBER]
    graphs = [panel for panel in panels if panel.kind is not Kind.NUMBER]
    for place, panel in enumerate(stats):
        width = 24 // len(stats)
        made.append(_panel(panel, len(made), place * width, 0, width, 4))
    top = 4 if stats else 0
    for place, panel in enumerate(graphs):
        x, y = place % 2 * _WIDTH, top + place // 2 * _HEIGHT
        made.append(_panel(panel, len(made), x, y, _WIDTH, _HEIGHT))
    return made


def _panel(panel: Panel, number: int, x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.what,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        **({"options": _BARS_OPTIONS} if panel.kind is Kind.BARS else {}),
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": of_cluster(query.expression),
                "legendFormat": query.legend or "__auto",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (DIRECTORY / f"{dashboard.uid}.json").write_text(render(dashboard))


if __name__ == "__main__":
    main()
