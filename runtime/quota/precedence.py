"""Which quota counts for a client, and which clients use it up together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata.client_quotas import CLIENT_ID, USER, EntityPart, QuotaEntity

_TYPE: Final = "User:"
"""The type of every principal that a connection proves."""

_DEFAULT_USER: Final = EntityPart(USER, None)
_DEFAULT_CLIENT: Final = EntityPart(CLIENT_ID, None)


class Client(NamedTuple):
    """A client as quotas see it."""

    user: str
    """The principal without its type. On a plaintext listener everybody is ANONYMOUS."""
    client_id: str
    """Empty for clients that give none: they are one client."""


class Bucket(NamedTuple):
    """The clients that use up a quota together: those of a user, of a client id, or of both. None
    stands for any."""

    user: str | None
    client_id: str | None


class Found(NamedTuple):
    """The quota that counts."""

    entity: QuotaEntity
    bucket: Bucket
    bound: float


def client_of(principal: str, client_id: str | None) -> Client:
    """The client behind a request."""
    return Client(principal.removeprefix(_TYPE), client_id or "")


def find(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, client: Client
) -> Found | None:
    """The first quota of this key in Kafka's order. None: the client may use all that there is.

    Quotas do not add up: a client with a quota of its own does not count for its user's. A default
    has a bucket for each user or client id that it stands for.
    """
    user, client_id = EntityPart(USER, client.user), EntityPart(CLIENT_ID, client.client_id)
    both = Bucket(client.user, client.client_id)
    of_user, of_client = Bucket(client.user, None), Bucket(None, client.client_id)
    for entity, bucket in (
        ((client_id, user), both),
        ((_DEFAULT_CLIENT, user), both),
        ((user,), of_user),
        ((client_id, _DEFAULT_USER), both),
        ((_DEFAULT_CLIENT, _DEFAULT_USER), both),
        ((_DEFAULT_USER,), of_user),
        ((client_id,), of_client),
        ((_DEFAULT_CLIENT,), of_client),
    ):
        values = quotas.get(entity)
        if values is not None and key in values:
            return Found(entity, bucket, values[key])
    return None
