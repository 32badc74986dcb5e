"""What the controller decides about quotas of clients (KIP-546)."""

from __future__ import annotations

import pytest

from controller.client_quotas import alter_client_quotas
from metadata.client_quotas import QuotaEntity
from metadata.delta import MetadataDelta
from runtime.administration.client_quotas import entity_of
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.client_quotas import Names, entity, entry
from tests.support.controller import Machine, refusal

Entry = admin.AlterClientQuotasRequest.Entry
ANN: Names = {"user": "ann"}


def alter(machine: Machine, *entries: Entry, validate_only: bool = False) -> list[tuple[int, str]]:
    request = admin.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    answer = machine.do(lambda context: alter_client_quotas(context, request))
    assert [list(each.entity) for each in answer.entries] == [list(it.entity) for it in entries]
    return [(each.error, each.message) for each in answer.entries]


def quotas(machine: Machine) -> dict[QuotaEntity, dict[str, float]]:
    return {of: dict(values) for of, values in machine.image.client_quotas.items()}


def of(machine: Machine, **names: str | None) -> dict[str, float]:
    return dict(machine.image.client_quotas.get(entity(**names), {}))


def test_quotas_are_set_changed_and_removed() -> None:
    machine = Machine()
    both = entry(ANN, producer_byte_rate=1000, consumer_byte_rate=2000)
    assert alter(machine, both) == [(0, "")]
    assert of(machine, user="ann") == {"producer_byte_rate": 1000, "consumer_byte_rate": 2000}
    assert alter(machine, entry(ANN, producer_byte_rate=1.0, consumer_byte_rate=None)) == [(0, "")]
    assert of(machine, user="ann") == {"producer_byte_rate": 1}
    assert alter(machine, entry(ANN, producer_byte_rate=None)) == [(0, "")]
    assert quotas(machine) == {}


def test_the_order_of_the_parts_does_not_matter() -> None:
    machine = Machine()
    alter(machine, entry({"user": "ann", "client-id": None}, request_percentage=12.5))
    alter(machine, entry({"client-id": None, "user": "ann"}, controller_mutation_rate=0.1))
    assert of(machine, **{"client-id": None, "user": "ann"}) == {
        "request_percentage": 12.5,
        "controller_mutation_rate": 0.1,
    }


def test_an_address_has_one_form() -> None:
    for text in ("2001:DB8:0::1", "2001:db8::1"):
        assert entity_of([admin.QuotaEntity(type="ip", name=text)]) == entity(ip="2001:db8::1")


@pytest.mark.parametrize("address", ["::1", None])
def test_an_address_has_a_quota_of_new_connections(address: str | None) -> None:
    machine = Machine()
    assert alter(machine, entry({"ip": address}, connection_creation_rate=10)) == [(0, "")]
    assert of(machine, ip=address) == {"connection_creation_rate": 10}


def test_what_changes_nothing_makes_no_record() -> None:
    machine = Machine()
    alter(machine, entry(ANN, producer_byte_rate=1000))
    offset = machine.next_offset
    same = entry(ANN, producer_byte_rate=1000, consumer_byte_rate=None)
    assert alter(machine, same, entry({"user": "bob"}, producer_byte_rate=None)) == [(0, "")] * 2
    assert machine.next_offset == offset


