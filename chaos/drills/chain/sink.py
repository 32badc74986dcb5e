"""The end of the chain: ``python -m chaos.drills.chain.sink BOOTSTRAP PARTITIONS``.

It reads what is committed, from the beginning, and prints a line of JSON with the runs of records
that came out.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from chaos.drills.chain.printing import print_line, run_until_terminated
from chaos.drills.chain.records import TOPICS, runs_of
from stele.aio import Consumer
from stele.errors import SteleError
from stele.real import RealClock

_RECORDS_AT_ONCE: Final = 10_000
_POLL_MS: Final = 200
_AFTER_AN_ERROR_S: Final = 0.2


async def read(bootstrap: str, partitions: int) -> None:
    """Read until cancelled."""
    clock = RealClock()
    async with Consumer(
        bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_poll_records=_RECORDS_AT_ONCE,
        on_wait=lambda _: None,
    ) as consumer:
        consumer.assign([(TOPICS[-1], each) for each in range(partitions)])
        while True:
            try:
                records = await consumer.poll(timeout_ms=_POLL_MS)
            except SteleError:
                await asyncio.sleep(_AFTER_AN_ERROR_S)  # it goes on where it was
                continue
            values = ((each.partition, each.value) for each in records)
            if runs := runs_of(values, clock.monotonic() * 1000):
                print_line({"out": runs})


def main() -> None:
    bootstrap, partitions = sys.argv[1:]
    run_until_terminated(read(bootstrap, int(partitions)))


if __name__ == "__main__":
    main()
