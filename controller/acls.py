"""Creation and deletion of ACLs."""

from __future__ import annotations

from typing import Final

from controller.machine import Context, ControllerResult, Decision, check_size
from metadata.acl import Acl, ResourceType
from metadata.acls import ACL_RECORDS, record_of
from metadata.features import require
from runtime.administration.acls import acl_of, filter_of, message_of
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

ACL_ID_BYTES: Final = 16

_COMPARED_MAX: Final = 50_000
"""How often one request may compare a filter with a rule: some 30 ms."""


def create_acls(
    context: Context, request: CreateAclsRequest
) -> ControllerResult[CreateAclsResponse]:
    """Add rules. Each is decided on its own. One that is there already is no error, and makes no
    record.

    Raises ApiError UNSUPPORTED_VERSION below the level that has ACLs, and POLICY_VIOLATION for too
    many of them.
    """
    require(context.image, ACL_RECORDS, "an ACL")
    check_size(len(request.acls), "ACLs")
    decision = Decision(context)
    response = CreateAclsResponse()
    added: dict[Acl, pb.MetadataRecord] = {}
    for message in request.acls:
        result = response.results.add()
        try:
            acl = acl_of(message)
            if acl not in added and context.image.acls.id_of(acl) is None:
                record = record_of(acl, context.rng.randbytes(ACL_ID_BYTES))
                decision.charge([record])
                added[acl] = record
        except ApiError as error:
            result.error, result.message = error.code, error.message
    decision.extend(added.values())
    return decision.result(response)


def delete_acls(
    context: Context, request: DeleteAclsRequest
) -> ControllerResult[DeleteAclsResponse]:
    """Remove all rules that any of the filters matches, in one decision.

    Raises ApiError POLICY_VIOLATION for too many filters or rules.
    """
    check_size(len(request.filters), "filters of ACLs")
    _check_work(context, request)
    decision = Decision(context)
    response = DeleteAclsResponse()
    matched = 0
    removed: dict[bytes, pb.MetadataRecord] = {}
    for message in request.filters:
        result = response.results.add()
        try:
            matching = context.image.acls.matching(filter_of(message))
            matched += len(matching)
        except ApiError as error:
            result.error, result.message = error.code, error.message
            continue
        check_size(matched, "matched ACLs")
        result.acls.extend(message_of(acl) for acl, _ in matching)
        for _, acl_id in matching:
            record = pb.MetadataRecord(remove_acl=pb.RemoveAclRecord(id=acl_id))
            if acl_id not in removed:
                decision.charge([record])
                removed[acl_id] = record
    decision.extend(removed.values())
    return decision.result(response)


def _check_work(context: Context, request: DeleteAclsRequest) -> None:
    """Raises ApiError POLICY_VIOLATION for filters that would be compared with too many rules in
    one turn of the event loop."""
    scans = sum(
        not (each.HasField("resource_name") and each.resource_type > ResourceType.ANY)
        for each in request.filters
    )
    if scans > 1 and scans * len(context.image.acls) > _COMPARED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{scans} filters without a resource would be compared with {len(context.image.acls)} "
            "ACLs each: name the resources, or send fewer filters at once",
        )
