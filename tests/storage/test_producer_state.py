"""Idempotence as a table, and the snapshot's bytes."""

import struct

import pytest
from crc32c import crc32c

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import stamp
from storage.producer_state import ProducerStates, SnapshotError, decode_snapshot
from tests.support.batches import header_of, make_batch

APPENDED_MS = 2_000_000  # the records are older
MAX = 2**31 - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def states_after(*batches: tuple[int, int, int]) -> ProducerStates:
    """The states after producer 7 has sent these batches of (epoch, base sequence, count)."""
    states = ProducerStates()
    offset = 100
    for epoch, sequence, count in batches:
        header = header_of(make_batch(count, producer=(7, epoch, sequence)))
        states.update(header, offset, APPENDED_MS)
        offset += count
    return states


SIX = tuple((0, 2 * n, 2) for n in range(6))  # sequences 0..11 at offsets 100..111


@pytest.mark.parametrize(
    ("before", "sent", "expected"),
    [
        ((), (0, 0, 3), None),
        ((), (4, 99, 3), None),  # unknown producer: anywhere
        (((0, 0, 3),), (0, 3, 1), None),
        (((0, 0, 3),), (0, 0, 3), 100),  # the same again
        (((0, 0, 3),), (0, 0, 2), OUT_OF_ORDER),  # begins alike, ends elsewhere
        (((0, 0, 3),), (0, 1, 2), OUT_OF_ORDER),  # begins elsewhere, ends alike
        (((0, 0, 3),), (0, 4, 1), OUT_OF_ORDER),  # a gap
        (((0, 0, 3),), (0, 1, 1), OUT_OF_ORDER),
        (((3, 0, 3),), (2, 3, 1), FENCED),
        (((3, 0, 3),), (2, 0, 3), FENCED),
        (((3, 0, 3),), (4, 0, 1), None),  # a new epoch begins with 0
        (((3, 0, 3),), (4, 3, 1), OUT_OF_ORDER),
        (((3, 0, 3), (4, 0, 1)), (4, 0, 1), 103),
        (SIX, (0, 12, 1), None),
        (SIX, (0, 10, 2), 110),
        (SIX, (0, 2, 2), 102),  # the fifth last
        (SIX, (0, 0, 2), OUT_OF_ORDER),  # the sixth last is forgotten
        (((0, MAX - 1, 2),), (0, 0, 1), None),  # after the last sequence comes 0
        (((0, MAX, 3),), (0, 2, 1), None),
        (((0, MAX, 3),), (0, MAX, 3), 100),
        (((0, MAX, 3),), (0, 3, 1), OUT_OF_ORDER),
    ],
)
def test_check(
    before: tuple[tuple[int, int, int], ...],
    sent: tuple[int, int, int],
    expected: int | ErrorCode | None,
) -> None:
    states = states_after(*before)
    epoch, sequence, count = sent
    header = header_of(make_batch(count, producer=(7, epoch, sequence)))
    if isinstance(expected, ErrorCode):
        with pytest.raises(ApiError) as caught:
            states.check(header)
        assert caught.value.code is expected
        return
    original = states.check(header)
    assert (None if original is None else original.base_offset) == expected


def test_the_snapshot_has_kafkas_layout() -> None:
    states = states_after((3, 10, 4))
    data = states.encode()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc == crc32c(data[6:])
    entry = struct.unpack_from(">qhiqiqiq", data, 10)
    assert entry == (7, 3, 13, 103, 3, APPENDED_MS, -1, -1)
    assert len(data) == 10 + 46


def test_a_snapshot_gives_back_every_batch_that_is_remembered() -> None:
    before = states_after(*SIX)
    states = ProducerStates.decode(before.encode())
    assert list(states) == list(before)
    for sequence in range(2, 12, 2):  # in flight over a restart, perhaps with others behind it
        original = states.check(header_of(make_batch(2, producer=(7, 0, sequence))))
        assert original is not None
        assert original.base_offset == 100 + sequence
    assert states.check(header_of(make_batch(1, producer=(7, 0, 12)))) is None
    assert states.encode() == before.encode()


