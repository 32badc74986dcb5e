"""Administration of users: the SCRAM credentials by which they prove who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError, ConfigError
from stele.security.scram import (
    DEFAULT_ITERATIONS,
    MECHANISMS,
    MECHANISMS_BY_NUMBER,
    SALT_BYTES,
    ScramMechanism,
    salted_password,
)
from stele.wire.v1 import admin_pb2 as pb

DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A new password of a user, who need not exist yet.

    >>> ScramUpsertion("orders-app", "a long password")
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = DEFAULT_MECHANISM
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential of a user that is to go."""

    user: str
    mechanism: str = DEFAULT_MECHANISM


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What anybody may know of a credential."""

    mechanism: str
    iterations: int


class UserAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for users."""

    async def alter_user_scram_credentials(
        self,
        upsertions: Sequence[ScramUpsertion] = (),
        deletions: Sequence[ScramDeletion] = (),
    ) -> None:
        """Set and delete passwords. They leave this process salted and hashed only.

        Returns when every live broker knows them. Raises BulkError with the error of each refused
        user, for example RESOURCE_NOT_FOUND for a credential that does not exist,
        UNACCEPTABLE_CREDENTIAL for iterations out of bounds, DUPLICATE_RESOURCE for a credential
        that is named twice. If one change of a user is refused, this user's other changes are, too.

        >>> await admin.alter_user_scram_credentials([ScramUpsertion("orders-app", password)])
        """
        request = pb.AlterUserScramCredentialsRequest()
        for upsertion in upsertions:
            mechanism = _mechanism(upsertion.mechanism)
            salt = self._view.world.rng.randbytes(SALT_BYTES)
            request.upsertions.add(
                user=upsertion.user,
                mechanism=mechanism.number,
                iterations=upsertion.iterations,
                salt=salt,
                salted_password=_salted(mechanism, upsertion, salt),
            )
            await asyncio.sleep(0)  # each takes a millisecond or some
        for deletion in deletions:
            number = _mechanism(deletion.mechanism).number
            request.deletions.add(user=deletion.user, mechanism=number)
        answer = await self._requests.change(
            "AlterUserScramCredentials", request, pb.AlterUserScramCredentialsResponse.FromString
        )
        failed = {
            each.user: ApiError(error_code(each.error), each.message)
            for each in answer.users
            if each.error
        }
        if failed:
            raise BulkError(failed, [each.user for each in answer.users if not each.error])

    async def describe_user_scram_credentials(
        self, users: Sequence[str] = (), *, linearizable: bool = True
    ) -> dict[str, list[ScramCredentialInfo]]:
        """The credentials of each of the users, by default of all: mechanisms and iterations.
        Nobody can read salts and keys.

        Raises BulkError with RESOURCE_NOT_FOUND for a user without a credential.

        >>> await admin.describe_user_scram_credentials()
        """
        answer = await self._requests.ask(
            "DescribeUserScramCredentials",
            pb.DescribeUserScramCredentialsRequest(
                users=users,
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            pb.DescribeUserScramCredentialsResponse.FromString,
        )
        found = {
            each.user: [
                ScramCredentialInfo(_name(it.mechanism), it.iterations) for it in each.credentials
            ]
            for each in answer.users
            if not each.error
        }
        failed = {
            each.user: ApiError(error_code(each.error), each.message)
            for each in answer.users
            if each.error
        }
        if failed:
            raise BulkError(failed, list(found))
        return found


def _salted(mechanism: ScramMechanism, upsertion: ScramUpsertion, salt: bytes) -> bytes:
    if not upsertion.password:
        raise ConfigError(f"the password of user {upsertion.user!r} is empty")
    if upsertion.iterations < 1:
        raise ConfigError(f"iterations={upsertion.iterations} must be at least 1")
    return salted_password(mechanism, upsertion.password, salt, upsertion.iterations)


def _mechanism(name: str) -> ScramMechanism:
    """Raises ConfigError."""
    found = MECHANISMS.get(name.upper())
    if found is None:
        raise ConfigError(f"there is no mechanism {name!r}: there are {', '.join(MECHANISMS)}")
    return found


def _name(number: int) -> str:
    """A newer cluster may know more mechanisms than this client."""
    known = MECHANISMS_BY_NUMBER.get(number)
    return str(number) if known is None else known.name
