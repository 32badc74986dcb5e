"""Delegation tokens in an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.delegation_tokens import (
    DelegationToken,
    DelegationTokens,
    removal_record,
    token_record,
)
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError, encode
from metadata.secrets import without_secrets
from metadata.snapshot import image_of, records_of
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.tokens import TOKENS, token

NOTHING = pb.MetadataRecord(no_op=pb.NoOpRecord())


def replayed(image: MetadataImage, *records: pb.MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, each in enumerate(records, image.offset + 1):
        delta.replay(offset, each)
    return delta.apply()


@given(st.lists(TOKENS), st.lists(TOKENS | st.text("ab", min_size=1, max_size=2)))
def test_tokens_are_made_changed_and_removed(
    before: list[DelegationToken], changes: list[DelegationToken | str]
) -> None:
    first = replayed(EMPTY, NOTHING, *map(token_record, before))
    expected = {each.token_id: each for each in before}
    records = []
    for change in changes:
        if isinstance(change, DelegationToken):
            expected[change.token_id] = change
            records.append(token_record(change))
        elif expected.pop(change, None) is not None:
            records.append(removal_record(change))
    image = replayed(first, *records)
    assert dict(image.delegation_tokens) == expected
    assert image.delegation_tokens.sorted() == [expected[each] for each in sorted(expected)]
    again = image_of(image.offset + 1, list(records_of(image)))
    assert again.delegation_tokens == image.delegation_tokens
    skipped = MetadataDelta.between(first, image).apply()
    assert skipped.delegation_tokens is image.delegation_tokens


def test_an_image_that_nothing_changed_keeps_its_part() -> None:
    image = replayed(EMPTY, token_record(token()))
    after = replayed(image, NOTHING)
    assert after.delegation_tokens is image.delegation_tokens


def test_an_impossible_record_stops_the_node() -> None:
    with pytest.raises(MetadataError, match="no delegation token 'id' to be removed"):
        replayed(EMPTY, removal_record("id"))


def test_a_token_is_valid_until_the_end_of_its_last_millisecond() -> None:
    found = token(expiry_ms=100)
    assert not found.is_expired(99)
    assert not found.is_expired(100)
    assert found.is_expired(101)


def test_a_token_concerns_its_owner_its_renewers_and_its_maker() -> None:
    found = DelegationToken("id", "User:ann", "User:tool", ("User:rita",), 0, 1, 1)
    people = ("User:ann", "User:rita", "User:tool", "User:bob")
    assert [found.may_be_renewed_by(each) for each in people] == [True, True, False, False]
    assert [found.concerns(each) for each in people] == [True, True, True, False]


def test_records_of_tokens_hold_no_secret() -> None:
    """So they are shown as they are, and so is the image."""
    for record in (token_record(token()), removal_record("id")):
        assert without_secrets(encode(record)) == encode(record)
    fields = {each.name for each in pb.DelegationTokenRecord.DESCRIPTOR.fields}
    assert fields == set(DelegationToken._fields)
    assert len(DelegationTokens()) == 0
