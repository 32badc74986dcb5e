"""A hop of the chain with the project's own client:
``python -m chaos.drills.chain.hop BOOTSTRAP NUMBER OFFSETS``.

It consumes, transforms and produces in transactions until it is ended, and prints a line of JSON
for each. OFFSETS is ``inside`` of the transaction, or ``outside``: then the offsets are committed
before it, which is wrong, and loses records when the process is killed in between.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from chaos.drills.chain.printing import print_line, run_until_terminated
from chaos.drills.chain.records import TOPICS, passed_on
from stele.aio import Consumer, Producer
from stele.consumer.polled import ConsumerRecords
from stele.errors import SteleError, TransactionAbortableError
from stele.records import ProducerRecord

RECORDS_AT_ONCE: Final = 4_000
"""A hop that was away catches up with transactions of this size."""

SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
TRANSACTION_TIMEOUT_MS: Final = 20_000
_POLL_MS: Final = 200
_AFTER_AN_ERROR_S: Final = 0.1


def group_of(hop: int) -> str:
    """Its only member has a name of its own, so it gets its partitions back at once when it was
    killed and comes again."""
    return f"chain-hop-{hop}"


async def work(bootstrap: str, hop: int, *, is_outside: bool) -> None:
    """Go on until cancelled. After an error that an abort does not end, both clients begin anew:
    the committed offsets say which records count."""
    while True:
        try:
            await _live(bootstrap, hop, is_outside=is_outside)
        except SteleError as error:
            print_line({"again": f"{type(error).__name__}: {error}"})
            await asyncio.sleep(_AFTER_AN_ERROR_S)


async def _live(bootstrap: str, hop: int, *, is_outside: bool) -> None:
    async with (
        Consumer(
            bootstrap,
            group_id=group_of(hop),
            group_instance_id=group_of(hop),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=RECORDS_AT_ONCE,
            on_wait=lambda _: None,
        ) as consumer,
        Producer(
            bootstrap,
            transactional_id=group_of(hop),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
            on_wait=lambda _: None,
        ) as producer,
    ):
        consumer.subscribe([TOPICS[hop - 1]])
        while True:
            records = await consumer.poll(timeout_ms=_POLL_MS)
            if not records:
                continue
            began = time.monotonic()
            try:
                if is_outside:
                    await consumer.commit()
                async with producer.transaction():
                    await producer.send_all(_transformed(records, hop))
                    if not is_outside:
                        await producer.send_offsets(consumer)
            except TransactionAbortableError as error:
                print_line({"aborted": len(records), "why": str(error)})
                consumer.seek_to_committed()
            else:
                took_ms = round(1000 * (time.monotonic() - began), 1)
                print_line({"committed": len(records), "took_ms": took_ms})


def _transformed(records: ConsumerRecords, hop: int) -> list[ProducerRecord]:
    return [
        ProducerRecord(TOPICS[hop], passed_on(each.value or b"", hop), partition=each.partition)
        for each in records
    ]


def main() -> None:
    bootstrap, hop, offsets = sys.argv[1:]
    run_until_terminated(work(bootstrap, int(hop), is_outside=offsets == "outside"))


if __name__ == "__main__":
    main()
