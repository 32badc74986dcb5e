"""The law of a right that its holder loses and uses at the same time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chaos.sim.cluster.methods import DELETE_ACLS
from chaos.sim.laws.own_denials import USURPER, NobodyLiftsItsOwnDenial
from chaos.sim.laws.scene import Scene
from chaos.sim.world.wire import Said, Stage
from metadata.acl import Acl, Permission
from runtime.administration.acls import message_of
from stele.errors import ErrorCode
from stele.wire.v1.admin_pb2 import DeleteAclsRequest, DeleteAclsResponse
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.support.acls import acl

DENIAL = acl(principal=USURPER, permission=Permission.DENY)
Result = DeleteAclsResponse.Result


def broken(*removed: Acl, by: str = USURPER, **fields: Any) -> list[str]:
    reports: list[str] = []
    law = NobodyLiftsItsOwnDenial.of(cast(Scene, SimpleNamespace(report=reports.append)))
    request = DeleteAclsRequest(on_behalf_of=OnBehalfOf(principal=by))
    answer = DeleteAclsResponse(results=[Result(acls=map(message_of, removed))], **fields)
    payload = answer.SerializeToString()
    said = Said("b1", "c1", DELETE_ACLS, request.SerializeToString(), payload)
    law.hear(Stage.ARRIVED, said._replace(answer=b""))
    law.hear(Stage.ANSWERED, said)
    assert law.looked == (by == USURPER and "error" not in fields)
    return reports


def test_its_own_denial_is_removed() -> None:
    assert broken(DENIAL) == [f"c1 lets {USURPER} remove its own denial"]


def test_others_remove_it_and_it_removes_others() -> None:
    assert broken(DENIAL, by="User:admin") == []
    assert broken(DENIAL._replace(permission=Permission.ALLOW)) == []
    assert broken(DENIAL._replace(principal="User:ann")) == []
    assert broken(DENIAL, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED) == []
    assert broken() == []
