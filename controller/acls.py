"""Creation and deletion of ACLs."""

from __future__ import annotations

from typing import Final

from controller.machine import Context, ControllerResult, Decision, check_size
from metadata.acl import Acl
from metadata.acls import ACL_RECORDS, record_of
from metadata.features import require
from runtime.administration.acls import acl_of, filter_of, message_of
from stele.errors import ApiError
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

ACL_ID_BYTES: Final = 16


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
    decision = Decision(context)
    response = DeleteAclsResponse()
    removed: dict[bytes, pb.MetadataRecord] = {}
    for message in request.filters:
        result = response.results.add()
        try:
            matching = context.image.acls.matching(filter_of(message))
        except ApiError as error:
            result.error, result.message = error.code, error.message
            continue
        result.acls.extend(message_of(acl) for acl, _ in matching)
        for _, acl_id in matching:
            record = pb.MetadataRecord(remove_acl=pb.RemoveAclRecord(id=acl_id))
            if acl_id not in removed:
                decision.charge([record])
                removed[acl_id] = record
    decision.extend(removed.values())
    return decision.result(response)
