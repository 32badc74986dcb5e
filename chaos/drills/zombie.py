"""Requests that wait in front of a paused leader, and its answers when it wakes.

They are written to a connection that the leader accepted before the pause. So the leader reads them
at once when it goes on, before it can learn that it leads no more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.drills.cluster import Address
from chaos.drills.history import Acked, Failed, Sent, Zombie
from chaos.drills.recorder import Recorder
from chaos.drills.workload import value_of
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce
from stele.world import Clock

LABEL: Final = "zombie"
_VERSION: Final = 9
_TIMEOUT_MS: Final = 10_000
_NO_ANSWER: Final = "no answer"
_ACKS_ALL: Final = -1


class WaitingRequests:
    """Produce requests with acks=all to one broker, one for each of some partitions."""

    def __init__(self, broker_id: int, topic: str, recorder: Recorder, clock: Clock) -> None:
        self._broker_id, self._topic = broker_id, topic
        self._recorder, self._clock = recorder, clock
        self._partitions: list[int] = []
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self, address: Address) -> None:
        """Call this before the pause: a stopped process accepts no connection."""
        self._streams = await asyncio.open_connection(address.host, address.port)

    def send(self, partitions: list[int]) -> None:
        """Send the requests during the pause, without waiting until the broker reads them."""
        assert self._streams is not None
        self._partitions = partitions
        for number in partitions:
            self._recorder.add(Sent(self._recorder.now_ms, LABEL, number, 0))
            batch = BatchBuilder()
            batch.append(None, value_of(LABEL, 0), timestamp_ms=self._clock.time_ms())
            data = produce.PartitionProduceData(number, bytes(batch.build()))
            request = produce.ProduceRequest(
                None, _ACKS_ALL, _TIMEOUT_MS, [_topic_data(self._topic, data)]
            )
            for buffer in kafka.encode_request(produce.API, _VERSION, number, LABEL, request):
                self._streams[1].write(bytes(buffer))

    async def outcomes(self) -> None:
        """Record the answer to each request after the pause, or that none came."""
        assert self._streams is not None
        reader, writer = self._streams
        unanswered = set(self._partitions)
        try:
            async with asyncio.timeout(2 * _TIMEOUT_MS / 1000):
                while unanswered:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(size)
                    unanswered.discard(self._take(frame))
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
        for partition in sorted(unanswered):
            self._add(partition, _NO_ANSWER)

    def _take(self, frame: bytes) -> int:
        response = kafka.decode_response(produce.API, _VERSION, frame)
        (topic,) = response.responses
        (answer,) = topic.partition_responses
        self._add(answer.index, ErrorCode(answer.error_code).name, answer.base_offset)
        return int(answer.index)

    def _add(self, partition: int, outcome: str, offset: int = -1) -> None:
        now_ms = self._recorder.now_ms
        self._recorder.add(Zombie(now_ms, self._broker_id, partition, outcome))
        if outcome == ErrorCode.NONE.name:
            self._recorder.add(Acked(now_ms, LABEL, partition, 0, offset))
        else:
            self._recorder.add(Failed(now_ms, LABEL, partition, 0, outcome, maybe_written=True))


def _topic_data(topic: str, data: produce.PartitionProduceData) -> produce.TopicProduceData:
    return produce.TopicProduceData(topic, partition_data=[data])
