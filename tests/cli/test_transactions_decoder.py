"""``stele log dump --transaction-log-decoder``, with the names of Kafka's schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.coordinator.transaction.partitions import NO_PARTITIONS, TransactionPartitions
from broker.coordinator.transaction.records import (
    RecordedTransaction,
    transaction_record,
    transaction_tombstone,
)
from broker.coordinator.transaction.types import TransactionState
from cli import main
from cli.transactions_decoder import decode_record
from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, decode

KEY = {"type": "0", "data": {"transactionalId": "t"}}


def dump(file: Path, *options: str) -> int:
    return main.run(["log", "dump", str(file), "--transaction-log-decoder", *options])


def test_what_is_in_the_topic_of_transactions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = TransactionPartitions.of(
        (TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))
    )
    empty = RecordedTransaction(7, 0, 60_000, TransactionState.EMPTY, NO_PARTITIONS, 10)
    deciding = RecordedTransaction(
        7, 1, 60_000, TransactionState.PREPARE_COMMIT, partitions, 30, 20, 7, 9, 0, 2
    )
    done = empty._replace(state=TransactionState.COMPLETE_COMMIT)
    builder = BatchBuilder()
    for key, value in (
        transaction_record("t", empty, 0),
        transaction_record("t", deciding, 2),
        transaction_record("t", done, 1),
        transaction_tombstone("t"),
        (b"\0\x63", b"?"),
    ):
        builder.append(key, value, timestamp_ms=5)
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(builder.build())
    assert dump(file, "--json") == 0
    _, *rows = json.loads(capsys.readouterr().out)[str(file)]
    assert [row["key"] for row in rows] == [KEY, KEY, KEY, KEY, "0063"]
    assert rows[0]["payload"] == {
        "version": "0",
        "data": {
            "producerId": 7, "producerEpoch": 0, "transactionTimeoutMs": 60_000,
            "transactionStatus": 0, "transactionPartitions": None,
            "transactionLastUpdateTimestampMs": 10, "transactionStartTimestampMs": -1,
        },
    }  # fmt: skip
    assert rows[1]["payload"] == {
        "version": "1",
        "data": {
            "producerId": 7, "producerEpoch": 1, "transactionTimeoutMs": 60_000,
            "transactionStatus": 2,
            "transactionPartitions": [
                {"topic": "a", "partitionIds": [1, 2]}, {"topic": "b", "partitionIds": [0]},
            ],
            "transactionLastUpdateTimestampMs": 30, "transactionStartTimestampMs": 20,
            "previousProducerId": 7, "nextProducerId": 9, "clientTransactionVersion": 2,
            "nextProducerEpoch": 0,
        },
    }  # fmt: skip
    assert rows[2]["payload"]["data"]["transactionPartitions"] == []
    assert rows[3]["payload"] is None
    assert rows[4]["error"] == "a key of version 99"
    assert dump(file) == 0
    assert '"transactionalId": "t"' in capsys.readouterr().out


def test_a_topic_has_one_coordinator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(b"")
    assert dump(file, "--offsets-decoder") == main.EXIT_USAGE
    assert "one decoder" in capsys.readouterr().err


def test_a_record_without_a_key() -> None:
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=5)
    (record,) = decode(builder.build())
    with pytest.raises(ValueError, match="without a key"):
        decode_record(record)
