"""The map of keys against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.compaction import offset_map
from storage.compaction.offset_map import OffsetMap
from storage.compaction.slots import SLOT_BYTES


@given(st.lists(st.binary(max_size=3)), st.sampled_from([0.5, 0.9, 1.0]))
def test_it_answers_as_a_dictionary(keys: list[bytes], load_factor: float) -> None:
    offsets = OffsetMap(1 << 20, load_factor, len(keys))
    twin: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        twin[key] = offset
    assert offsets.count == len(twin)
    assert {key: offsets.get(key) for key in twin} == twin
    assert offsets.get(b"not there") == -1


@given(st.integers(1, 200), st.sampled_from([0.1, 0.9, 1.0]))
def test_a_full_map_takes_no_more_keys_and_new_offsets_of_its_own(
    slots: int, load_factor: float
) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, load_factor, 1 << 40)
    taken = 0
    while offsets.put(b"%d" % taken, taken):
        taken += 1
    assert taken == offsets.capacity == offsets.count
    assert offsets.get(b"%d" % taken) == -1
    assert offsets.put(b"0", 7777)
    assert offsets.get(b"0") == 7777
    assert all(offsets.get(b"%d" % key) == key for key in range(1, taken))


def test_its_size_is_bounded_by_its_bytes_and_by_the_keys_to_come() -> None:
    assert 880 <= OffsetMap(24_000, 0.9, 1 << 40).capacity <= 900
    assert 100 <= OffsetMap(1 << 40, 0.9, 100).capacity <= 130


class _Digest:
    """Of a key of two bytes: the first one decides about one word, the second about the other."""

    def __init__(self, key: bytes, *, digest_size: int) -> None:
        half = digest_size // 2
        self._digest = bytes(half - 1) + key[:1] + bytes(half - 1) + key[1:2]

    def digest(self) -> bytes:
        return self._digest


def test_the_number_of_slots_is_the_greatest_prime_that_has_room() -> None:
    """Else double hashing would not come to every slot."""
    for room in range(3, 400):
        slots = OffsetMap(room * SLOT_BYTES, 1.0, 1 << 40).capacity + 1  # one stays empty
        divisors = [each for each in range(2, slots) if slots % each == 0]
        assert not divisors
        greater = range(slots + 1, room + 1)
        assert all(any(each % by == 0 for by in range(2, each)) for each in greater)


@pytest.mark.parametrize("high", [0, 5, 6, 7, 12, 13])
def test_keys_that_meet_go_on_to_other_slots(monkeypatch: pytest.MonkeyPatch, high: int) -> None:
    """With seven slots, whatever the second word of the digest is."""

    class Meeting:
        def __init__(self, key: bytes, *, digest_size: int) -> None:
            self._high = 100 if key == b"first" else high

        def digest(self) -> bytes:
            return bytes(8) + self._high.to_bytes(8, "little")

    monkeypatch.setattr(offset_map, "blake2b", Meeting)
    offsets = OffsetMap(7 * SLOT_BYTES, 1.0, 1 << 40)
    assert offsets.put(b"first", 1)
    assert offsets.put(b"second", 2)
    assert (offsets.get(b"first"), offsets.get(b"second")) == (1, 2)


def test_digests_that_share_a_word_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "blake2b", _Digest)
    offsets = OffsetMap(1 << 20, 0.9, 10)
    keys = [b"aa", b"ab", b"ba", b"bb"]
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
    assert [offsets.get(key) for key in keys] == [0, 1, 2, 3]


def test_the_first_word_decides_too_where_keys_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """With seven slots, both come to the same one at first."""

    class Meeting:
        def __init__(self, key: bytes, *, digest_size: int) -> None:
            self._low = 1 if key == b"first" else 8

        def digest(self) -> bytes:
            return self._low.to_bytes(8, "little") + (5).to_bytes(8, "little")

    monkeypatch.setattr(offset_map, "blake2b", Meeting)
    offsets = OffsetMap(7 * SLOT_BYTES, 1.0, 1 << 40)
    assert offsets.put(b"first", 1)
    assert offsets.put(b"second", 2)
    assert (offsets.get(b"first"), offsets.get(b"second")) == (1, 2)
