"""UpdateFeatures."""

from __future__ import annotations

import pytest

from stele.errors import ErrorCode
from stele.wire.kafka.messages.update_features import (
    API,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from stele.wire.v1.admin_pb2 import UpgradeType
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual


def request(*updates: FeatureUpdateKey, validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(5000, list(updates), validate_only)


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_an_upgrade_goes_to_the_controller(version: int) -> None:
    edges = Edges()
    asked = request(FeatureUpdateKey("known", 2), validate_only=True)
    answer = await edges.client().call(API, version, asked)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    results = [(each.feature, each.error_code) for each in answer.results]
    assert results == ([("known", 0)] if version < 2 else [])
    (sent,) = edges.controller.updated
    (update,) = sent.updates
    assert (update.name, update.level, update.type) == ("known", 2, UpgradeType.UPGRADE)
    assert sent.validate_only == (version >= 1)
    assert len(sent.request_id) == 16


@pytest.mark.parametrize(
    ("version", "update", "kind"),
    [
        (0, FeatureUpdateKey("known", 1, allow_downgrade=True), UpgradeType.SAFE_DOWNGRADE),
        (1, FeatureUpdateKey("known", 1, upgrade_type=2), UpgradeType.SAFE_DOWNGRADE),
        (1, FeatureUpdateKey("known", 1, upgrade_type=3), UpgradeType.UNSAFE_DOWNGRADE),
        (1, FeatureUpdateKey("known", 1, upgrade_type=0), UpgradeType.UPGRADE_TYPE_UNSPECIFIED),
        (2, FeatureUpdateKey("known", 1, upgrade_type=99), UpgradeType.UPGRADE_TYPE_UNSPECIFIED),
    ],
)
@virtual
async def test_what_kind_of_change_is_said(
    version: int, update: FeatureUpdateKey, kind: UpgradeType
) -> None:
    edges = Edges()
    await edges.client().call(API, version, request(update))
    assert edges.controller.updated[0].updates[0].type == kind


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_one_refused_refuses_all(version: int) -> None:
    edges = Edges()
    asked = request(FeatureUpdateKey("known", 2), FeatureUpdateKey("other", 2))
    answer = await edges.client().call(API, version, asked)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == "only known, up"
    if version < 2:
        assert [each.error_code for each in answer.results] == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.INVALID_UPDATE_VERSION,
        ]
    else:
        assert not answer.results


@pytest.mark.parametrize("version", [0, 1])
@virtual
async def test_our_levels_have_a_name_of_their_own(version: int) -> None:
    """Kafka's tools read the levels of ``metadata.version`` as releases of Kafka."""

    edges = Edges()
    asked = request(FeatureUpdateKey("stele.metadata.version", 2))
    answer = await edges.client().call(API, version, asked)
    assert [each.feature for each in answer.results] == ["stele.metadata.version"]
    assert edges.controller.updated[0].updates[0].name == "metadata.version"


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_releases_of_kafka_are_no_levels_of_ours(version: int) -> None:
    edges = Edges()
    asked = request(FeatureUpdateKey("metadata.version", 2))
    answer = await edges.client().call(API, version, asked)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "stele.metadata.version" in (answer.error_message or "")
    assert not edges.controller.updated


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_without_controllers_it_times_out(version: int) -> None:
    edges = Edges()
    edges.network.services.clear()
    answer = await edges.client().call(API, version, request(FeatureUpdateKey("known", 2)))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
