"""A worker of a queue that survives the death of its process, and of its colleagues.

Start as many as you like, kill any of them, and start them again:

    python queue_worker.py 127.0.0.1:9092 mails orders

A record is accepted only after ``handle`` has returned, so a killed worker's record is given to
another one. A record whose handling raises is released and comes back, until the group's
``share.delivery.count.limit``. ``handle`` must bear to see a record twice: its worker may die after
the work and before the acknowledgement.
"""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType

from stele import ShareConsumer, ShareRecord, WakeupError

log = logging.getLogger("queue_worker")


def handle(record: ShareRecord) -> None:
    """The work. Replace it."""
    print(record.topic, record.partition, record.offset, record.value, flush=True)


def work(bootstrap_servers: str, group: str, topic: str) -> None:
    with ShareConsumer(
        bootstrap_servers,
        group_id=group,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",  # records that wait here are kept from other workers
        max_poll_records=1,
    ) as consumer:

        def stop(number: int, frame: FrameType | None) -> None:
            consumer.wakeup()  # the record at work is finished first

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        consumer.subscribe([topic])
        try:
            for record in consumer:
                try:
                    with consumer.processing(record):
                        handle(record)
                except Exception:
                    log.exception("released, delivery %d of %s", record.delivery_count, record)
        except WakeupError:
            consumer.commit()


if __name__ == "__main__":
    work(*sys.argv[1:4])
