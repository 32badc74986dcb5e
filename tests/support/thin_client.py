"""A thin client of ``stele.v1.Log`` over any channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from stele.errors import ErrorCode
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


class Member(Subscribing):
    """A member of a group that reads one topic of numbers, and what it has heard."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.topic = ""
        self.owned: set[int] = set()
        self.lost: set[int] = set()
        self.values: list[int] = []
        self.commits: list[pb.Committed] = []
        self.topic_ids: list[bytes] = []  # with which records came, each once
        # By partition, as records and positions have told them: the next offset, and the log's end.
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    async def join(self, group: str, topic: str, records: int, **more: Any) -> None:
        self.topic = topic
        start = pb.SubscribeStart(
            group=group,
            topics=[topic],
            offset_reset=pb.SubscribeStart.OFFSET_RESET_EARLIEST,
            credit=pb.Credit(records=records),
            **more,
        )
        await self.send(pb.SubscribeRequest(start=start))

    async def commit(self, offsets: dict[int, int], topic: str = "", topic_id: bytes = b"") -> None:
        commit = pb.Commit()
        for partition, offset in offsets.items():
            commit.offsets.add(
                topic=topic or self.topic, partition=partition, offset=offset, topic_id=topic_id
            )
        await self.send(pb.SubscribeRequest(commit=commit))

    async def hear(self, patience_s: float = 0.2) -> None:
        """Take what the broker says within this time."""
        if self._hearing is None:
            self._hearing = asyncio.ensure_future(self.receive())
        try:
            async with asyncio.timeout(patience_s):
                response = await asyncio.shield(self._hearing)
        except TimeoutError:
            return
        self._hearing = None
        assert response is not None, "the stream has ended"
        for each in response.assigned.partitions:
            assert each.partition not in self.owned
            self.owned.add(each.partition)
        for taken in response.revoked.partitions:
            self.owned.remove(taken.partition)
            self.positions.pop(taken.partition, None)
            if response.revoked.is_lost:
                self.lost.add(taken.partition)
        if response.HasField("records"):
            assert response.records.partition in self.owned
            self.values += [int(each.value) for each in response.records.records]
            self.positions[response.records.partition] = response.records.records[-1].offset + 1
            self.ends[response.records.partition] = response.records.end_offset
            if response.records.topic_id not in self.topic_ids:
                self.topic_ids.append(response.records.topic_id)
        for moved in response.positions.partitions:
            assert moved.partition in self.owned
            assert moved.position >= self.positions.get(moved.partition, 0)
            self.positions[moved.partition] = moved.position
            self.ends[moved.partition] = moved.end_offset
        if response.HasField("committed"):
            self.commits.append(response.committed)

    _hearing: asyncio.Future[pb.SubscribeResponse | None] | None = None


class Worker(Subscribing):
    """A member of a share group that takes records of one topic, and what it has heard."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.topic = ""
        self.got: list[tuple[int, int, int]] = []  # partition, offset, delivery count
        self.values: list[bytes] = []
        self.answers: list[tuple[int, int, str, bool]] = []
        """Partition, offset, the error's name or nothing, and whether it is of a renewal."""

    async def join(self, group: str, topic: str, records: int, **more: Any) -> None:
        self.topic = topic
        credit = pb.Credit(records=records)
        start = pb.SubscribeStart(share_group=group, topics=[topic], credit=credit, **more)
        await self.send(pb.SubscribeRequest(start=start))

    async def acknowledge(
        self, kind: pb.Acknowledge.Type, *places: tuple[int, int], topic: str = ""
    ) -> None:
        request = pb.Acknowledge()
        for partition, offset in places:
            request.batches.add(
                topic=topic or self.topic, partition=partition, offsets=[offset], type=kind
            )
        await self.send(pb.SubscribeRequest(acknowledge=request))

    async def hear(self) -> None:
        """Take one message."""
        response = await self.receive()
        assert response is not None, "the stream has ended"
        for record in response.records.records:
            place = response.records.partition, record.offset
            self.got.append((*place, record.delivery_count))
            self.values.append(record.value)
        for batch in response.acknowledged.batches:
            code = batch.error.code
            name = ErrorCode(code).name if code else ""
            for offset in batch.offsets:
                self.answers.append((batch.partition, offset, name, batch.is_renewal))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():
                await self.hear()


class Publishing:
    """One stream of Publish."""

    def __init__(self, channel: Channel) -> None:
        self._stream = channel.stream("/stele.v1.Log/Publish")
        self.results: dict[int, pb.PublishResult] = {}

    async def send(self, *records: pb.PublishRecord, topic: str = "t", **more: Any) -> None:
        request = pb.PublishRequest(topic=topic, records=records, **more)
        await self._stream.send(request.SerializeToString())

    async def receive(self, count: int) -> list[pb.PublishResult]:
        """Wait for the first ``count`` results. Returns them by number."""
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
