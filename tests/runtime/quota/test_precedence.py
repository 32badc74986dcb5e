"""Which quota counts for a client, against a list of rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.client_quotas import QuotaEntity
from runtime.quota.precedence import Bucket, Client, Found, client_of, find
from tests.support.client_quotas import Names, entity

RATE = "producer_byte_rate"

LEVELS: list[tuple[dict[str, str | None], Bucket]] = [
    ({"user": "ann", "client-id": "c"}, Bucket("ann", "c")),
    ({"user": "ann", "client-id": None}, Bucket("ann", "c")),
    ({"user": "ann"}, Bucket("ann", None)),
    ({"user": None, "client-id": "c"}, Bucket("ann", "c")),
    ({"user": None, "client-id": None}, Bucket("ann", "c")),
    ({"user": None}, Bucket("ann", None)),
    ({"client-id": "c"}, Bucket(None, "c")),
    ({"client-id": None}, Bucket(None, "c")),
]
"""In Kafka's order (KIP-55), with the bucket whose clients share the quota."""

OTHERS: list[Names] = [
    {"user": "bob", "client-id": "c"},
    {"user": "ann", "client-id": "d"},
    {"user": "bob"},
    {"client-id": "d"},
    {"user": None, "client-id": "d"},
    {"ip": None},
]


@given(
    there=st.sets(st.integers(0, len(LEVELS) - 1)),
    others=st.sets(st.integers(0, len(OTHERS) - 1)),
    of_another_key=st.sets(st.integers(0, len(LEVELS) - 1)),
)
def test_the_first_level_that_has_the_quota_counts(
    there: set[int], others: set[int], of_another_key: set[int]
) -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    for level in there:
        quotas.setdefault(entity(**LEVELS[level][0]), {})[RATE] = 100.0 + level
    for level in of_another_key:
        quotas.setdefault(entity(**LEVELS[level][0]), {})["consumer_byte_rate"] = 5.0
    for other in others:
        quotas[entity(**OTHERS[other])] = {RATE: 1.0}
    found = find(quotas, RATE, Client("ann", "c"))
    if not there:
        assert found is None
    else:
        first = min(there)
        names, bucket = LEVELS[first]
        assert found == Found(entity(**names), bucket, 100.0 + first)


@pytest.mark.parametrize(
    ("principal", "client_id", "client"),
    [
        ("User:ann", "c", Client("ann", "c")),
        ("User:ANONYMOUS", None, Client("ANONYMOUS", "")),
        ("User:CN=ann,O=User:x", "", Client("CN=ann,O=User:x", "")),
        ("Node:itself", "c", Client("Node:itself", "c")),
    ],
)
def test_a_client_is_its_user_and_its_id(
    principal: str, client_id: str | None, client: Client
) -> None:
    assert client_of(principal, client_id) == client


def test_clients_without_an_id_share_the_default_of_client_ids() -> None:
    found = find({entity(**{"client-id": None}): {RATE: 1.0}}, RATE, client_of("User:a", None))
    assert found is not None
    assert found.bucket == Bucket(None, "")
