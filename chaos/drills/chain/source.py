"""The source of the chain:
``python -m chaos.drills.chain.source BOOTSTRAP LABEL PARTITIONS PER_S BEHIND``.

It writes that many records a second, over all partitions, until SIGTERM, and ``BEHIND`` more, which
its predecessors did not write in time. It prints a line of JSON before it sends some, and another
one when all of them are acknowledged or have failed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Final

from chaos.drills.chain.printing import print_line, run_until_terminated
from chaos.drills.chain.records import TOPICS, Run, value_of
from stele.aio import Producer
from stele.errors import SteleError
from stele.producer.outcomes import Delivery
from stele.real import RealClock

_TICK_S: Final = 0.05
_AT_ONCE: Final = 5_000
"""It makes up for lost time with so many records at a time."""
_DELIVERY_TIMEOUT_MS: Final = 300_000
"""Above any outage that a drill may make. A record that fails nevertheless is printed."""


class _Batch:
    """Records that were sent together, and how many of them have no outcome yet."""

    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs
        self._open = sum(run.length for run in runs)
        self._error = ""

    def done(self, delivery: Delivery) -> None:
        if delivery.cancelled():
            self._error = "cancelled"
        elif (error := delivery.exception()) is not None:
            self._error = f"{type(error).__name__}: {error}"
        self._open -= 1
        if self._open == 0:
            if self._error:
                print_line({"failed": self._runs, "error": self._error})
            else:
                print_line({"acked": self._runs})


async def write(bootstrap: str, label: str, partitions: int, per_s: float, behind: int) -> None:
    """Write until cancelled, and then wait for the outcome of everything."""
    loop, clock = asyncio.get_running_loop(), RealClock()
    numbers = [0] * partitions
    producer = Producer(
        bootstrap,
        delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
        max_block_ms=_DELIVERY_TIMEOUT_MS,
        on_wait=lambda _: None,
    )
    try:
        await producer.partitions_for(TOPICS[0])
        began, sent = loop.time(), -behind
        while True:
            await producer.room()
            due = min(int((loop.time() - began) * per_s) - sent, _AT_ONCE)
            runs = list(_shares(label, numbers, due))
            if runs:
                print_line({"sent": runs})
                batch, now_ms = _Batch(runs), clock.monotonic() * 1000
                for run in runs:
                    for number in range(run.first, run.first + run.length):
                        value = value_of(label, run.partition, number, now_ms)
                        delivery = producer.send_nowait(TOPICS[0], value, partition=run.partition)
                        delivery.add_done_callback(batch.done)
                sent += due
            await asyncio.sleep(_TICK_S)
    finally:
        try:
            await producer.close()
        except SteleError:
            pass  # what has failed is printed


def _shares(label: str, numbers: list[int], count: int) -> Iterator[Run]:
    """Divide so many records over the partitions, and count them in ``numbers``."""
    share, more = divmod(count, len(numbers))
    for partition in range(len(numbers)):
        size = share + (partition < more)
        if size:
            yield Run(label, partition, numbers[partition], size)
            numbers[partition] += size


def main() -> None:
    bootstrap, label, partitions, per_s, behind = sys.argv[1:]
    run_until_terminated(write(bootstrap, label, int(partitions), float(per_s), int(behind)))


if __name__ == "__main__":
    main()
