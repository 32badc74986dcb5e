"""A worker of a share group in a process of its own, so that a drill can kill it.

``python -m chaos.drills.queue.worker BOOTSTRAP GROUP TOPIC HOW`` prints a line of JSON for each
record that it has got, and another one for each acknowledgement that was answered, until it is
ended by SIGTERM or its standard output is closed. ``HOW``: ``careful`` workers accept a record
after the work, ``hasty`` ones before it. Both release poison.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from typing import Final

from chaos.drills.queue.poison import is_poison
from chaos.drills.workload import name_of
from stele.aio import ShareConsumer
from stele.errors import ApiError, SteleError
from stele.ids import TopicPartition
from stele.real import RealClock
from stele.records import AcknowledgeType, ShareRecord

_POLL_MS: Final = 500
_MOST: Final = 20
_AFTER_AN_ERROR_S: Final = 0.2
_WORK_S: Final = 0.05
"""How long the work with the records of a poll takes. A worker that is killed most likely dies in
it."""


class Worker:
    """Takes records, says what becomes of them, and prints both."""

    def __init__(self, topic: str, *, is_hasty: bool) -> None:
        self._topic = topic
        self._is_hasty = is_hasty
        self._clock = RealClock()
        # What was said of each record and is not answered yet.
        self._said: dict[tuple[int, int], AcknowledgeType] = {}

    async def run(self, bootstrap: str, group: str) -> None:
        async with ShareConsumer(
            bootstrap,
            group_id=group,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=_MOST,
            on_acknowledged=self._answered,
            on_wait=lambda _: None,
        ) as consumer:
            consumer.subscribe([self._topic])
            while True:
                try:
                    await self._go_on(consumer)
                except SteleError:
                    # A leader or a coordinator that moves: poll again.
                    await asyncio.sleep(_AFTER_AN_ERROR_S)

    async def _go_on(self, consumer: ShareConsumer) -> None:
        asked_s = self._clock.monotonic()
        records = await consumer.poll(timeout_ms=_POLL_MS)
        if self._is_hasty:
            self._say(consumer, records)
            await self._work(records)
        for each in records:
            producer, number = name_of(each.value)
            _print(
                {
                    "got": [each.partition, each.offset, producer, number, each.delivery_count],
                    "asked": asked_s,
                    "at": self._clock.monotonic(),
                }
            )
        if not self._is_hasty:
            await self._work(records)
            self._say(consumer, records)

    async def _work(self, records: list[ShareRecord]) -> None:
        if records:
            await asyncio.sleep(_WORK_S)

    def _say(self, consumer: ShareConsumer, records: list[ShareRecord]) -> None:
        for each in records:
            _, number = name_of(each.value)
            kind = AcknowledgeType.RELEASE if is_poison(number) else AcknowledgeType.ACCEPT
            self._said[each.partition, each.offset] = kind
            consumer.acknowledge(each, kind)

    def _answered(
        self, partition: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        for offset in offsets:
            kind = self._said.pop((partition.partition, offset), None)
            if kind is None:
                continue
            outcome = kind.name if error is None else error.code.name
            _print(
                {
                    "said": [partition.partition, offset, outcome],
                    "at": self._clock.monotonic(),
                }
            )


def main() -> None:
    bootstrap, group, topic, how = sys.argv[1:]
    loop = asyncio.new_event_loop()
    working = loop.create_task(Worker(topic, is_hasty=how == "hasty").run(bootstrap, group))
    loop.add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        loop.run_until_complete(working)
    except (asyncio.CancelledError, BrokenPipeError):
        pass


def _print(line: object) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
