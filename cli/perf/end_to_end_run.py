"""``stele perf end-to-end``: from the time a record is to be sent to its arrival at a consumer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from cli.output import CommandError
from cli.perf.consume_run import Consuming
from cli.perf.latencies import Latencies
from cli.perf.pacing import send_paced
from stele.world import Clock

RUN_ID_BYTES: Final = 8
NUMBER_BYTES: Final = 8
LEAST_BYTES: Final = RUN_ID_BYTES + NUMBER_BYTES
"""A value begins with the id of the run and the record's number."""

_REPORT_EVERY: Final = 1000  # records, as Kafka's tool
_POLL_MS: Final = 500


class Reading(Consuming, Protocol):
    """``stele.aio.Consumer``."""

    def seek_to_end(self) -> None: ...

    async def position(self, topic: str, partition: int) -> int: ...


class Sending(Protocol):
    """``stele.aio.Producer``."""

    async def send(self, topic: str, value: bytes) -> asyncio.Future[Any]: ...


class EndToEndRun:
    """Sends numbered records and reads them. Records of others in the topic do not count."""

    def __init__(
        self,
        producer: Sending,
        consumer: Reading,
        clock: Clock,
        *,
        topic: str,
        records: int,
        record_size: int,
        run_id: bytes,
        per_s: float | None,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        """``per_s``: None sends each record when the one before has arrived. ``timeout_s``: the
        longest time without the arrival of a record. ``say`` is given a line for each 1,000."""
        self._producer = producer
        self._consumer = consumer
        self._clock = clock
        self._topic = topic
        self._records = records
        self._filler = b"x" * (record_size - LEAST_BYTES)
        self._run_id = run_id
        self._per_s = per_s
        self._timeout_s = timeout_s
        self._say = say
        self._intended_s: dict[int, float] = {}  # of records that have not arrived
        self._arrival = asyncio.Event()
        self.latencies = Latencies()

    async def run(self) -> None:
        """Raises CommandError if records do not arrive, SteleError if they cannot be sent."""
        partitions = await self._consumer.partitions_for(self._topic)
        self._consumer.assign([(self._topic, each) for each in partitions])
        self._consumer.seek_to_end()
        for each in partitions:
            await self._consumer.position(self._topic, each)
        sending = asyncio.get_running_loop().create_task(self._send_all())
        try:
            await self._receive(sending)
            await sending
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(sending, return_exceptions=True)

    async def _send_all(self) -> None:
        if self._per_s is not None:
            await send_paced(self._send, self._records, self._per_s, self._clock)
            return
        for number in range(self._records):
            await self._send(number, self._clock.monotonic())
            while number in self._intended_s:
                self._arrival.clear()
                await self._arrival.wait()

    async def _send(self, number: int, intended_s: float) -> None:
        self._intended_s[number] = intended_s
        value = self._run_id + number.to_bytes(NUMBER_BYTES, "big") + self._filler
        delivery = await self._producer.send(self._topic, value)
        # If it fails, it does not arrive, and the time-out tells why.
        delivery.add_done_callback(lambda done: done.exception())

    async def _receive(self, sending: asyncio.Task[None]) -> None:
        heard = self._clock.monotonic()
        while self.latencies.count < self._records:
            records = await self._consumer.poll(timeout_ms=_POLL_MS)
            now = self._clock.monotonic()
            if sending.done() and sending.exception() is not None:
                return  # its error is raised
            if self._take([each.value or b"" for each in records], now):
                heard = now
                self._arrival.set()
            elif now - heard > self._timeout_s:
                raise CommandError(
                    f"no record arrived for {self._timeout_s:g} s, after {self.latencies.count} of "
                    f"{self._records}"
                )

    def _take(self, values: list[bytes], now: float) -> bool:
        """Whether there was a record of this run that had not arrived before."""
        before = self.latencies.count
        for value in values:
            if value[:RUN_ID_BYTES] != self._run_id:
                continue
            number = int.from_bytes(value[RUN_ID_BYTES:LEAST_BYTES], "big")
            intended_s = self._intended_s.pop(number, None)
            if intended_s is None:
                continue
            if number % _REPORT_EVERY == 0:
                self._say(f"{number}\t{(now - intended_s) * 1000:g}")
            self.latencies.add(now - intended_s)
        return self.latencies.count > before
