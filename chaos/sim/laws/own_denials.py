"""Rights and changes in the order of the metadata log."""

from __future__ import annotations

from typing import Final, Self

from chaos.sim.cluster.methods import DELETE_ACLS
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from metadata.acl import Permission
from stele.errors import ErrorCode
from stele.wire.v1.admin_pb2 import DeleteAclsRequest, DeleteAclsResponse

USURPER: Final = "User:una"
"""May ALTER the cluster, now and then is denied it, and tries to remove the denial."""


class NobodyLiftsItsOwnDenial(Law):
    """A principal never removes the rule that denies it the right to remove rules.

    The rule is in the image on which the removal is decided, or there is nothing to remove. So an
    answer that names the rule shows that the rights are those of an older image.
    """

    name = "nobody lifts its own denial"
    cadence = Cadence.TOLD
    hears = (DELETE_ACLS,)
    proof = Proof.CAMPAIGN

    def __init__(self, report: Report) -> None:
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is not Stage.ANSWERED:
            return
        # A broker names the client to the controller.
        if DeleteAclsRequest.FromString(said.request).on_behalf_of.principal != USURPER:
            return
        answer = DeleteAclsResponse.FromString(said.answer)
        if answer.error != ErrorCode.NONE:
            return
        self.looked += 1
        for result in answer.results:
            for acl in result.acls:
                if (acl.principal, acl.permission) == (USURPER, Permission.DENY):
                    self._report(f"{said.target} lets {USURPER} remove its own denial")
