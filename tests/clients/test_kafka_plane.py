"""Our client over Kafka's protocol, and beside members that speak gRPC, on real brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stele import Consumer, Producer

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]


def test_records_pass_between_the_planes(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(3)
    values = [b"%d" % number * 100 for number in range(3000)]
    with (
        Producer(bootstrap, plane="kafka", compression="lz4") as over_kafka,
        Producer(bootstrap, plane="grpc") as over_grpc,
    ):
        for number, value in enumerate(values):
            producer = over_grpc if number % 3 == 0 else over_kafka
            producer.send(topic, value, partition=number % 3, headers=[("n", b"%d" % number)])
    for plane in ("kafka", "grpc"):
        with Consumer(bootstrap, plane=plane, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, partition) for partition in range(3)])
            read: list[bytes | None] = []
            while len(read) < len(values):
                read += [each.value for each in consumer.poll(timeout_ms=1000)]
            assert sorted(read) == sorted(values)
            assert consumer.end_offsets([(topic, 0)]) == {(topic, 0): 1000}
            found = consumer.offsets_for_times({(topic, 1): 0})
            assert found[topic, 1] is not None
