"""What the records of ``__transaction_state`` say, in the form of ``kafka-dump-log``."""

from __future__ import annotations

import itertools
from typing import Any

from broker.coordinator.transaction.records import RecordedTransaction, decode_key, decode_value
from broker.coordinator.transaction.types import NO_EPOCH, NO_PRODUCER_ID, TransactionState
from stele.wire.batch import Record

_VERSION_BYTES = 2


def decode_record(record: Record) -> dict[str, Any]:
    """Key and payload as nested values with Kafka's names. Raises ValueError for a record of
    another kind than a transaction coordinator's."""
    if record.key is None:
        raise ValueError("a record without a key")
    key = {"type": "0", "data": {"transactionalId": decode_key(bytes(record.key))}}
    if record.value is None:
        return {"key": key, "payload": None}
    data = bytes(record.value)
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    payload = {"version": str(version), "data": _transaction(decode_value(data))}
    return {"key": key, "payload": payload}


def _transaction(value: RecordedTransaction) -> dict[str, Any]:
    named: dict[str, Any] = {
        "producerId": value.producer_id,
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.state.value,
        "transactionPartitions": _partitions(value),
        "transactionLastUpdateTimestampMs": value.update_time_ms,
        "transactionStartTimestampMs": value.start_time_ms,
    }
    if value.previous_producer_id != NO_PRODUCER_ID:
        named["previousProducerId"] = value.previous_producer_id
    if value.next_producer_id != NO_PRODUCER_ID:
        named["nextProducerId"] = value.next_producer_id
    if value.client_version:
        named["clientTransactionVersion"] = value.client_version
    if value.next_producer_epoch != NO_EPOCH:
        named["nextProducerEpoch"] = value.next_producer_epoch
    return named


def _partitions(value: RecordedTransaction) -> list[dict[str, Any]] | None:
    if value.state is TransactionState.EMPTY:
        return None
    by_topic = itertools.groupby(value.partitions, key=lambda each: each.topic)
    return [
        {"topic": topic, "partitionIds": [each.partition for each in group]}
        for topic, group in by_topic
    ]
