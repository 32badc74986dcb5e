"""Quotas of clients in requests: what is valid, and what it says."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol

from metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    PRODUCER_IDS_RATE,
    REQUEST_PERCENTAGE,
    USER,
    EntityPart,
    QuotaEntity,
    order,
)
from security.authorizer.decision import canonical_host
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

_TYPES: Final = (CLIENT_ID, IP, USER)

OF_CLIENTS: Final[Mapping[str, bool]] = {
    PRODUCER_BYTE_RATE: True,
    CONSUMER_BYTE_RATE: True,
    REQUEST_PERCENTAGE: False,
    CONTROLLER_MUTATION_RATE: False,
    PRODUCER_IDS_RATE: False,
}
_OF_ADDRESSES: Final[Mapping[str, bool]] = {CONNECTION_CREATION_RATE: True}
"""The keys of each kind of entity, and whether their values are whole numbers."""

_ALMOST_WHOLE: Final = 1e-6
"""As in Kafka: clients compute with fractions."""


class Match(IntEnum):
    """How a component of a filter matches. The numbers are Kafka's."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class _Part(Protocol):
    """A part of an entity in a message."""

    @property
    def type(self) -> str: ...

    @property
    def name(self) -> str: ...

    def HasField(self, field_name: str) -> bool: ...  # noqa: N802 - protobuf's


class QuotaFilter(NamedTuple):
    """Entities that have all of these types, with these names; a name of None is the default."""

    exact: Mapping[str, str | None]
    specified: frozenset[str]
    """Types whose every name matches, also the default."""
    is_strict: bool
    """Whether an entity may have no other types."""

    def matches(self, entity: QuotaEntity) -> bool:
        names = {part.type: part.name for part in entity}
        if self.is_strict and len(names) != len(self.exact) + len(self.specified):
            return False
        return all(each in names for each in self.specified) and all(
            each in names and names[each] == name for each, name in self.exact.items()
        )


def entity_of(parts: Iterable[_Part]) -> QuotaEntity:
    """Raises ApiError INVALID_REQUEST for what no quota can be of."""
    names: dict[str, str | None] = {}
    for part in parts:
        name = part.name if part.HasField("name") else None
        if part.type not in _TYPES:
            raise _invalid(f"there is no entity type {part.type!r}: there are {', '.join(_TYPES)}")
        if part.type in names:
            raise _invalid(f"the entity has two parts of type {part.type}")
        if name == "":
            raise _invalid(f"the name of the {part.type} is empty: leave it out for the default")
        names[part.type] = name
    if not names:
        raise _invalid("the entity is empty: name a user, a client-id or an ip")
    if IP in names:
        if len(names) > 1:
            raise _invalid("a quota of an ip has no user and no client-id")
        names[IP] = _address(names[IP])
    entity = tuple(EntityPart(kind, name) for kind, name in names.items())
    return tuple(sorted(entity, key=lambda part: order((part,))))


def collision_key(entry: pb.AlterClientQuotasRequest.Entry) -> Hashable:
    """Entries of one entity have one key, however they write it."""
    try:
        return entity_of(entry.entity)
    except ApiError:
        return entry.SerializeToString(deterministic=True)


def check_key(entity: QuotaEntity, key: str) -> None:
    """Raises ApiError INVALID_REQUEST for a quota that such an entity cannot have."""
    if key not in _keys(entity):
        raise _invalid(
            f"there is no quota {key!r} of {' and '.join(part.type for part in entity)}: "
            f"there are {', '.join(sorted(_keys(entity)))}"
        )


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """Raises ApiError INVALID_REQUEST for a value that the quota cannot have."""
    if not (math.isfinite(value) and value > 0):
        raise _invalid(f"{key}={value:g} must be a number above 0")
    if _keys(entity)[key] and (value < 1 or abs(value - round(value)) > _ALMOST_WHOLE):
        raise _invalid(f"{key}={value:g} must be a whole number")


def filter_of(
    components: Iterable[pb.DescribeClientQuotasRequest.Component], *, is_strict: bool
) -> QuotaFilter:
    """Raises ApiError INVALID_REQUEST, and UNSUPPORTED_VERSION for a type that is not known, as
    Kafka does: a later version may know it."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for each in components:
        if not each.type:
            raise _invalid("a component of the filter has no entity type")
        if each.type in exact or each.type in specified:
            raise _invalid(f"the filter has two components of type {each.type}")
        if each.type not in _TYPES:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"there is no entity type {each.type!r}: there are {', '.join(_TYPES)}",
            )
        named = each.HasField("match")
        if each.match_type == Match.EXACT:
            if not named:
                raise _invalid(f"the filter does not say which {each.type} is to match exactly")
            exact[each.type] = each.match
        elif each.match_type not in (Match.DEFAULT, Match.SPECIFIED):
            raise _invalid(f"the match type {each.match_type} is not known: it is 0, 1 or 2")
        elif named:
            raise _invalid(f"the filter has a name of {each.type}, and a match type without one")
        elif each.match_type == Match.DEFAULT:
            exact[each.type] = None
        else:
            specified.add(each.type)
    if (IP in exact or IP in specified) and len(exact) + len(specified) > 1:
        raise _invalid("no entity has an ip and a user or client-id")
    if (address := exact.get(IP)) is not None:
        exact[IP] = canonical_host(address)
    return QuotaFilter(exact, frozenset(specified), is_strict)


def parts_of(entity: QuotaEntity) -> list[pb.QuotaEntity]:
    return [pb.QuotaEntity(type=part.type, name=part.name) for part in entity]


def _keys(entity: QuotaEntity) -> Mapping[str, bool]:
    return _OF_ADDRESSES if entity[0].type == IP else OF_CLIENTS


def _address(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        ip_address(text)
    except ValueError:
        raise _invalid(f"the ip {text!r} is no address: names of hosts are not resolved") from None
    return canonical_host(text)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
