"""A hop of the chain with confluent-kafka, where that is installed; otherwise as
``chaos.drills.chain.hop``.

librdkafka's ``send_offsets_to_transaction`` may never return if the coordinator of the group dies,
and ignores its time-out (librdkafka #5511 and #5456, seen with 2.16). So the process begins
anew when a transaction takes longer than its time-out: the coordinator has aborted it by then.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from chaos.drills.chain.hop import (
    HEARTBEAT_MS,
    RECORDS_AT_ONCE,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    group_of,
)
from chaos.drills.chain.printing import print_line
from chaos.drills.chain.records import TOPICS, passed_on

_POLL_S = 0.05
_HUNG_S = TRANSACTION_TIMEOUT_MS / 1000 + 5
_LOOK_S = 1.0
_TIMEOUT_S = 60.0


class Watch(threading.Thread):
    """Begins the process anew, with the same arguments and the same output, if a transaction
    hangs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.began_s: float | None = None  # of the transaction that is under way

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            began_s = self.began_s
            if began_s is not None and time.monotonic() - began_s > _HUNG_S:
                print_line({"again": f"a call of librdkafka did not return in {_HUNG_S:.0f} s"})
                os.execv(sys.executable, sys.orig_argv)


WATCH = Watch()


def work(bootstrap: str, hop: int, *, is_outside: bool) -> None:
    while True:
        try:
            _live(bootstrap, hop, is_outside=is_outside)
        except KafkaException as error:
            print_line({"again": str(error)})


def _live(bootstrap: str, hop: int, *, is_outside: bool) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_of(hop),
            "group.instance.id": group_of(hop),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    )
    try:
        consumer.subscribe([TOPICS[hop - 1]])
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": group_of(hop),
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(_TIMEOUT_S)
        while True:
            polled = consumer.consume(RECORDS_AT_ONCE, _POLL_S)
            records = [each for each in polled if each.error() is None]
            if records:
                WATCH.began_s = time.monotonic()
                _transaction(consumer, producer, records, hop, is_outside=is_outside)
                WATCH.began_s = None
    finally:
        WATCH.began_s = None
        consumer.close()


def _transaction(
    consumer: Consumer, producer: Producer, records: list[Message], hop: int, *, is_outside: bool
) -> None:
    """Raises KafkaException if both clients have to begin anew."""
    began = time.monotonic()
    ends = {_number(each.partition()): _number(each.offset()) + 1 for each in records}
    offsets = [TopicPartition(TOPICS[hop - 1], each, end) for each, end in sorted(ends.items())]
    try:
        if is_outside:
            consumer.commit(offsets=offsets, asynchronous=False)
        producer.begin_transaction()
        for each in records:
            value = passed_on(each.value() or b"", hop)
            producer.produce(TOPICS[hop], value, partition=_number(each.partition()))
        if not is_outside:
            producer.send_offsets_to_transaction(
                offsets, consumer.consumer_group_metadata(), _TIMEOUT_S
            )
        producer.commit_transaction(_TIMEOUT_S)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if not reason.txn_requires_abort():
            raise
        producer.abort_transaction(_TIMEOUT_S)
        print_line({"aborted": len(records), "why": str(reason)})
        for partition in consumer.committed(consumer.assignment(), _TIMEOUT_S):
            if partition.offset >= 0:
                consumer.seek(partition)
            else:
                consumer.seek(TopicPartition(partition.topic, partition.partition, 0))
    else:
        took_ms = round(1000 * (time.monotonic() - began), 1)
        print_line({"committed": len(records), "took_ms": took_ms})


def _number(value: int | None) -> int:
    assert value is not None  # a record has both
    return value


def main() -> None:
    bootstrap, hop, offsets = sys.argv[1:]
    WATCH.start()
    work(bootstrap, int(hop), is_outside=offsets == "outside")


if __name__ == "__main__":
    main()
