"""What ``stele top`` makes of two looks at the nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cli.top.node_metrics import NodeMetrics, parse
from cli.top.rates import ClientRow, NodeLook, TopicRow, growth, page_of
from cli.top.tables import tables_of

PAGE = """\
# HELP process_cpu_seconds_total CPU time.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
process_resident_memory_bytes 5e7
stele_requests_total{api="PRODUCE"} 10
stele_requests_total{api="FETCH"} 5
stele_request_queue_seconds_bucket{api="PRODUCE",le="0.1"} 3
stele_request_queue_seconds_sum{api="PRODUCE"} 0.5
stele_request_queue_seconds_count{api="PRODUCE"} 4
stele_topic_messages_in_total{topic="a \\"quoted\\" name"} 7
stele_topic_bytes_in_total{topic="orders"} 700
stele_topic_bytes_out_total{topic="orders"} 300
stele_topic_replication_bytes_out_total{topic="orders"} 100
stele_under_replicated_partitions 2
stele_event_loop_lag_max_seconds 0.25
stele_quota_usage{quota="producer_byte_rate",user="ann",client_id=""} 1500.0
stele_high_watermark{topic="orders",partition="0"} 9
"""


def broker(at_s: float, **values: float | Mapping[str, float]) -> NodeMetrics:
    metrics = NodeMetrics(at_s, under_replicated=0)
    for name, value in values.items():
        if isinstance(value, Mapping):
            getattr(metrics, name).update(value)
        else:
            setattr(metrics, name, value)
    return metrics


def look(metrics: NodeMetrics | None, server: str = "b1:9404") -> NodeLook:
    return NodeLook("broker-101", server, metrics, None if metrics else "Connection refused")


def test_the_figures_of_a_page_are_taken() -> None:
    found = parse(PAGE, 3.0)
    assert (found.at_s, found.cpu_s, found.memory_bytes, found.requests) == (3.0, 12.5, 5e7, 15)
    assert (found.queued, found.queued_s, found.loop_lag_s) == (4, 0.5, 0.25)
    assert (found.under_replicated, found.replication_bytes_out) == (2, 100)
    assert dict(found.messages_in) == {'a "quoted" name': 7}
    assert (dict(found.bytes_in), dict(found.bytes_out)) == ({"orders": 700}, {"orders": 300})
    assert found.quota_usage == {(("ann", ""), "producer_byte_rate"): 1500.0}


def test_rates_are_the_growth_between_two_looks() -> None:
    then = broker(10.0, cpu_s=1.0, requests=100, queued=5, queued_s=1.0, bytes_in={"a": 50})
    now = broker(
        14.0,
        cpu_s=3.0,
        requests=500,
        queued=15,
        queued_s=1.5,
        loop_lag_s=0.2,
        memory_bytes=7.0,
        bytes_in={"a": 90, "new": 20},
        bytes_out={"a": 8},
        replication_bytes_out=32,
    )
    (row,) = page_of([look(then)], [look(now)], 10).nodes
    assert (row.cpu_percent, row.memory_bytes, row.requests_per_s) == (50.0, 7.0, 100.0)
    assert (row.queue_ms, row.loop_lag_ms) == (50.0, 200.0)
    assert (row.bytes_in_per_s, row.bytes_out_per_s, row.under_replicated) == (15.0, 10.0, 0)


def test_the_first_look_knows_no_rates() -> None:
    (row,) = page_of([], [look(broker(1.0, memory_bytes=7.0, bytes_in={"a": 9}))], 10).nodes
    assert (row.memory_bytes, row.cpu_percent, row.requests_per_s) == (7.0, None, None)
    assert page_of([], [look(broker(1.0, bytes_in={"a": 9}))], 10).topics == ()


def test_a_node_that_began_anew_counts_from_zero() -> None:
    assert growth(100, 130) == 30
    assert growth(100, 20) == 20


def test_a_node_that_is_down_stays_with_its_reason() -> None:
    page = page_of([look(broker(1.0))], [look(None), look(broker(1.0), "b2:9404")], 10)
    assert [each.down for each in page.nodes] == ["Connection refused", None]
    columns, rows = tables_of(page)[0]
    assert columns[-1] == "DOWN"
    assert [row[-1] for row in rows] == ["Connection refused", None]
    back = page_of([look(None)], [look(broker(2.0))], 10)
    assert back.nodes[0].down is None
    assert "DOWN" not in tables_of(back)[0][0]


def test_a_controller_has_no_figures_of_brokers() -> None:
    looks = [look(NodeMetrics(at_s, cpu_s=at_s)) for at_s in (1.0, 2.0)]
    (row,) = page_of(looks[:1], looks[1:], 10).nodes
    assert row.cpu_percent == 100.0
    assert {row.requests_per_s, row.queue_ms, row.bytes_in_per_s, row.under_replicated} == {None}


def test_topics_are_summed_over_brokers_and_the_busiest_come_first() -> None:
    servers = ("b1:9404", "b2:9404")
    then = [look(broker(0.0, bytes_in={"idle": 5}), each) for each in servers]
    now = [
        look(
            broker(
                2.0,
                messages_in={"a": 4},
                bytes_in={"a": 40, "idle": 5},
                bytes_out={"a": 2, "b": 100},
            ),
            each,
        )
        for each in servers
    ]
    assert page_of(then, now, 10).topics == (
        TopicRow("b", 0.0, 0.0, 100.0),
        TopicRow("a", 4.0, 40.0, 2.0),
    )
    assert [each.name for each in page_of(then, now, 1).topics] == ["b"]
    assert page_of(then, now, 0).topics == ()


def test_clients_with_quotas_are_summed_over_brokers() -> None:
    ann, bob = ("ann", ""), ("bob", "app")
    usage = {(ann, "producer_byte_rate"): 10.0, (bob, "request_percentage"): 50.0}
    looks = [look(broker(0.0, quota_usage=usage), each) for each in ("b1:1", "b2:1")]  # type: ignore[arg-type]
    page = page_of([], looks, 10)
    assert page.clients == (
        ClientRow("bob", "app", {"request_percentage": 100.0}),
        ClientRow("ann", "", {"producer_byte_rate": 20.0}),
    )
    columns, rows = tables_of(page)[-1]
    assert columns == ("USER", "CLIENT ID", "PRODUCER_BYTE_RATE", "REQUEST_PERCENTAGE")
    assert rows[0] == ("bob", "app", None, "100.0")


@pytest.mark.parametrize("text", ["stele_requests_total{", 'process_cpu_seconds_total "x"'])
def test_what_is_no_page_of_metrics_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever its text
        parse(text, 0.0)
