"""Changes of the quotas of clients (KIP-546)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from controller.machine import Context, ControllerResult, Decision, check_size
from metadata.client_quotas import (
    CLIENT_QUOTA_RECORDS,
    QuotaEntity,
    quota_record,
    removal_record,
    text_of,
)
from metadata.features import require
from metadata.image import MetadataImage
from runtime.administration.client_quotas import check_key, check_value, entity_of
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse

Entry = AlterClientQuotasRequest.Entry


def alter_client_quotas(
    context: Context, request: AlterClientQuotasRequest
) -> ControllerResult[AlterClientQuotasResponse]:
    """Set and remove quotas. Each entry is decided on its own, and none of a refused one is done. A
    value that is already set, and a removal of what is not set, are no errors and make no record.

    Raises ApiError UNSUPPORTED_VERSION below the level that has quotas, and POLICY_VIOLATION for
    too many of them.
    """
    require(context.image, CLIENT_QUOTA_RECORDS, "a quota of clients")
    check_size(sum(1 + len(each.ops) for each in request.entries), "quotas of clients")
    entities = [_entity(each) for each in request.entries]
    named = Counter(each for each in entities if not isinstance(each, ApiError))
    decision = Decision(context)
    response = AlterClientQuotasResponse()
    for entry, entity in zip(request.entries, entities, strict=True):
        result = response.entries.add(entity=entry.entity)
        try:
            if isinstance(entity, ApiError):
                raise entity
            if named[entity] > 1:
                raise _invalid(f"the request has several entries for {text_of(entity)}")
            decision.extend_asked(_records(context.image, entity, entry))
        except ApiError as error:
            result.error, result.message = error.code, error.message
    return decision.nothing(response) if request.validate_only else decision.result(response)


def _records(image: MetadataImage, entity: QuotaEntity, entry: Entry) -> list[pb.MetadataRecord]:
    """Raises ApiError INVALID_REQUEST."""
    values: Mapping[str, float] = image.client_quotas.get(entity, {})
    records = []
    for key, count in Counter(op.key for op in entry.ops).items():
        check_key(entity, key)
        if count > 1:
            raise _invalid(f"the request changes {key} of {text_of(entity)} {count} times")
    for op in entry.ops:
        if op.remove:
            if op.key in values:
                records.append(removal_record(entity, op.key))
            continue
        check_value(entity, op.key, op.value)
        if values.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records


def _entity(entry: Entry) -> QuotaEntity | ApiError:
    try:
        return entity_of(entry.entity)
    except ApiError as error:
        return error


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
