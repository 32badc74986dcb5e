"""The clients of ``bench thin``: through one broker's ``stele.v1.Log``, and by whole batches."""

from __future__ import annotations

import itertools
import time
from typing import Any, Final

import grpc.aio

from stele.aio import Consumer
from stele.grpc_channel import CHANNEL_OPTIONS
from stele.wire.v1 import log_pb2 as pb

Answer = dict[str, float]

_WINDOW_RECORDS: Final = 8_000  # that were sent and have no result
_CREDIT_RECORDS: Final = 20_000


def _streaming(channel: grpc.aio.Channel, method: str, request: Any, response: Any) -> Any:
    return channel.stream_stream(
        f"/stele.v1.Log/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )()


class ThinWriter:
    """Publishes messages of several records each."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._address: str = job["grpc"]
        self._topic: str = job["topic"]
        self._count: int = job["message_records"]
        self._value = bytes(job["record_bytes"])
        self._partitions: int = job["partitions"]
        self._is_publisher: bool = job["is_publisher"]

    async def throughput(self, seconds: float) -> Answer:
        async with grpc.aio.insecure_channel(self._address, CHANNEL_OPTIONS) as channel:
            options = pb.PublishOptions()
            if self._is_publisher:
                create = channel.unary_unary(
                    "/stele.v1.Log/CreatePublisher",
                    response_deserializer=pb.CreatePublisherResponse.FromString,
                )
                options.publisher_id = (await create(b"")).publisher_id
            call = _streaming(channel, "Publish", pb.PublishRequest, pb.PublishResponse)
            await call.write(pb.PublishRequest(options=options))
            return await self._publish(call, seconds)

    async def _publish(self, call: Any, seconds: float) -> Answer:
        messages = self._messages()
        sent = done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or done < sent:
            while sent - done < _WINDOW_RECORDS and time.perf_counter() - began < seconds:
                await call.write(next(messages))
                sent += self._count
            if done == sent:
                break
            for result in (await call.read()).results:
                if result.HasField("error"):
                    raise RuntimeError(result.error.message)
                done += 1
        spent = time.perf_counter() - began
        await call.done_writing()
        return {"records": done, "seconds": spent}

    def _messages(self) -> Any:
        """Messages for one partition after the other."""
        for number in itertools.count():
            partition, first = number % self._partitions, number // self._partitions * self._count
            yield pb.PublishRequest(
                topic=self._topic,
                records=[
                    pb.PublishRecord(
                        value=self._value,
                        partition=partition,
                        sequence=first + i if self._is_publisher else None,
                    )
                    for i in range(self._count)
                ],
            )


class ThinReader:
    """Reads the topic from its beginning, and grants what it has read."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._address: str = job["grpc"]
        self._topic: str = job["topic"]

    async def throughput(self, seconds: float) -> Answer:
        start = pb.SubscribeStart(
            partitions=[pb.PartitionStart(topic=self._topic, edge=pb.PartitionStart.EDGE_EARLIEST)],
            credit=pb.Credit(records=_CREDIT_RECORDS),
        )
        async with grpc.aio.insecure_channel(self._address, CHANNEL_OPTIONS) as channel:
            call = _streaming(channel, "Subscribe", pb.SubscribeRequest, pb.SubscribeResponse)
            await call.write(pb.SubscribeRequest(start=start))
            assigned = (await call.read()).assigned.partitions
            available = sum(each.end_offset - each.position for each in assigned)
            found = 0
            began = time.perf_counter()
            while found < available and time.perf_counter() - began < seconds:
                count = len((await call.read()).records.records)
                found += count
                await call.write(pb.SubscribeRequest(credit=pb.Credit(records=count)))
            spent = time.perf_counter() - began
            call.cancel()
        return {"records": found, "seconds": spent}


class OwnReader:
    """``stele.aio.Consumer``: whole batches from leaders."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._bootstrap: str = job["bootstrap"]
        self._topic: str = job["topic"]

    async def throughput(self, seconds: float) -> Answer:
        async with Consumer(self._bootstrap, auto_offset_reset="earliest") as consumer:
            numbers = await consumer.partitions_for(self._topic)
            names = [(self._topic, number) for number in numbers]
            available = sum((await consumer.end_offsets(names)).values())
            consumer.assign(names)
            found = 0
            began = time.perf_counter()
            while found < available and time.perf_counter() - began < seconds:
                found += len(await consumer.poll())
            return {"records": found, "seconds": time.perf_counter() - began}


KINDS: Final[dict[str, Any]] = {
    "thin writer": ThinWriter,
    "thin reader": ThinReader,
    "own reader": OwnReader,
}
