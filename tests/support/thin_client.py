"""A thin client of ``stele.v1.Log`` over any channel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel


def record(value: bytes | None = b"v", key: bytes | None = None, **more: Any) -> pb.PublishRecord:
    return pb.PublishRecord(key=key, value=value, **more)


class Subscribing:
    """One stream of Subscribe."""

    def __init__(self, channel: Channel) -> None:
        self._stream = channel.stream("/stele.v1.Log/Subscribe")

    async def start(self, *partitions: pb.PartitionStart, **more: Any) -> list[tuple[int, int]]:
        """Begin; position and end of each partition that is read."""
        start = pb.SubscribeStart(partitions=partitions, **more)
        await self.send(pb.SubscribeRequest(start=start))
        response = await self.receive()
        assert response is not None
        assert response.WhichOneof("response") == "assigned"
        return [(each.position, each.end_offset) for each in response.assigned.partitions]

    async def send(self, request: pb.SubscribeRequest) -> None:
        await self._stream.send(request.SerializeToString())

    async def grant(self, records: int, bytes_: int | None = None) -> None:
        await self.send(pb.SubscribeRequest(credit=pb.Credit(records=records, bytes=bytes_)))

    async def receive(self) -> pb.SubscribeResponse | None:
        payload = await self._stream.receive()
        return None if payload is None else pb.SubscribeResponse.FromString(payload)

    async def records(self, count: int) -> list[pb.SubscribedRecord]:
        """Wait for so many records."""
        found: list[pb.SubscribedRecord] = []
        while len(found) < count:
            response = await self.receive()
            assert response is not None, f"ended after {len(found)} of {count} records"
            found += response.records.records
        return found

    async def end(self) -> None:
        await self._stream.close()


class Publishing:
    """One stream of Publish."""

    def __init__(self, channel: Channel) -> None:
        self._stream = channel.stream("/stele.v1.Log/Publish")
        self.results: dict[int, pb.PublishResult] = {}

    async def send(self, *records: pb.PublishRecord, topic: str = "t", **more: Any) -> None:
        request = pb.PublishRequest(topic=topic, records=records, **more)
        await self._stream.send(request.SerializeToString())

    async def receive(self, count: int) -> list[pb.PublishResult]:
        """Wait until so many results have come, from the first one on. Returns those, by number."""
        while len(self.results) < count:
            await self.receive_more()
        return [self.results[number] for number in range(count)]

    async def receive_more(self) -> None:
        """Wait for one message."""
        payload = await self._stream.receive()
        assert payload is not None, f"ended after {len(self.results)} results"
        for result in pb.PublishResponse.FromString(payload).results:
            assert result.number not in self.results
            self.results[result.number] = result

    async def end(self) -> None:
        await self._stream.close()


async def publish(
    channel: Channel, records: Iterable[pb.PublishRecord], topic: str = "t"
) -> list[pb.PublishResult]:
    """Publish in one message; the results by number."""
    publishing = Publishing(channel)
    given = list(records)
    await publishing.send(*given, topic=topic)
    results = await publishing.receive(len(given))
    await publishing.end()
    return results
