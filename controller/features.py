"""Changes of the finalized feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import changes, is_leaderless
from metadata.directories import REPLICA_DIRECTORIES
from metadata.feature_levels import FeatureRange
from metadata.features import SUPPORTED, losses, metadata_version, supported_by
from metadata.image import MetadataImage
from metadata.records import METADATA_VERSION
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import UpdateFeaturesRequest, UpdateFeaturesResponse, UpgradeType

Update = UpdateFeaturesRequest.Update
FeatureAnswer = UpdateFeaturesResponse.Feature


def update_features(
    context: Context, request: UpdateFeaturesRequest
) -> ControllerResult[UpdateFeaturesResponse]:
    """Raise or lower levels. If one update of the request is refused, none takes effect.

    Raises ApiError POLICY_VIOLATION for a request of too many features.
    """
    check_size(len(request.updates), "features")
    decision = Decision(context)
    named = Counter(update.name for update in request.updates)
    answers = []
    for update in request.updates:
        before = context.image.features.get(update.name, 0)
        answer = FeatureAnswer(name=update.name, level_before=before, level=update.level)
        try:
            if named[update.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{update.name} is updated twice")
            _check(context, update, before)
        except ApiError as error:
            answer.error, answer.message, answer.level = error.code, error.message, before
        else:
            if update.level != before:
                record = pb.FeatureLevelRecord(name=update.name, level=update.level)
                decision.add(pb.MetadataRecord(feature_level=record))
        answers.append(answer)
    if metadata_version(decision.image) < REPLICA_DIRECTORIES <= metadata_version(context.image):
        # A replica waited for the report that it is in a directory that is open again. That report
        # is no longer made, and the directory no longer known.
        decision.extend(changes(decision.image, context.static, is_leaderless))
    response = UpdateFeaturesResponse(features=answers)
    if any(answer.error for answer in answers):
        _attempt_none(response)
        return decision.nothing(response)
    return decision.nothing(response) if request.validate_only else decision.result(response)


def _attempt_none(response: UpdateFeaturesResponse) -> None:
    for answer in response.features:
        if not answer.error:
            answer.error = ErrorCode.OPERATION_NOT_ATTEMPTED
            answer.message = f"{answer.name}: another update of the request is refused"
            answer.level = answer.level_before


def _check(context: Context, update: Update, before: int) -> None:
    name, level = update.name, update.level
    supported = SUPPORTED.get(name)
    if supported is None:
        raise _refusal(f"there is no feature {name!r}: there is {', '.join(sorted(SUPPORTED))}")
    if level == 0 and name == METADATA_VERSION:
        raise _refusal(f"{name} cannot be disabled")
    if level not in supported:
        raise _refusal(
            f"{name} has no level {level}: the active controller supports {supported.min_level} to "
            f"{supported.max_level}"
        )
    if level > before and update.type != UpgradeType.UPGRADE:
        raise _refusal(f"{name} is at {before}: {level} would be an upgrade, not a downgrade")
    if level < before and update.type not in (
        UpgradeType.SAFE_DOWNGRADE,
        UpgradeType.UNSAFE_DOWNGRADE,
    ):
        raise _refusal(f"{name} is at {before}: {level} would be a downgrade, not an upgrade")
    if level == before:
        return
    lacking = [
        f"{node} {name} {known.min_level} to {known.max_level}, not {level}"
        for node, known in _nodes(context, name)
        if level not in known
    ]
    if lacking:
        raise _refusal(f"{'; '.join(lacking)}: upgrade every node to a version of Stele that does")
    if name == METADATA_VERSION and level < before:
        _check_losses(context.image, update)


def _nodes(context: Context, name: str) -> Iterator[tuple[str, FeatureRange]]:
    """Every node that reads the metadata log: the beginning of a message about its support, and the
    levels that it supports."""
    for registration in context.image.sorted_brokers():
        known = supported_by(registration.features, name)
        yield f"broker {registration.broker_id} supports", known
    for node_id, told in sorted(context.controllers.items()):
        says = "supports" if told else "has not reported what it supports, which counts as"
        yield f"controller {node_id} {says}", supported_by(told, name)


def _check_losses(image: MetadataImage, update: Update) -> None:
    unsafe = update.type == UpgradeType.UNSAFE_DOWNGRADE
    for loss in losses(image, update.level):
        if not (unsafe and loss.may_be_dropped):
            way_out = "; an unsafe downgrade does it anyway" if loss.may_be_dropped else ""
            raise _refusal(
                f"{update.name} {update.level} would lose something: {loss.what}{way_out}"
            )


def _refusal(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
