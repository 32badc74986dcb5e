"""What a broker counts of requests: total, local and remote time, and time in queues."""

from __future__ import annotations

from broker.metrics import BrokerMetrics
from runtime.kafka.requests import Queue
from runtime.metrics.registry import MetricsRegistry


def test_a_request_that_waits_has_a_local_and_a_remote_time() -> None:
    registry = MetricsRegistry()
    meter = BrokerMetrics(registry).of_requests("FETCH")
    meter.answered(0.5, 0.125)
    meter.answered(0.25)
    values = registry.values()
    assert values['stele_requests_total{api="FETCH"}'] == 2
    assert values['stele_request_seconds_sum{api="FETCH"}'] == 0.75
    assert values['stele_request_local_seconds_sum{api="FETCH"}'] == 0.375
    assert values['stele_request_local_seconds_count{api="FETCH"}'] == 2
    assert values['stele_request_remote_seconds_sum{api="FETCH"}'] == 0.375
    assert values['stele_request_remote_seconds_count{api="FETCH"}'] == 1


def test_waits_are_counted_by_their_queue() -> None:
    registry = MetricsRegistry()
    meter = BrokerMetrics(registry).of_requests("FETCH")
    meter.waited(Queue.REQUESTS, 0.5)
    meter.waited(Queue.ANSWERS, 0.25)
    values = registry.values()
    assert values['stele_request_queue_seconds_sum{api="FETCH"}'] == 0.5
    assert values['stele_response_queue_seconds_sum{api="FETCH"}'] == 0.25
    assert values['stele_requests_total{api="FETCH"}'] == 0
