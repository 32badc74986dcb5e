"""SCRAM credentials for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from metadata.scram_credentials import ScramUser
from stele.security.scram import (
    MECHANISMS_BY_NUMBER,
    SCRAM_SHA_256,
    ScramCredential,
    ScramMechanism,
    salted_password,
)
from stele.wire.v1 import admin_pb2 as admin

SALT = b"sixteen bytes..."
USERS = st.builds(ScramUser, st.text("ab,=é", min_size=1, max_size=3), st.sampled_from([1, 2]))
CREDENTIALS = st.builds(
    ScramCredential,
    st.binary(min_size=1, max_size=4),
    st.binary(),
    st.binary(),
    st.integers(4096, 9999),
)


def upsertion(
    user: str,
    password: str = "secret",
    mechanism: ScramMechanism = SCRAM_SHA_256,
    iterations: int = 4096,
    salt: bytes = SALT,
) -> admin.AlterUserScramCredentialsRequest.Upsertion:
    return admin.AlterUserScramCredentialsRequest.Upsertion(
        user=user,
        mechanism=mechanism.number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, max(1, iterations)),
    )


def deletion(user: str, number: int = 1) -> admin.AlterUserScramCredentialsRequest.Deletion:
    assert number in (*MECHANISMS_BY_NUMBER, 3)
    return admin.AlterUserScramCredentialsRequest.Deletion(user=user, mechanism=number)
