"""Feature levels (KIP-584): what a node supports, and what an image holds of each level.

``metadata.version`` is the format of the metadata log. Its finalized level stands in the log
itself: no record of a higher one is written before every broker and voter can read it. The levels
of the other features are Kafka's, and 0 where none is finalized, as in the log of an older cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from metadata.acls import ACL_RECORDS
from metadata.client_metrics import CLIENT_METRICS_CONFIGS
from metadata.client_quotas import CLIENT_QUOTA_RECORDS
from metadata.delegation_tokens import TOKEN_RECORDS
from metadata.directories import REPLICA_DIRECTORIES
from metadata.feature_levels import FeatureRange
from metadata.image import MetadataImage
from metadata.outcomes import FIRST_LIMITS
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from metadata.scram_credentials import SCRAM_RECORDS
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb

REQUEST_OUTCOMES = 2
REASSIGNMENTS = 2
GROUP_CONFIGS = 3
OUTCOME_TIMES = 4
"""Levels of metadata.version that introduced something. ``metadata.directories``, ``metadata.acls``
(with ``metadata.scram_credentials``), ``metadata.client_quotas``, ``metadata.delegation_tokens``
and ``metadata.client_metrics`` have others."""

METADATA_VERSION_NEWS: Mapping[int, str] = {
    1: "the first format",
    2: "outcomes of requests are remembered; partitions can be reassigned",
    3: "consumer groups can have configurations",
    4: "more outcomes of requests are remembered, with their times",
    5: "the controller knows which replica is in which log directory",
    6: "ACLs and SCRAM credentials",
    7: "quotas of clients, and delegation tokens",
    8: "subscriptions to the metrics of clients",
}

TRANSACTION_VERSION = "transaction.version"
"""KIP-890. At 1, the coordinator's records are of version 1, which later versions may extend. At 2,
clients get a new epoch with every transaction, and brokers add partitions to transactions
themselves. Transactions work at 0, too."""

GROUP_VERSION = "group.version"
"""KIP-848. At 1, there are groups of the consumer protocol."""

SHARE_VERSION = "share.version"
"""KIP-932. At 1, there are share groups. At 2, they can have dead letters (KIP-1191)."""
DEAD_LETTERS = 2
"""The level of share.version with dead letters."""

KAFKA_NAMES: Mapping[str, str] = {METADATA_VERSION: "stele.metadata.version"}
"""The features' names in Kafka's protocol. Kafka's tools take a level of ``metadata.version`` for a
release of Kafka, and would print UNKNOWN for ours."""

SUPPORTED: Mapping[str, FeatureRange] = {
    each.name: each
    for each in (
        FeatureRange(METADATA_VERSION, 1, METADATA_VERSION_LEVEL),
        FeatureRange(TRANSACTION_VERSION, 0, 2),
        FeatureRange(GROUP_VERSION, 0, 1),
        FeatureRange(SHARE_VERSION, 0, 2),
    )
}
"""The levels that this version of Stele supports, by name. New clusters begin with the highest
ones."""

_BEFORE_RANGES = FeatureRange(METADATA_VERSION, 1, 1)
"""The levels of a broker or a voter that has never reported any."""


Told = Iterable[tuple[str, int, int]]
"""The features that a node reported: name, lowest and highest supported level."""


class Loss(NamedTuple):
    """Something in an image that a lower level cannot hold."""

    what: str
    may_be_dropped: bool  # by an unsafe downgrade


def metadata_version(image: MetadataImage) -> int:
    """The finalized level; 1 before it is written."""
    return image.features.get(METADATA_VERSION, 1)


def finalized_level(image: MetadataImage, name: str) -> int:
    """The finalized level of another feature than metadata.version; 0: it is not used."""
    return image.features.get(name, 0)


def require(image: MetadataImage, level: int, what: str) -> None:
    """Raises ApiError UNSUPPORTED_VERSION unless metadata.version has reached ``level``."""
    finalized = metadata_version(image)
    if finalized < level:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} needs {METADATA_VERSION} {level}, and {finalized} is finalized: "
            f"stele features upgrade --metadata {level}",
        )


def require_feature(image: MetadataImage, name: str, level: int, what: str) -> None:
    """Raises ApiError UNSUPPORTED_VERSION unless the feature has reached ``level``."""
    finalized = finalized_level(image, name)
    if finalized < level:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} needs {name} {level}, and {finalized} is finalized: stele features upgrade "
            f"--feature {name}={level}",
        )


def supported_by(told: Told, name: str) -> FeatureRange:
    """The levels of a feature that a node supports; levels 0 to 0: none."""
    for each in told:
        if each[0] == name:
            return FeatureRange(*each)
    if name == METADATA_VERSION:
        return _BEFORE_RANGES
    return FeatureRange(name, 0, 0)


def unsupported(image: MetadataImage, told: Told) -> str | None:
    """Why a node of these ranges cannot take part: a finalized level that it does not support."""
    told = tuple(told)
    for name in sorted(image.features):
        level = image.features[name]
        known = supported_by(told, name)
        if level not in known:
            return (
                f"{name} is finalized at {level}, and it supports {known.min_level} to "
                f"{known.max_level}: start it with another version of Stele"
            )
    return None


def losses(image: MetadataImage, level: int) -> list[Loss]:
    """What the image holds that metadata.version ``level`` cannot."""
    found = []
    if level < REQUEST_OUTCOMES and len(image.outcomes):
        found.append(
            Loss(
                f"the outcomes of {len(image.outcomes)} requests would be forgotten, so that one "
                "of them sent again could take effect twice",
                may_be_dropped=True,
            )
        )
    elif level < OUTCOME_TIMES and not image.outcomes.fit(FIRST_LIMITS):
        found.append(
            Loss(
                f"only the newest {FIRST_LIMITS.outcomes} outcomes of requests would be"
                " remembered, so that an older request sent again could take effect twice",
                may_be_dropped=True,
            )
        )
    moving = sum(state.is_reassigning for _, _, state in image.sorted_partitions())
    if level < REASSIGNMENTS and moving:
        found.append(
            Loss(
                f"{moving} partitions are being reassigned: wait for that or cancel it",
                may_be_dropped=False,
            )
        )
    groups = sum(each.type == pb.ConfigResourceType.GROUP for each in image.configs)
    if level < GROUP_CONFIGS and groups:
        found.append(
            Loss(
                f"{groups} groups have configurations of their own: remove them first",
                may_be_dropped=False,
            )
        )
    with_offline = [each for each in image.sorted_brokers() if each.offline_directories]
    if level < REPLICA_DIRECTORIES and with_offline:
        named = ", ".join(str(each.broker_id) for each in with_offline)
        found.append(
            Loss(
                f"brokers with log directories that are offline ({named}): replace their disks, or"
                " take the directories out of log.dirs, and restart them first",
                may_be_dropped=False,
            )
        )
    return found + _losses_of_clients(image, level)


def _losses_of_clients(image: MetadataImage, level: int) -> list[Loss]:
    """What is known of those who use the cluster."""
    found = []
    if level < ACL_RECORDS and len(image.acls):
        found.append(
            Loss(
                f"{len(image.acls)} ACLs, without which callers may do more or less than now: "
                "remove them first",
                may_be_dropped=False,
            )
        )
    credentials = len(image.scram_credentials)
    if level < SCRAM_RECORDS and credentials:
        found.append(
            Loss(
                f"{credentials} SCRAM credentials, without which their users cannot log in: remove "
                "them first",
                may_be_dropped=False,
            )
        )
    if level < CLIENT_QUOTA_RECORDS and image.client_quotas:
        found.append(
            Loss(
                f"quotas of {len(image.client_quotas)} entities, without which clients may use "
                "all that there is: remove them first",
                may_be_dropped=False,
            )
        )
    tokens = len(image.delegation_tokens)
    if level < TOKEN_RECORDS and tokens:
        found.append(
            Loss(
                f"{tokens} delegation tokens, without which their holders cannot log in: expire "
                "them first",
                may_be_dropped=False,
            )
        )
    subscriptions = sum(each.type == pb.ConfigResourceType.CLIENT_METRICS for each in image.configs)
    if level < CLIENT_METRICS_CONFIGS and subscriptions:
        found.append(
            Loss(
                f"{subscriptions} subscriptions to the metrics of clients: remove them first",
                may_be_dropped=False,
            )
        )
    return found


def describe(
    image: MetadataImage, controllers: Mapping[int, Told]
) -> admin.DescribeFeaturesResponse:
    """Every feature: the finalized level, the levels of each node, and those that all nodes and
    this one support.

    ``controllers``: the levels that the voters reported, by id.
    """
    answers = []
    for name in sorted({*SUPPORTED, *image.features}):
        here = SUPPORTED.get(name, FeatureRange(name, 0, 0))
        brokers = [
            _supported(registration.broker_id, supported_by(registration.features, name))
            for registration in image.sorted_brokers()
        ]
        voters = [
            _supported(node_id, supported_by(controllers[node_id], name))
            for node_id in sorted(controllers)
        ]
        nodes = [*brokers, *voters]
        answers.append(
            admin.DescribeFeaturesResponse.Feature(
                name=name,
                level=image.features.get(name, 0),
                min_level=max([here.min_level, *(known.min_level for known in nodes)]),
                max_level=min([here.max_level, *(known.max_level for known in nodes)]),
                brokers=brokers,
                controllers=voters,
            )
        )
    return admin.DescribeFeaturesResponse(features=answers, metadata_offset=max(0, image.offset))


def _supported(node_id: int, known: FeatureRange) -> admin.DescribeFeaturesResponse.Supported:
    return admin.DescribeFeaturesResponse.Supported(
        node_id=node_id, min_level=known.min_level, max_level=known.max_level
    )


def supported_ranges() -> list[pb.FeatureRange]:
    """The levels that this node reports when it registers."""
    return [
        pb.FeatureRange(name=each.name, min_level=each.min_level, max_level=each.max_level)
        for _, each in sorted(SUPPORTED.items())
    ]
