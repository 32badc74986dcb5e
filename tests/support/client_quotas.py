"""Quotas of clients for tests, and how Hypothesis draws them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st
from immutables import Map

from metadata.client_quotas import EntityPart, QuotaEntity
from stele.wire.v1 import admin_pb2 as admin

Names = Mapping[str, str | None]

NAMES = st.none() | st.sampled_from(["a", "b", "é"])
KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
_ONE_OR_BOTH = st.fixed_dictionaries({}, optional={"user": NAMES, "client-id": NAMES}).filter(bool)
ENTITIES = (_ONE_OR_BOTH | st.fixed_dictionaries({"ip": NAMES})).map(lambda names: entity(**names))
VALUES = st.dictionaries(KEYS, st.sampled_from([1.0, 2.0, 1e9]), min_size=1, max_size=2).map(Map)


def entity(**names: str | None) -> QuotaEntity:
    """Named as in ``entity(user="ann", **{"client-id": None})``."""
    return tuple(EntityPart(kind, names[kind]) for kind in sorted(names))


def parts(names: Names) -> list[admin.QuotaEntity]:
    return [admin.QuotaEntity(type=kind, name=name) for kind, name in names.items()]


def entry(names: Names, **values: float | None) -> admin.AlterClientQuotasRequest.Entry:
    """A value of None removes the quota."""
    return admin.AlterClientQuotasRequest.Entry(
        entity=parts(names),
        ops=[
            admin.AlterClientQuotasRequest.Op(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