def test_a_validation_changes_nothing() -> None:
    machine = Machine()
    found = alter(
        machine,
        entry(ANN, producer_byte_rate=1000),
        entry({"user": "bob"}, producer_byte_rate=0),
        validate_only=True,
    )
    assert [error for error, _ in found] == [0, ErrorCode.INVALID_REQUEST]
    assert quotas(machine) == {}


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        ({}, {}, "the entity is empty"),
        ({"group": "g"}, {}, "no entity type 'group': there are client-id, ip, user"),
        ({"user": ""}, {}, "the name of the user is empty"),
        ({"client-id": ""}, {}, "the name of the client-id is empty"),
        ({"ip": "1.2.3.4", "user": "ann"}, {}, "an ip has no user"),
        ({"ip": None, "client-id": None}, {}, "an ip has no user"),
        ({"ip": "localhost"}, {}, "'localhost' is no address"),
        (ANN, {"connection_creation_rate": 1}, "no quota 'connection_creation_rate' of user"),
        (ANN, {"connection_creation_rate": None}, "no quota 'connection_creation_rate' of user"),
        ({"ip": "::1"}, {"producer_byte_rate": 1}, "of ip: there are connection_creation_rate"),
        (ANN, {"rate": 1}, "no quota 'rate'"),
        (ANN, {"producer_byte_rate": 0}, "producer_byte_rate=0 must be a number above 0"),
        (ANN, {"consumer_byte_rate": -1}, "must be a number above 0"),
        (ANN, {"request_percentage": float("nan")}, "must be a number above 0"),
        (ANN, {"request_percentage": float("inf")}, "must be a number above 0"),
        (ANN, {"producer_byte_rate": 1.5}, "producer_byte_rate=1.5 must be a whole number"),
        (ANN, {"producer_byte_rate": 1e-7}, "must be a whole number"),
        ({"ip": None}, {"connection_creation_rate": 0.5}, "must be a whole number"),
    ],
)
def test_an_entry_is_refused_whole(
    names: Names, values: dict[str, float | None], message: str
) -> None:
    machine = Machine()
    good = {"request_percentage": 5.0} if "ip" not in names else {}
    refused, done = alter(
        machine, entry(names, **(good | values)), entry({"user": "bob"}, producer_byte_rate=7)
    )
    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert message in refused[1]
    assert done == (0, "")
    assert quotas(machine) == {entity(user="bob"): {"producer_byte_rate": 7}}


@pytest.mark.parametrize("value", [1.0000005, 0.9999999 + 1, 2**52 + 0.0])
def test_a_value_that_is_almost_whole_is_accepted(value: float) -> None:
    machine = Machine()
    assert alter(machine, entry(ANN, producer_byte_rate=value)) == [(0, "")]
    assert of(machine, user="ann") == {"producer_byte_rate": value}


def test_an_entity_or_a_part_or_a_key_that_is_named_twice_is_refused() -> None:
    machine = Machine()
    wanted = entry(ANN, producer_byte_rate=1)
    twice = alter(machine, wanted, entry({"user": "bob"}, producer_byte_rate=1), wanted)
    assert [error for error, _ in twice] == [ErrorCode.INVALID_REQUEST, 0, 42]
    assert "several entries for user 'ann'" in twice[0][1]
    parts = entry(ANN, producer_byte_rate=1)
    parts.entity.add(type="user", name="bob")
    keys = entry({"user": "cid"}, producer_byte_rate=1)
    keys.ops.add(key="producer_byte_rate", remove=True)
    (of_parts, of_keys) = alter(machine, parts, keys)
    assert of_parts == (42, "the entity has two parts of type user")
    assert "producer_byte_rate of user 'cid' 2 times" in of_keys[1]
    assert set(machine.image.client_quotas) == {entity(user="bob")}


def test_an_older_level_has_no_quotas() -> None:
    machine = Machine()
    level = pb.FeatureLevelRecord(name="metadata.version", level=6)
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, pb.MetadataRecord(feature_level=level))
    machine.image = delta.apply()
    machine.next_offset += 1
    request = admin.AlterClientQuotasRequest(entries=[entry(ANN, producer_byte_rate=1)])
    why = refusal(lambda: machine.do(lambda it: alter_client_quotas(it, request)))
    assert why.code is ErrorCode.UNSUPPORTED_VERSION
    assert "stele features upgrade --metadata 7" in why.message


def test_the_answer_is_of_a_bounded_request() -> None:
    machine = Machine()
    request = admin.AlterClientQuotasRequest(entries=[Entry()] * 10_001)
    why = refusal(lambda: machine.do(lambda it: alter_client_quotas(it, request)))
    assert why.code is ErrorCode.POLICY_VIOLATION
