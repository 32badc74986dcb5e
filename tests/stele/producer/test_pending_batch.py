"""A batch encodes single records later, together. Nothing shows it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.producer.accumulator import PendingBatch
from stele.producer.arguments import new_record
from stele.producer.idempotence import Entry, Identity
from stele.wire import native
from stele.wire.batch import BatchBuilder
from stele.wire.compression import Compression

MODULES = [None] if native.NATIVE is None else [None, native.NATIVE]

a_record = st.builds(
    lambda value, key, headers, time_ms: new_record("t", value, key, headers, time_ms, None, None),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
    st.just(()) | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))),
    st.integers(0, 2**62),
)
steps = st.lists(st.sampled_from(["append", "append", "append", "extend", "look"]), max_size=30)


@pytest.mark.parametrize("module", MODULES)
@given(data=st.data(), chosen=steps, limit=st.integers(100, 2_000))
def test_a_batch_is_as_if_each_record_were_encoded_at_once(
    module: Any, data: st.DataObject, chosen: list[str], limit: int
) -> None:
    before, native.NATIVE = native.NATIVE, module
    try:
        batch, twin, memory = PendingBatch(TopicPartition("t", 0), 0.0, 0), BatchBuilder(), 0
        for step in chosen:
            record = data.draw(a_record)
            time_ms = record.timestamp_ms
            assert time_ms is not None
            has_room = not twin.record_count or twin.size_bytes + record.size <= limit
            if step == "look":
                assert batch.size_bytes == twin.size_bytes
                continue
            if step == "append":
                assert batch.append(record, time_ms, limit) == has_room
            else:
                added = batch.extend([record], 0, limit, time_ms, are_waited_for=True)
                assert added == has_room
            if has_room:
                twin.append(record.key, record.value, timestamp_ms=time_ms, headers=record.headers)
                memory += record.size
            assert (batch.record_count, batch.memory) == (twin.record_count, memory)
        if twin.record_count:
            entry = Entry(batch, batch.record_count, 7, Identity(5, 1), 0)
            made = batch.encoded(entry, Compression.NONE, is_transactional=False)
            assert made == twin.build(producer_id=5, producer_epoch=1, base_sequence=7)
            assert batch.size_bytes == len(made)
    finally:
        native.NATIVE = before


def test_a_batch_encodes_its_records_before_they_are_many() -> None:
    """The turn of the event loop in which a large batch is sent encodes only its last records."""
    batch = PendingBatch(TopicPartition("t", 0), 0.0, 0)
    record = new_record("t", b"v", None, (), 1, None, None)
    most = 0
    for _ in range(1_200):
        batch.append(record, 1, 1 << 20)
        assert batch.builder is not None
        most = max(most, batch.record_count - batch.builder.record_count)
    assert most == 499
