"""The metadata log as administrators may read it."""

from __future__ import annotations

import pytest

from metadata.acls import record_of
from metadata.records import decode, encode
from metadata.secrets import HIDDEN, without_secrets
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.acls import acl

SECRET = b"secret"


def shown(**kind: object) -> pb.MetadataRecord:
    return decode(without_secrets(encode(pb.MetadataRecord(**kind))))  # type: ignore[arg-type]


def config(name: str, value: str | None) -> pb.ConfigRecord:
    return pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.BROKER, resource_name="1", name=name, value=value
    )


def test_credentials_are_named_without_their_keys() -> None:
    credential = pb.UserScramCredentialRecord(
        name="ann", mechanism=1, salt=SECRET, stored_key=SECRET, server_key=SECRET, iterations=4096
    )
    told = shown(user_scram_credential=credential).user_scram_credential
    assert told == pb.UserScramCredentialRecord(name="ann", mechanism=1, iterations=4096)
    secret = shown(scram_secret=pb.ScramSecretRecord(secret=SECRET))
    assert secret.scram_secret == pb.ScramSecretRecord()


@pytest.mark.parametrize("prefix", ["", "listener.name.external.", "listener.name.x.plain."])
@pytest.mark.parametrize("key", ["ssl.keystore.password", "ssl.keystore.key", "sasl.jaas.config"])
def test_passwords_are_hidden(prefix: str, key: str) -> None:
    assert shown(config=config(prefix + key, "p")).config.value == HIDDEN
    assert not shown(config=config(prefix + key, None)).config.HasField("value")


def test_everything_else_is_shown_as_it_is() -> None:
    for record in (
        record_of(acl(), bytes(16)),
        pb.MetadataRecord(config=config("ssl.keystore.location", "/x")),
        pb.MetadataRecord(topic=pb.TopicRecord(name="t", topic_id=bytes(16))),
    ):
        value = encode(record)
        assert without_secrets(value) is value


def test_no_guess_of_a_password_can_be_checked_by_a_requests_digest() -> None:
    outcome = pb.RequestOutcomeRecord(
        request_id=bytes(16), method="AlterUserScramCredentials", digest=SECRET, reply=b"r"
    )
    told = shown(request_outcome=outcome).request_outcome
    assert told == pb.RequestOutcomeRecord(
        request_id=bytes(16), method="AlterUserScramCredentials", reply=b"r"
    )


def test_records_of_a_later_version_stay_as_they_are() -> None:
    assert without_secrets(b"of a later version") == b"of a later version"
