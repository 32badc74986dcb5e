"""What the controller decides about SCRAM credentials (KIP-554)."""

from __future__ import annotations

import pytest

from controller.scram_credentials import alter_user_scram_credentials
from metadata.delta import MetadataDelta
from stele.errors import ErrorCode
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.controller import Machine, refusal
from tests.support.scram import SALT, deletion, upsertion

Deletion = admin.AlterUserScramCredentialsRequest.Deletion
Upsertion = admin.AlterUserScramCredentialsRequest.Upsertion


def alter(machine: Machine, *alterations: Deletion | Upsertion) -> list[tuple[str, int, str]]:
    request = admin.AlterUserScramCredentialsRequest(
        deletions=[each for each in alterations if isinstance(each, Deletion)],
        upsertions=[each for each in alterations if isinstance(each, Upsertion)],
    )
    answer = machine.do(lambda context: alter_user_scram_credentials(context, request))
    return [(each.user, each.error, each.message) for each in answer.users]


def test_a_credential_is_set_replaced_and_removed() -> None:
    machine = Machine()
    for password in ("secret", "another"):
        assert alter(machine, upsertion("alice", password)) == [("alice", 0, "")]
        found = machine.image.scram_credentials.find(SCRAM_SHA_256, "alice")
        assert found == ScramCredential.of_password(SCRAM_SHA_256, password, SALT, 4096)
        assert machine.image.scram_credentials.find(SCRAM_SHA_512, "alice") is None
    assert alter(machine, deletion("alice")) == [("alice", 0, "")]
    assert len(machine.image.scram_credentials) == 0


def test_one_request_may_set_both_mechanisms_of_a_user() -> None:
    machine = Machine()
    both = [upsertion("alice", mechanism=each) for each in (SCRAM_SHA_256, SCRAM_SHA_512)]
    assert alter(machine, *both) == [("alice", 0, "")]
    assert machine.image.scram_credentials.of_users() == {
        "alice": [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 4096)]
    }
    assert alter(machine, deletion("alice", 1), upsertion("alice", "x", SCRAM_SHA_512)) == [
        ("alice", 0, "")
    ]
    assert machine.image.scram_credentials.of_user("alice") == [(SCRAM_SHA_512, 4096)]


def test_the_secret_of_stand_ins_is_made_once() -> None:
    machine = Machine()
    alter(machine, deletion("nobody"))
    assert not machine.image.scram_credentials.secret
    alter(machine, upsertion("alice"))
    secret = machine.image.scram_credentials.secret
    assert len(secret) == 32
    alter(machine, upsertion("bob"))
    assert machine.image.scram_credentials.secret == secret


@pytest.mark.parametrize(
    ("altered", "error", "message"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "name is empty"),
        ([deletion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "name is empty"),
        ([deletion("alice", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "no SCRAM mechanism 3"),
        ([deletion("alice", 2)], ErrorCode.RESOURCE_NOT_FOUND, "no SCRAM-SHA-512 credential"),
        ([deletion("bob", 1)], ErrorCode.RESOURCE_NOT_FOUND, "'bob' has no SCRAM-SHA-256"),
        ([upsertion("a", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "4096 to 16384"),
        ([upsertion("a", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "4096 to 16384"),
        ([upsertion("a", iterations=-1)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "4096 to 16384"),
        ([upsertion("a", salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt is empty"),
        (
            [
                Upsertion(
                    user="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 64
                )
            ],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "64 bytes: SCRAM-SHA-256 needs 32",
        ),
        ([upsertion("a"), upsertion("a", "b")], ErrorCode.DUPLICATE_RESOURCE, "twice"),
        ([deletion("alice"), upsertion("alice")], ErrorCode.DUPLICATE_RESOURCE, "twice"),
    ],
)
def test_an_alteration_is_refused(
    altered: list[Deletion | Upsertion], error: ErrorCode, message: str
) -> None:
    machine = Machine()
    alter(machine, upsertion("alice"))
    before = machine.image.scram_credentials
    ((user, found, said),) = alter(machine, *altered)
    assert (user, found) == (altered[0].user, error)
    assert message in said
    assert machine.image.scram_credentials == before


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_both_bounds_of_iterations_are_accepted(iterations: int) -> None:
    machine = Machine()
    assert alter(machine, upsertion("a", iterations=iterations)) == [("a", 0, "")]


def test_a_refused_user_keeps_everything_and_others_are_changed() -> None:
    machine = Machine()
    alter(machine, upsertion("alice"))
    found = alter(
        machine,
        deletion("alice"),
        upsertion("alice", mechanism=SCRAM_SHA_512, iterations=1),
        upsertion("bob"),
    )
    assert [(user, error) for user, error, _ in found] == [
        ("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("bob", 0),
    ]
    assert set(machine.image.scram_credentials.of_users()) == {"alice", "bob"}


def test_an_older_level_has_no_credentials() -> None:
    machine = Machine()
    level = pb.FeatureLevelRecord(name="metadata.version", level=5)
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, pb.MetadataRecord(feature_level=level))
    machine.image = delta.apply()
    machine.next_offset += 1
    request = admin.AlterUserScramCredentialsRequest(upsertions=[upsertion("alice")])
    why = refusal(lambda: machine.do(lambda it: alter_user_scram_credentials(it, request)))
    assert why.code is ErrorCode.UNSUPPORTED_VERSION
    assert "stele features upgrade --metadata 6" in why.message


def test_the_answer_is_of_a_bounded_request() -> None:
    machine = Machine()
    request = admin.AlterUserScramCredentialsRequest(deletions=[deletion("a")] * 10_001)
    why = refusal(lambda: machine.do(lambda it: alter_user_scram_credentials(it, request)))
    assert why.code is ErrorCode.POLICY_VIOLATION
