"""Outcomes of requests: a bounded memory, from which all nodes forget the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata import delta as module
from metadata.delta import replay_values
from metadata.image import EMPTY
from metadata.outcomes import FIRST_LIMITS, LIMITS, NO_OUTCOMES, Limits, RequestOutcome
from metadata.records import encode
from metadata.snapshot import image_of, records_of
from stele.wire.v1 import metadata_pb2 as pb


def outcome(number: int, size: int = 1) -> RequestOutcome:
    return RequestOutcome(number.to_bytes(16, "big"), "CreateTopics", b"d", bytes(size))


def test_the_oldest_is_forgotten_first() -> None:
    remembered = NO_OUTCOMES
    for number in range(LIMITS.outcomes + 3):
        remembered = remembered.with_(outcome(number))
    assert len(remembered) == LIMITS.outcomes
    assert remembered.get(outcome(2).request_id) is None
    assert [next(iter(remembered)), remembered.get(outcome(3).request_id)] == [outcome(3)] * 2


def test_long_replies_make_less_room_but_the_newest_is_always_there() -> None:
    remembered = NO_OUTCOMES.with_(outcome(1)).with_(outcome(2, LIMITS.reply_bytes))
    assert list(remembered) == [outcome(2, LIMITS.reply_bytes)]
    assert list(remembered.with_(outcome(3))) == [outcome(3)]


def test_an_id_has_one_outcome() -> None:
    with pytest.raises(ValueError, match="has an outcome already"):
        NO_OUTCOMES.with_(outcome(1)).with_(outcome(1, 2))


@given(sizes=st.lists(st.integers(0, 60), max_size=30))
def test_it_is_a_queue_with_two_bounds(sizes: list[int]) -> None:
    """Compared with a list that is cut at its front. A snapshot keeps what it remembers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIRST_LIMITS", Limits(5, 100))
        image, twin = EMPTY, []
        for number, size in enumerate(sizes):
            twin.append(outcome(number, size))
            while len(twin) > 5 or (len(twin) > 1 and sum(len(o.reply) for o in twin) > 100):
                del twin[0]
            new = twin[-1]
            record = pb.RequestOutcomeRecord(
                request_id=new.request_id, method=new.method, digest=new.digest, reply=new.reply
            )
            image = replay_values(
                image, number, [encode(pb.MetadataRecord(request_outcome=record))]
            )
            assert list(image.outcomes) == twin
        if sizes:
            assert image_of(len(sizes), list(records_of(image))) == image


def test_what_would_be_pushed_out() -> None:
    limits = Limits(3, 100)
    remembered = NO_OUTCOMES
    assert remembered.pushed_out_by(1000, limits) is None
    for number in range(3):
        assert remembered.pushed_out_by(10, limits) is None
        remembered = remembered.with_(outcome(number, 10), limits)
    assert remembered.pushed_out_by(80, limits) == outcome(0, 10)
    assert remembered.pushed_out_by(81, limits) == outcome(1, 10)
    assert remembered.pushed_out_by(1000, limits) == outcome(2, 10)


def test_each_level_of_the_metadata_has_its_limits() -> None:
    def level(number: int) -> bytes:
        feature = pb.FeatureLevelRecord(name="metadata.version", level=number)
        return encode(pb.MetadataRecord(feature_level=feature))

    def remembered(number: int) -> bytes:
        record = pb.RequestOutcomeRecord(request_id=number.to_bytes(16, "big"), decided_ms=7)
        return encode(pb.MetadataRecord(request_outcome=record))

    count = FIRST_LIMITS.outcomes + 10
    records = [remembered(number) for number in range(count)]
    assert len(replay_values(EMPTY, 0, [level(3), *records]).outcomes) == FIRST_LIMITS.outcomes
    image = replay_values(EMPTY, 0, [level(4), *records])
    assert len(image.outcomes) == count
    restored = image_of(image.offset + 1, list(records_of(image)))
    assert restored == image
    assert next(iter(restored.outcomes)).decided_ms == 7
    lowered = replay_values(image, image.offset + 1, [level(3)])
    assert len(lowered.outcomes) == FIRST_LIMITS.outcomes
    assert next(iter(lowered.outcomes)).request_id == (10).to_bytes(16, "big")