def test_the_last_entry_of_a_producer_is_its_last_batch() -> None:
    """Kafka uses that one."""
    entries = decode_snapshot(states_after(*SIX, (1, 0, 3)).encode())
    assert [(entry.epoch, entry.last_sequence) for entry in entries] == [(1, 2)]
    entries = decode_snapshot(states_after(*SIX).encode())
    assert [entry.last_sequence for entry in entries] == [3, 5, 7, 9, 11]


@pytest.mark.parametrize("damage", ["short", "version", "flip", "count"])
def test_a_damaged_snapshot_is_reported(damage: str) -> None:
    data = bytearray(states_after((0, 0, 1)).encode())
    if damage == "short":
        del data[9:]
    elif damage == "version":
        data[1] = 9
    elif damage == "flip":
        data[20] ^= 1
    else:
        data = data[:-46]
        data[2:6] = struct.pack(">I", crc32c(data[6:]))
    with pytest.raises(SnapshotError):
        decode_snapshot(data)


def test_silent_producers_are_forgotten() -> None:
    states = states_after((0, 0, 1))
    states.expire(APPENDED_MS + 499, 500)
    assert len(states) == 1
    states.expire(APPENDED_MS + 500, 500)
    assert len(states) == 0


def test_a_busy_producer_of_old_records_is_not_forgotten() -> None:
    """Also across a snapshot, however old the records are."""
    states = ProducerStates()
    for sequence in range(3):
        header = header_of(make_batch(timestamp_ms=5, producer=(7, 0, sequence)))
        assert states.check(header) is None
        states.update(header, sequence, APPENDED_MS + sequence)
        states.expire(APPENDED_MS + 100, 500)
    states = ProducerStates.decode(states.encode())
    states.expire(APPENDED_MS + 501, 500)
    assert states.check(header) is not None
    states.expire(APPENDED_MS + 502, 500)
    assert states.check(header) is None


def test_a_batch_that_tells_when_it_was_appended_is_believed() -> None:
    """By every replica, and whenever the batch is read again."""
    batch = make_batch(timestamp_ms=5, producer=(7, 0, 0))
    stamp(batch, 0, base_offset=0, leader_epoch=0, log_append_time_ms=1000)
    states = ProducerStates()
    states.update(header_of(batch), 0, APPENDED_MS)
    original = states.check(header_of(batch))
    assert original is not None
    assert original.append_time_ms == 1000


def test_a_batch_of_another_epoch_repeats_none() -> None:
    entry = states_after((3, 0, 3)).get(7)
    assert entry is not None
    assert entry.find(header_of(make_batch(3, producer=(7, 3, 0)))) is not None
    assert entry.find(header_of(make_batch(3, producer=(7, 4, 0)))) is None


def test_any_id_but_a_negative_one_is_a_producer() -> None:
    states = ProducerStates()
    for producer_id in (-1, 0):
        header = header_of(make_batch(1, producer=(producer_id, 0, 0)))
        states.update_from(header, None, APPENDED_MS)
    assert [entry.producer_id for entry in states] == [0]


def test_a_snapshot_knows_a_producer_that_sent_no_sequence() -> None:
    """A control batch has none, but shows that the producer is alive."""
    control = header_of(make_batch(1, producer=(7, 3, -1)))
    states = states_after((3, 0, 1), (3, 1, 1))
    states.update(control, 102, APPENDED_MS + 1)
    states.update(header_of(make_batch(1, producer=(8, 5, -1))), 103, APPENDED_MS)
    entries = decode_snapshot(states.encode())
    assert [(each.producer_id, each.epoch, each.last_append_ms) for each in entries] == [
        (7, 3, APPENDED_MS),
        (7, 3, APPENDED_MS + 1),
        (8, 5, APPENDED_MS),
    ]
    assert [len(each.batches) for each in entries] == [1, 1, 0]


def test_a_snapshot_of_two_epochs_gives_back_the_later_one() -> None:
    """Our snapshots never have both: a later epoch replaces an earlier one."""
    bodies = [states_after((epoch, 0, 3)).encode()[10:] for epoch in (3, 4)]
    body = struct.pack(">i", 2) + b"".join(bodies)
    states = ProducerStates.decode(struct.pack(">hI", 1, crc32c(body)) + body)
    (entry,) = states
    assert (entry.epoch, len(entry.batches)) == (4, 1)
