"""Administration of feature levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError
from stele.wire.v1 import admin_pb2 as pb

UpgradeType = pb.UpgradeType
UPGRADE = pb.UpgradeType.UPGRADE
SAFE_DOWNGRADE = pb.UpgradeType.SAFE_DOWNGRADE
UNSAFE_DOWNGRADE = pb.UpgradeType.UNSAFE_DOWNGRADE


@dataclass(frozen=True, slots=True)
class SupportedLevels:
    """The levels of a feature that one node supports, both ends included. 0 to 0: it does not
    support it."""

    node_id: int
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature. A level can be finalized if ``min_level`` ≤ level ≤ ``max_level``."""

    name: str
    level: int  # the finalized level; 0 if there is none
    min_level: int  # the least level that all nodes support
    max_level: int
    brokers: tuple[SupportedLevels, ...]  # all registered brokers
    controllers: tuple[SupportedLevels, ...]  # all voters


def highest_levels(features: Iterable[FeatureDescription]) -> dict[str, int]:
    """The level of each feature that all nodes support, where it is above the finalized one."""
    return {each.name: each.max_level for each in features if each.max_level > each.level}


@dataclass(frozen=True, slots=True)
class UpdatedFeature:
    """A feature whose level was changed, or with ``validate_only`` would be."""

    name: str
    level_before: int
    level: int
    already_done: bool  # an earlier attempt of this request did it


def _levels(
    supported: Iterable[pb.DescribeFeaturesResponse.Supported],
) -> tuple[SupportedLevels, ...]:
    return tuple(
        SupportedLevels(known.node_id, known.min_level, known.max_level) for known in supported
    )


class FeatureAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for features."""

    async def describe_features(self, *, linearizable: bool = True) -> list[FeatureDescription]:
        """Every feature, with its finalized level and the levels that nodes support. Raises
        ApiError.
        """
        response = await self._requests.ask(
            "DescribeFeatures",
            pb.DescribeFeaturesRequest(
                min_metadata_offset=self._requests.changed_at, linearizable=linearizable
            ),
            pb.DescribeFeaturesResponse.FromString,
        )
        return [
            FeatureDescription(
                each.name,
                each.level,
                each.min_level,
                each.max_level,
                _levels(each.brokers),
                _levels(each.controllers),
            )
            for each in response.features
        ]

    async def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UPGRADE,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[UpdatedFeature]:
        """Finalize levels of features, all of them or none. Level 0 disables a feature.

        ``upgrade_type``: ``UPGRADE`` only raises levels. ``SAFE_DOWNGRADE`` is refused if it would
        lose metadata. ``UNSAFE_DOWNGRADE`` is not.

        Raises BulkError INVALID_UPDATE_VERSION, with the reason in its message.

        >>> await admin.update_features({"metadata.version": 4})
        """
        request = pb.UpdateFeaturesRequest(validate_only=validate_only)
        for name, level in levels.items():
            request.updates.add(name=name, level=level, type=upgrade_type)
        response = await self._requests.change(
            "UpdateFeatures", request, pb.UpdateFeaturesResponse.FromString, request_id
        )
        failed: dict[str, ApiError] = {
            each.name: ApiError(error_code(each.error), each.message)
            for each in response.features
            if each.error
        }
        if failed:
            raise BulkError(failed, [])
        return [
            UpdatedFeature(each.name, each.level_before, each.level, response.already_done)
            for each in response.features
        ]
