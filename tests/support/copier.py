"""A process that reads, transforms and writes exactly once: ``python -m tests.support.copier``.

Arguments: bootstrap servers, source, target, group, transactional id. It runs until it is
killed, and prints a line for each committed transaction.
"""

from __future__ import annotations

import logging
import sys

from stele import Consumer, Producer, TransactionAbortableError
from stele.errors import SteleError, TransactionFatalError, TransactionOutcomeUnknownError


def copy(servers: str, source: str, target: str, group: str, transactional_id: str) -> None:
    """One life of consumer and producer. Ends by an error after which both begin anew."""
    with (
        Consumer(
            servers,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_records=20,
        ) as consumer,
        Producer(
            servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=15_000,
        ) as producer,
    ):
        consumer.subscribe([source])
        while True:
            records = consumer.poll(timeout_ms=200)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        assert record.value is not None
                        producer.send(target, record.value.upper(), key=record.key)
                    producer.send_offsets(consumer)
            except TransactionAbortableError as error:
                print("aborted", error, flush=True)
                consumer.seek_to_committed()
            else:
                print("committed", len(records), flush=True)


def main(*arguments: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    while True:
        try:
            copy(*arguments)
        except (TransactionFatalError, TransactionOutcomeUnknownError) as error:
            # The committed offsets tell what counts, and another producer ends what is open.
            print("again", error, flush=True)
        except SteleError as error:
            print("again", type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
