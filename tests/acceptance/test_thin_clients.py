"""Clients that have nothing but ``proto/`` and one address, against live processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest

from chaos.process_cluster import ProcessCluster
from stele import Consumer, Producer
from stele.wire.v1 import log_pb2, status_pb2
from tests.conftest import CreateTopic
from tests.support.acceptance import grpc_port

pytestmark = pytest.mark.processes


def subscribe(channel: grpc.Channel, *requests: log_pb2.SubscribeRequest) -> Any:
    """The call, whose responses are its items. The client ends its side after the requests."""
    call: Any = channel.stream_stream(
        "/stele.v1.Log/Subscribe",
        request_serializer=log_pb2.SubscribeRequest.SerializeToString,
        response_deserializer=log_pb2.SubscribeResponse.FromString,
    )
    return call(iter(requests), timeout=60)


def start(*partitions: log_pb2.PartitionStart, records: int) -> log_pb2.SubscribeRequest:
    return log_pb2.SubscribeRequest(
        start=log_pb2.SubscribeStart(partitions=partitions, credit=log_pb2.Credit(records=records))
    )


def publish(
    channel: grpc.Channel, requests: Iterable[log_pb2.PublishRequest]
) -> Iterator[log_pb2.PublishResponse]:
    call: Any = channel.stream_stream(
        "/stele.v1.Log/Publish",
        request_serializer=log_pb2.PublishRequest.SerializeToString,
        response_deserializer=log_pb2.PublishResponse.FromString,
    )
    return iter(call(iter(requests), timeout=60))


def test_records_of_a_client_that_knows_one_broker_reach_all_leaders(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(6)
    address = f"127.0.0.1:{grpc_port(process_cluster, 102)}"
    values = [b"%d" % number for number in range(600)]
    with grpc.insecure_channel(address) as channel:
        requests = [
            log_pb2.PublishRequest(
                topic=topic,
                records=[
                    log_pb2.PublishRecord(key=value, value=value)
                    for value in values[start : start + 50]
                ],
            )
            for start in range(0, 600, 50)
        ]
        results = {
            result.number: result
            for response in publish(channel, requests)
            for result in response.results
        }
    assert sorted(results) == list(range(600))
    assert {result.partition for result in results.values()} == set(range(6))
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, number) for number in range(6)])
        found: dict[tuple[int, int], bytes | None] = {}
        while len(found) < 600:
            found |= {(each.partition, each.offset): each.value for each in consumer.poll()}
    for number, result in results.items():
        assert found[result.partition, result.offset] == values[number]


def details_of(error: grpc.RpcError) -> status_pb2.ErrorInfo:
    trailers = dict(error.trailing_metadata())
    status = status_pb2.RpcStatus.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    return status_pb2.ErrorInfo.FromString(detail.value)


def test_a_reader_that_knows_one_broker_gets_what_it_has_granted(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(6)
    with Producer(bootstrap) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, partition=number % 6)
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(process_cluster, 103)}") as channel:
        everything = log_pb2.PartitionStart(topic=topic, edge=log_pb2.PartitionStart.EDGE_EARLIEST)
        found = [
            record.value
            for response in subscribe(channel, start(everything, records=500))
            for record in response.records.records
        ]
        assert len(found) == len(set(found)) == 500


def test_the_status_of_a_stream_has_details(
    process_cluster: ProcessCluster, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(process_cluster, 101)}") as channel:
        options = log_pb2.PublishOptions()
        bad = [log_pb2.PublishRequest(), log_pb2.PublishRequest(options=options)]
        with pytest.raises(grpc.RpcError) as caught:
            list(publish(channel, bad))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        info = details_of(caught.value)
        assert (info.domain, info.reason) == ("stele", "INVALID_REQUEST")
        beyond = log_pb2.PartitionStart(topic=topic, offset=7)
        with pytest.raises(grpc.RpcError) as caught:
            list(subscribe(channel, start(beyond, records=1)))
        assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
        info = details_of(caught.value)
        assert info.reason == "OFFSET_OUT_OF_RANGE"
        assert dict(info.metadata) == {"topic": topic, "partition": "0", "offset": "7"}
