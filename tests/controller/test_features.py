"""Feature levels are finalized only if every broker supports them and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.configs import bootstrap
from controller.features import update_features
from controller.request_ids import Refusals, once
from metadata.acls import record_of
from metadata.delegation_tokens import token_record
from metadata.delta import MetadataDelta
from metadata.feature_levels import FeatureLevels
from metadata.features import Told, describe, finalized_level, require, supported_ranges
from metadata.image import MetadataImage
from metadata.outcomes import FIRST_LIMITS
from metadata.records import METADATA_VERSION_LEVEL
from metadata.scram_credentials import ScramUser, credential_record
from stele.errors import ErrorCode
from stele.security.scram import ScramCredential
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.acls import acl
from tests.support.controller import Machine, refusal
from tests.support.tokens import token

VERSION = "metadata.version"
NEWEST = METADATA_VERSION_LEVEL
UP = admin.UpgradeType.UPGRADE
DOWN = admin.UpgradeType.SAFE_DOWNGRADE
UNSAFE = admin.UpgradeType.UNSAFE_DOWNGRADE


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2)
    return machine


def update(
    machine: Machine,
    level: int,
    kind: admin.UpgradeType,
    name: str = VERSION,
    *,
    validate_only: bool = False,
    request_id: bytes = b"",
) -> admin.UpdateFeaturesResponse.Feature:
    request = admin.UpdateFeaturesRequest(validate_only=validate_only, request_id=request_id)
    request.updates.add(name=name, level=level, type=kind)
    answer = machine.do(
        lambda context: once(
            context,
            "UpdateFeatures",
            request,
            admin.UpdateFeaturesResponse,
            update_features,
            Refusals(),
        )
    )
    return answer.features[0]


def described(
    machine: Machine, controllers: Mapping[int, Told]
) -> admin.DescribeFeaturesResponse.Feature:
    features = describe(machine.image, controllers).features
    assert [each.name for each in features] == [
        "group.version",
        VERSION,
        "share.version",
        "transaction.version",
    ]
    return features[1]


def finalized(image: MetadataImage) -> int:
    return image.features[VERSION]


def remember_something(machine: Machine) -> None:
    update(machine, NEWEST, UP, request_id=b"r" * 16)
    assert len(machine.image.outcomes) == 1


def test_down_and_up(machine: Machine) -> None:
    answer = update(machine, 1, DOWN)
    assert (answer.error, answer.level_before, answer.level) == (0, NEWEST, 1)
    assert finalized(machine.image) == 1
    answer = update(machine, 2, UP)
    assert (answer.error, answer.level_before, answer.level) == (0, 1, 2)
    assert finalized(machine.image) == 2


@pytest.mark.parametrize(
    ("name", "level", "kind", "said"),
    [
        ("other.version", 1, UP, "there is no feature 'other.version': there is group.version, "),
        (
            VERSION,
            NEWEST + 1,
            UP,
            f"has no level {NEWEST + 1}: the active controller supports 1 to {NEWEST}",
        ),
        (VERSION, -1, UP, "has no level -1"),
        (VERSION, 0, DOWN, "cannot be disabled"),
        (VERSION, 0, UNSAFE, "cannot be disabled"),
        (VERSION, 1, UP, f"is at {NEWEST}: 1 would be a downgrade"),
        (VERSION, 1, admin.UpgradeType.UPGRADE_TYPE_UNSPECIFIED, "would be a downgrade"),
    ],
)
def test_impossible_levels_are_refused(
    machine: Machine, name: str, level: int, kind: admin.UpgradeType, said: str
) -> None:
    before = machine.image
    answer = update(machine, level, kind, name)
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert said in answer.message
    assert answer.level == answer.level_before
    assert machine.image == before


def test_an_upgrade_waits_for_every_broker_also_for_a_fenced_one(machine: Machine) -> None:
    update(machine, 1, DOWN)
    for name in ("transaction.version", "group.version", "share.version"):
        update(machine, 0, DOWN, name)
    old = [pb.FeatureRange(name=VERSION, min_level=1, max_level=1)]
    machine.register(3, features=old)
    machine.register(4, features=[])  # a version that does not report features
    assert machine.image.brokers[3].fenced
    answer = update(machine, 2, UP)
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 3 supports metadata.version 1 to 1, not 2" in answer.message
    machine.register(3, number=1)
    answer = update(machine, 2, UP)
    assert "broker 4 supports metadata.version 1 to 1, not 2" in answer.message
    machine.register(4, number=1)
    assert update(machine, 2, UP).error == 0


def test_an_upgrade_waits_for_every_controller_that_votes(machine: Machine) -> None:
    update(machine, 1, DOWN)
    machine.controllers = {101: ((VERSION, 1, 2),), 102: ((VERSION, 1, 1),), 103: ()}
    answer = update(machine, 2, UP)
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.message == (
        "controller 102 supports metadata.version 1 to 1, not 2; controller 103 has not "
        "reported what it supports, which counts as metadata.version 1 to 1, not 2: upgrade every "
        "node to a version of Stele that does"
    )
    assert finalized(machine.image) == 1
    machine.controllers |= {102: ((VERSION, 1, 2),), 103: (("other", 1, 2), (VERSION, 1, 3))}
    assert update(machine, 2, UP).error == 0
    machine.controllers[103] = ((VERSION, 2, 3),)
    answer = update(machine, 1, DOWN)
    assert "controller 103 supports metadata.version 2 to 3, not 1" in answer.message
    machine.controllers[103] = ((VERSION, 1, 1),)
    assert update(machine, 2, UP).error == 0, "nothing would change"


@pytest.mark.parametrize("features", [[], [pb.FeatureRange(name=VERSION, max_level=1)]])
def test_a_broker_that_lacks_the_finalized_level_cannot_join(
    machine: Machine, features: list[pb.FeatureRange]
) -> None:
    update(machine, 0, DOWN, "group.version")
    error = refusal(lambda: machine.register(3, features=features))
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"metadata.version is finalized at {NEWEST}" in error.message
    assert 3 not in machine.image.brokers


def test_a_downgrade_that_loses_outcomes_has_to_be_asked_for_as_such(machine: Machine) -> None:
    remember_something(machine)
    answer = update(machine, 1, DOWN)
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "the outcomes of 1 requests would be forgotten" in answer.message
    assert finalized(machine.image) == NEWEST
    answer = update(machine, 1, UNSAFE, request_id=b"u" * 16)
    assert answer.error == 0
    assert finalized(machine.image) == 1
    assert not len(machine.image.outcomes), "not even that of the downgrade itself"


def test_a_downgrade_that_loses_only_some_outcomes_says_so_too(machine: Machine) -> None:
    for number in range(FIRST_LIMITS.outcomes):
        update(machine, NEWEST, UP, request_id=number.to_bytes(16, "big"))
    assert update(machine, 3, DOWN).error == 0
    assert update(machine, NEWEST, UP, request_id=b"u" * 16).error == 0
    answer = update(machine, 3, DOWN)
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "only the newest 1000 outcomes of requests would be remembered" in answer.message
    assert update(machine, 3, UNSAFE).error == 0
    assert len(machine.image.outcomes) == FIRST_LIMITS.outcomes


def test_a_partition_that_moves_holds_every_downgrade(machine: Machine) -> None:
    machine.create("t", {0: [1]})
    topic = machine.image.topics[machine.image.topics.ids["t"]]
    changed = pb.PartitionChangeRecord(topic_id=topic.topic_id, partition=0)
    changed.replicas.ids.extend([1, 2])
    changed.adding_replicas.ids.append(2)
    changed.original_replicas.ids.append(1)
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, pb.MetadataRecord(partition_change=changed))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 1, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 partitions are being reassigned" in answer.message


def test_configurations_of_groups_hold_every_downgrade_below_their_level(machine: Machine) -> None:
    config = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.GROUP,
        resource_name="g",
        name="consumer.session.timeout.ms",
        value="50000",
    )
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, pb.MetadataRecord(config=config))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 2, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 groups have configurations of their own" in answer.message
    assert update(machine, 3, DOWN).error == 0


def test_subscriptions_to_metrics_hold_every_downgrade_below_their_level(machine: Machine) -> None:
    config = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.CLIENT_METRICS,
        resource_name="m",
        name="metrics",
        value="*",
    )
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, pb.MetadataRecord(config=config))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 7, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 subscriptions to the metrics of clients" in answer.message
    assert update(machine, 8, DOWN).error == 0


def test_acls_hold_every_downgrade_below_their_level(machine: Machine) -> None:
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, record_of(acl(), bytes(16)))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 5, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 ACLs" in answer.message


def test_credentials_hold_every_downgrade_below_their_level(machine: Machine) -> None:
    delta = MetadataDelta(machine.image)
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    delta.replay(machine.next_offset, credential_record(ScramUser("alice", 1), credential))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 5, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 SCRAM credentials" in answer.message


def test_delegation_tokens_hold_every_downgrade_below_their_level(machine: Machine) -> None:
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, token_record(token()))
    machine.image = delta.apply()
    machine.next_offset += 1
    for kind in (DOWN, UNSAFE):
        answer = update(machine, 6, kind)
        assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "1 delegation tokens" in answer.message


def test_asking_whether_it_would_be_done_changes_nothing(machine: Machine) -> None:
    answer = update(machine, 1, DOWN, validate_only=True)
    assert (answer.error, answer.level_before, answer.level) == (0, NEWEST, 1)
    assert finalized(machine.image) == NEWEST


def test_the_level_that_is_there_is_no_change(machine: Machine) -> None:
    for kind in (UP, DOWN, UNSAFE):
        assert update(machine, NEWEST, kind).error == 0
        assert not machine.last_records


def test_all_or_none(machine: Machine) -> None:
    request = admin.UpdateFeaturesRequest()
    request.updates.add(name=VERSION, level=1, type=DOWN)
    request.updates.add(name="other", level=1, type=UP)
    answer = machine.do(lambda context: update_features(context, request))
    assert [each.error for each in answer.features] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert finalized(machine.image) == NEWEST
    twice = admin.UpdateFeaturesRequest(updates=[request.updates[0]] * 2)
    answer = machine.do(lambda context: update_features(context, twice))
    assert [each.error for each in answer.features] == [ErrorCode.INVALID_REQUEST] * 2


def test_described_is_what_can_be_finalized(machine: Machine) -> None:
    update(machine, 1, DOWN)
    old = [each for each in supported_ranges() if each.name != VERSION]
    old.append(pb.FeatureRange(name=VERSION, min_level=1, max_level=1))
    machine.register(3, features=old)
    controllers = {102: (), 101: ((VERSION, 1, 2),), 103: (("other", 1, 1),)}
    feature = described(machine, controllers)
    assert (feature.name, feature.level, feature.min_level, feature.max_level) == (VERSION, 1, 1, 1)
    assert [(each.node_id, each.max_level) for each in feature.brokers] == [
        (1, NEWEST),
        (2, NEWEST),
        (3, 1),
    ]
    assert [(each.node_id, each.max_level) for each in feature.controllers] == [
        (101, 2),
        (102, 1),  # it never reported features
        (103, 1),
    ]
    machine.register(3, number=1)
    feature = described(machine, {101: ((VERSION, 2, 3),)})
    assert (feature.min_level, feature.max_level) == (2, 3)
    feature = described(machine, controllers)
    assert (feature.min_level, feature.max_level) == (1, 1)


def test_a_new_cluster_begins_with_the_highest_levels(machine: Machine) -> None:
    assert machine.image.features == FeatureLevels(
        {"group.version": 1, VERSION: NEWEST, "share.version": 2, "transaction.version": 2}
    )


def test_an_old_cluster_begins_without_features_that_are_new() -> None:
    machine = Machine()
    for name in ("transaction.version", "group.version", "share.version"):
        update(machine, 0, DOWN, name)
    assert machine.image.features == FeatureLevels({VERSION: NEWEST}), "as before they were there"
    machine.do(bootstrap)
    assert not machine.last_records
    assert finalized_level(machine.image, "transaction.version") == 0


def test_features_rise_when_all_nodes_know_them(machine: Machine) -> None:
    for level, kind in ((1, DOWN), (0, DOWN)):
        assert update(machine, level, kind, "transaction.version").error == 0
        assert finalized_level(machine.image, "transaction.version") == level
    old = [each for each in supported_ranges() if each.name == VERSION]
    for name in ("group.version", "share.version"):
        update(machine, 0, DOWN, name)
    machine.register(3, features=old)
    answer = update(machine, 2, UP, "transaction.version")
    assert answer.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 3 supports transaction.version 0 to 0, not 2" in answer.message
    machine.register(3, number=1)
    machine.controllers = {101: ((VERSION, 1, NEWEST),)}
    answer = update(machine, 2, UP, "transaction.version")
    assert "controller 101 supports transaction.version 0 to 0, not 2" in answer.message
    machine.controllers = {101: ((VERSION, 1, NEWEST), ("transaction.version", 0, 2))}
    assert update(machine, 2, UP, "transaction.version").error == 0
    assert finalized_level(machine.image, "transaction.version") == 2


def test_what_needs_a_level_says_so(machine: Machine) -> None:
    require(machine.image, 2, "moving house")
    update(machine, 1, DOWN)
    error = refusal(lambda: require(machine.image, 2, "moving house"))
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "moving house needs metadata.version 2, and 1 is finalized" in error.message
