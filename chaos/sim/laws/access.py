"""What callers may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from broker.broker import Broker
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.methods import CREATE_ACLS, DESCRIBE_GROUPS
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from metadata.acl import Permission
from metadata.acls import Acls
from node.node import Node
from runtime.administration.acls import acl_of
from stele.errors import ErrorCode
from stele.wire.v1.admin_pb2 import CreateAclsRequest, CreateAclsResponse
from stele.wire.v1.groups_pb2 import DescribeGroupsRequest, DescribeGroupsResponse

PREFIX: Final = "access-"
"""Groups with such names are described by one principal alone. The rules about each first allow it,
then one more denies it, and none is ever removed. So the phases of a name follow each other."""

_UNKNOWN, _ALLOWED, _DENIED = range(3)


class _Seen(NamedTuple):
    node: Node
    phases: dict[str, int]
    """By name of a group: what the node's rules said at the arrival."""


class AccessFollowsTheRules(Law):
    """A request is allowed if all rules of its lifetime allow it, and denied if all deny it. A
    change that was answered is in force on every live broker that the answer does not name.

    A node that is a controller too decides over the committed image of its controller. It may
    answer before its broker is registered, and the broker has no image until then.
    """

    name = "access follows the rules"
    cadence = Cadence.TOLD
    hears = (DESCRIBE_GROUPS, CREATE_ACLS)
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._cluster: SimCluster = scene.cluster
        self._report: Report = scene.report
        self._arrivals = Arrivals[_Seen]()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def hear(self, stage: Stage, said: Said) -> None:
        if said.method.endswith(CREATE_ACLS):
            if stage is Stage.ANSWERED:
                self._check_in_force(said)
            return
        node = self._node_at(said.target)
        names = [
            name
            for name in DescribeGroupsRequest.FromString(said.request).groups
            if name.startswith(PREFIX)
        ]
        acls = None if node is None else _acls_of(node)
        if node is None or acls is None or not names:
            return
        seen = _Seen(node, {name: _phase(acls, name) for name in names})
        before = self._arrivals.met(stage, said, seen)
        if before is not None and before.node is node:
            self._check_answer(said, before.phases, seen.phases)

    def _check_answer(self, said: Said, before: dict[str, int], after: dict[str, int]) -> None:
        for answer in DescribeGroupsResponse.FromString(said.answer).groups:
            phase = after.get(answer.group)
            if phase is None or before.get(answer.group) != phase:
                continue  # the rules changed meanwhile
            self.looked += 1
            is_denied = answer.error == ErrorCode.GROUP_AUTHORIZATION_FAILED
            if is_denied == (phase == _ALLOWED):
                self._report(
                    f"{said.target} {'denies' if is_denied else 'allows'} to describe "
                    f"{answer.group}, against all rules of the request's lifetime"
                )

    def _check_in_force(self, said: Said) -> None:
        answer = CreateAclsResponse.FromString(said.answer)
        if answer.error != ErrorCode.NONE or answer.already_done:
            return  # what was done before may be undone by now
        made = [
            acl_of(acl)
            for acl, result in zip(
                CreateAclsRequest.FromString(said.request).acls, answer.results, strict=False
            )
            if result.error == ErrorCode.NONE
        ]
        for broker_id, broker in self._live():
            if broker_id in answer.lagging_brokers:
                continue
            self.looked += 1
            if any(broker.image.acls.id_of(acl) is None for acl in made):
                self._report(
                    f"{said.target} answers a change of ACLs that broker {broker_id} lacks"
                )

    def _live(self) -> Iterator[tuple[int, Broker]]:
        """The brokers that are unfenced in the metadata that they and the controllers have. A
        broker that does not know yet that it is unfenced may lack what was decided before."""
        for node in self._cluster.brokers.values():
            broker = node.broker
            if broker is None or not broker.lease_valid:
                continue
            known = broker.image.broker(node.id), self._cluster.image.broker(node.id)
            if all(
                each is not None
                and not each.fenced
                and each.incarnation_id == broker.incarnation_id
                for each in known
            ):
                yield node.id, broker

    def _node_at(self, machine: str) -> Node | None:
        for node in self._cluster.brokers.values():
            if node.host == machine:
                return node.running
        return None


def _acls_of(node: Node) -> Acls | None:
    """The ACLs over which the node must decide; None while it has begun no role."""
    role = node.controller or node.broker
    return None if role is None else role.image.acls


def _phase(acls: Acls, name: str) -> int:
    told = {acl.permission for acl in acls.by_id.values() if acl.resource_name == name}
    if Permission.DENY in told:
        return _DENIED
    return _ALLOWED if told else _UNKNOWN
