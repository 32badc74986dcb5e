"""SCRAM credentials in an image, their stand-ins, and what readers of the log see of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError, decode, encode
from metadata.scram_credentials import (
    ScramCredentials,
    ScramUser,
    credential_record,
    removal_record,
    secret_record,
)
from metadata.secrets import without_secrets
from metadata.snapshot import image_of, records_of
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.scram import CREDENTIALS, USERS

SECRET = bytes(range(32))


def replayed(image: MetadataImage, *records: pb.MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, each in enumerate(records, image.offset + 1):
        delta.replay(offset, each)
    return delta.apply()


@given(st.dictionaries(USERS, CREDENTIALS), st.dictionaries(USERS, CREDENTIALS | st.none()))
def test_credentials_are_set_replaced_and_removed(
    before: dict[ScramUser, ScramCredential], changes: dict[ScramUser, ScramCredential | None]
) -> None:
    changes = {user: found for user, found in changes.items() if found or user in before}
    first = replayed(EMPTY, secret_record(SECRET))
    first = replayed(first, *(credential_record(*each) for each in before.items()))
    image = replayed(
        first,
        *(
            removal_record(user) if found is None else credential_record(user, found)
            for user, found in changes.items()
        ),
    )
    expected = {user: found for user, found in (before | changes).items() if found is not None}
    assert dict(image.scram_credentials.map) == expected
    assert image.scram_credentials.sorted() == sorted(expected.items())
    for user in expected:
        mechanism = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}[user.mechanism]
        assert image.scram_credentials.find(mechanism, user.name) == expected[user]
    again = image_of(image.offset + 1, list(records_of(image)))
    assert again.scram_credentials == image.scram_credentials
    skipped = MetadataDelta.between(first, image).apply()
    assert skipped.scram_credentials is image.scram_credentials
    told = image.scram_credentials.of_users()
    assert told == {user.name: image.scram_credentials.of_user(user.name) for user in expected}
    assert sum(map(len, told.values())) == len(image.scram_credentials) == len(expected)


def test_an_image_that_nothing_changed_keeps_its_part() -> None:
    image = replayed(EMPTY, secret_record(SECRET))
    after = replayed(image, pb.MetadataRecord(no_op=pb.NoOpRecord()))
    assert after.scram_credentials is image.scram_credentials


def test_what_cannot_be_stops_the_node() -> None:
    with pytest.raises(MetadataError, match="user 'a' has no SCRAM credential"):
        replayed(EMPTY, removal_record(ScramUser("a", 1)))
    record = pb.UserScramCredentialRecord(name="a", mechanism=3)
    with pytest.raises(MetadataError, match="no SCRAM mechanism 3"):
        replayed(EMPTY, pb.MetadataRecord(user_scram_credential=record))


def test_a_stand_in_is_the_same_on_every_node_and_of_its_user_alone() -> None:
    own = ScramCredentials(secret=SECRET)
    other = ScramCredentials(secret=bytes(32))
    found = own.stand_in(SCRAM_SHA_256, "a")
    assert found == ScramCredentials(secret=SECRET).stand_in(SCRAM_SHA_256, "a")
    assert (len(found.salt), found.iterations) == (20, 4096)
    assert len(own.stand_in(SCRAM_SHA_512, "a").stored_key) == 64
    salts = {
        found.salt,
        own.stand_in(SCRAM_SHA_512, "a").salt,
        own.stand_in(SCRAM_SHA_256, "b").salt,
        other.stand_in(SCRAM_SHA_256, "a").salt,
        found.stored_key,
        found.server_key,
    }
    assert len(salts) == 6


def test_a_lower_level_forgets_the_secret() -> None:
    level = pb.FeatureLevelRecord(name="metadata.version", level=5)
    image = replayed(EMPTY, secret_record(SECRET), pb.MetadataRecord(feature_level=level))
    assert image.scram_credentials == ScramCredentials()


@given(USERS, CREDENTIALS)
def test_readers_of_the_log_see_no_secret(user: ScramUser, credential: ScramCredential) -> None:
    shown = decode(without_secrets(encode(credential_record(user, credential))))
    assert shown == pb.MetadataRecord(
        user_scram_credential=pb.UserScramCredentialRecord(
            name=user.name, mechanism=user.mechanism, iterations=credential.iterations
        )
    )


def test_readers_of_the_log_see_all_else() -> None:
    assert decode(without_secrets(encode(secret_record(SECRET)))) == secret_record(b"")
    assert without_secrets(b"of a later version") == b"of a later version"
    for record in (removal_record(ScramUser("a", 1)), pb.MetadataRecord(topic=pb.TopicRecord())):
        assert without_secrets(encode(record)) == encode(record)


def test_secrets_are_not_printed() -> None:
    image = replayed(
        EMPTY,
        secret_record(b"hidden"),
        credential_record(
            ScramUser("a", 1), ScramCredential(b"hidden", b"hidden", b"hidden", 4096)
        ),
    )
    assert "hidden" not in repr(image)
