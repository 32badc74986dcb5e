"""Quotas of clients in an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from metadata.client_quotas import (
    ClientQuotas,
    QuotaEntity,
    Values,
    order,
    quota_record,
    removal_record,
    text_of,
)
from metadata.delta import MetadataDelta
from metadata.features import losses
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError
from metadata.snapshot import image_of, records_of
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.client_quotas import ENTITIES, KEYS, VALUES, entity

ANN = entity(user="ann")
QUOTAS = st.dictionaries(ENTITIES, VALUES, max_size=5)
CHANGES = st.lists(st.tuples(ENTITIES, KEYS, st.none() | st.sampled_from([1.0, 5.0])), max_size=8)


def replayed(image: MetadataImage, *records: pb.MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, each in enumerate(records, image.offset + 1):
        delta.replay(offset, each)
    return delta.apply()


def records(quotas: dict[QuotaEntity, Values]) -> list[pb.MetadataRecord]:
    return [quota_record(of, key, values[key]) for of, values in quotas.items() for key in values]


@given(QUOTAS, CHANGES)
def test_quotas_are_set_replaced_and_removed(
    before: dict[QuotaEntity, Values], changes: list[tuple[QuotaEntity, str, float | None]]
) -> None:
    first = replayed(EMPTY, *records(before))
    twin = {(of, key): values[key] for of, values in before.items() for key in values}
    made = []
    for of, key, value in changes:
        if value is not None:
            made.append(quota_record(of, key, value))
            twin[of, key] = value
        elif twin.pop((of, key), None) is not None:
            made.append(removal_record(of, key))
    image = replayed(first, *made)
    found = image.client_quotas
    assert {(of, key): values[key] for of, values in found.items() for key in values} == twin
    assert all(found.values()), "an entity without quotas is not kept"
    assert len(found) == len({of for of, _ in twin})
    again = image_of(99, list(records_of(image)))
    assert again.client_quotas == found
    assert list(records_of(again)) == list(records_of(image))
    assert MetadataDelta.between(first, image).apply().client_quotas is found
    if not made:
        assert found is first.client_quotas


def test_a_default_is_sorted_before_names() -> None:
    entities = [
        entity(user="b"),
        entity(user="a"),
        entity(user=None),
        entity(ip="::1"),
        entity(**{"client-id": "z", "user": None}),
        entity(**{"client-id": None, "user": "a"}),
        entity(**{"client-id": None}),
    ]
    found = ClientQuotas(dict.fromkeys(entities, Map({"producer_byte_rate": 1.0}))).sorted()
    assert [text_of(each) for each, _ in found] == [
        "default client-id",
        "user 'a', default client-id",
        "default user, client-id 'z'",
        "ip '::1'",
        "default user",
        "user 'a'",
        "user 'b'",
    ]


def test_names_are_sorted() -> None:
    entities = [entity(user=name) for name in ("c", "a", None, "b")]
    assert [each[0].name for each in sorted(entities, key=order)] == [None, "a", "b", "c"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (removal_record(ANN, "producer_byte_rate"), "user 'ann' has no producer_byte_rate"),
        (quota_record(ANN, "producer_byte_rate", 0.0), "producer_byte_rate of user 'ann' is 0"),
        (quota_record(ANN, "producer_byte_rate", float("nan")), "is nan"),
    ],
)
def test_an_impossible_record_stops_the_node(record: pb.MetadataRecord, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        replayed(EMPTY, record)


def test_a_lower_level_cannot_hold_quotas() -> None:
    assert losses(EMPTY, 6) == []
    image = replayed(EMPTY, quota_record(ANN, "producer_byte_rate", 1.0))
    (loss,) = losses(image, 6)
    assert "quotas of 1 entities" in loss.what
    assert not loss.may_be_dropped
    assert losses(image, 7) == []
