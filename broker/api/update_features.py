"""UpdateFeatures (57), versions 0-2, forwarded to the active controller (KIP-584, KIP-778).

Deviations: the controller's ``metadata.version`` is called ``stele.metadata.version`` here. The
name of Kafka's own feature is refused. One refused update refuses all, and its error is that of the
whole answer, as in Kafka. Versions 0 and 1 also have a result for each feature.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named, patience_s
from broker.service.context import BrokerContext
from metadata.features import KAFKA_NAMES
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import update_features as messages
from stele.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import SLICE_STEPS, Slices, in_slices

_OUR_NAMES = {kafka: ours for ours, kafka in KAFKA_NAMES.items()}
_TYPES = {
    1: pb.UpgradeType.UPGRADE,
    2: pb.UpgradeType.SAFE_DOWNGRADE,
    3: pb.UpgradeType.UNSAFE_DOWNGRADE,
}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    check_named(len(request.feature_updates), "features")
    wishes = pb.UpdateFeaturesRequest(validate_only=request.validate_only)
    slices = Slices(SLICE_STEPS)
    for each in request.feature_updates:
        if each.feature in KAFKA_NAMES:
            return await _refused(
                request,
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{each.feature} is for releases of Kafka: the levels of this cluster are those of "
                f"{KAFKA_NAMES[each.feature]}",
            )
        name = _OUR_NAMES.get(each.feature, each.feature)
        wishes.updates.add(
            name=name, level=each.max_version_level, type=_type(request_context.version, each)
        )
        await slices.step()
    try:
        answer = await accepted_change(
            context,
            request_context.caller,
            wishes,
            timeout_s=patience_s(request.timeout_ms),
        )
    except ApiError as error:
        return await _refused(request, error.code, error.message)
    first = next((each for each in answer.features if _is_refused(each)), None)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE if first is None else error_code(first.error),
        error_message=None if first is None else first.message,
        results=[
            UpdatableFeatureResult(
                feature=KAFKA_NAMES.get(each.name, each.name),
                error_code=error_code(each.error),
                error_message=each.message or None,
            )
            for each in answer.features
        ],
    )


def _is_refused(result: pb.UpdateFeaturesResponse.Feature) -> bool:
    """Whether it is refused by itself, and not because another one is."""
    return result.error not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)


def _type(version: int, update: FeatureUpdateKey) -> pb.UpgradeType:
    """The controller refuses a number that Kafka does not know."""
    if version == 0:
        return pb.UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else pb.UpgradeType.UPGRADE
    return _TYPES.get(update.upgrade_type, pb.UpgradeType.UPGRADE_TYPE_UNSPECIFIED)


async def _refused(
    request: UpdateFeaturesRequest, error: ErrorCode, message: str = ""
) -> UpdateFeaturesResponse:
    results = await in_slices(
        lambda each: UpdatableFeatureResult(
            feature=each.feature, error_code=error, error_message=message or None
        ),
        request.feature_updates,
    )
    return UpdateFeaturesResponse(error_code=error, error_message=message or None, results=results)


async def refuse(
    request_context: RequestContext, request: UpdateFeaturesRequest, error: ErrorCode
) -> UpdateFeaturesResponse:
    return await _refused(request, error)


SERVED = Served(messages.API, refuse, handle_async=handle)
