"""The law of rules that are followed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.sim.cluster.methods import CREATE_ACLS, DESCRIBE_GROUPS
from chaos.sim.laws.access import PREFIX, AccessFollowsTheRules
from chaos.sim.laws.scene import Scene
from chaos.sim.world.wire import Said, Stage
from metadata.acl import Acl, Operation, Permission, ResourceType
from metadata.acls import acls_of
from metadata.image import EMPTY, MetadataImage
from runtime.administration.acls import message_of
from stele.errors import ErrorCode
from stele.wire.v1.admin_pb2 import CreateAclsRequest, CreateAclsResponse
from stele.wire.v1.groups_pb2 import DescribeGroupsRequest, DescribeGroupsResponse
from tests.support.acls import acl

NAME = PREFIX + "1"
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def rule(permission: Permission) -> Acl:
    return acl(NAME, Operation.DESCRIBE, resource_type=ResourceType.GROUP, permission=permission)


ALLOW, DENY = rule(Permission.ALLOW), rule(Permission.DENY)


def image(*rules: Acl) -> MetadataImage:
    return replace(EMPTY, acls=acls_of([(each, bytes([n] * 16)) for n, each in enumerate(rules)]))


class Bench:
    """One broker, whose rules a test sets."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.registration = SimpleNamespace(fenced=False, incarnation_id=b"i")
        # What the broker itself knows of its registration.
        self.own_registration = self.registration
        self.broker = SimpleNamespace(image=None, lease_valid=True, incarnation_id=b"i")
        self.broker_has()
        self.node = SimpleNamespace(id=1, host="b1", broker=self.broker, running=self.process())
        committed = SimpleNamespace(broker=lambda _: self.registration)
        cluster = SimpleNamespace(brokers={1: self.node}, image=committed)
        scene = SimpleNamespace(cluster=cluster, report=self.broken.append)
        self.law = AccessFollowsTheRules(cast(Scene, scene))

    def broker_has(self, *acls: Acl) -> None:
        self.broker.image = SimpleNamespace(
            acls=image(*acls).acls, broker=lambda _: self.own_registration
        )

    def process(self) -> Any:
        return SimpleNamespace(broker=self.broker, controller=None)

    def asked(
        self,
        before: MetadataImage,
        after: MetadataImage,
        error: int,
        name: str = NAME,
        restart: bool = False,
    ) -> list[str]:
        """What is reported of a question that came and was answered under these rules.
        ``restart``: by different processes."""
        self.broken.clear()
        request = DescribeGroupsRequest(groups=[name]).SerializeToString()
        answer = DescribeGroupsResponse()
        answer.groups.add(group=name, error=error)
        said = Said("client", "b1", DESCRIBE_GROUPS, request)
        running = self.node.running
        role = (running and running.controller) or self.broker
        role.image = before
        self.law.hear(Stage.ARRIVED, said)
        if restart:
            self.node.running = self.process()
        role.image = after
        self.law.hear(Stage.ANSWERED, said._replace(answer=answer.SerializeToString()))
        return self.broken

    def changed(self, error: int = 0, lagging: tuple[int, ...] = ()) -> list[str]:
        """What is reported of the answer to the creation of ALLOW."""
        self.broken.clear()
        request = CreateAclsRequest(acls=[message_of(ALLOW)]).SerializeToString()
        answer = CreateAclsResponse(lagging_brokers=lagging)
        answer.results.add(error=error)
        said = Said("client", "c1", CREATE_ACLS, request, answer.SerializeToString())
        self.law.hear(Stage.ANSWERED, said)
        return self.broken


@pytest.mark.parametrize(
    ("rules", "is_allowed"), [((), False), ((ALLOW,), True), ((ALLOW, DENY), False)]
)
def test_what_all_rules_say_is_done(rules: tuple[Acl, ...], *, is_allowed: bool) -> None:
    bench = Bench()
    right, wrong = (ErrorCode.NOT_COORDINATOR, DENIED) if is_allowed else (DENIED, 0)
    assert not bench.asked(image(*rules), image(*rules), right)
    (said,) = bench.asked(image(*rules), image(*rules), wrong)
    assert ("denies" if is_allowed else "allows") in said
    assert bench.law.looked == 2


def test_rules_that_change_meanwhile_allow_both() -> None:
    bench = Bench()
    for error in (0, DENIED):
        assert not bench.asked(image(), image(ALLOW), error)
        assert not bench.asked(image(ALLOW), image(ALLOW, DENY), error)
        assert not bench.asked(image(), image(), error, name="other")
    assert bench.law.looked == 0


def test_another_process_is_not_compared() -> None:
    bench = Bench()
    assert bench.asked(image(ALLOW), image(ALLOW), DENIED)
    assert not bench.asked(image(ALLOW), image(ALLOW), DENIED, restart=True)
    assert bench.law.looked == 1


def test_the_rules_of_a_controller_count_before_its_broker_has_them() -> None:
    bench = Bench()
    bench.node.running.controller = SimpleNamespace(image=image())
    assert not bench.broker.image.acls.by_id
    assert not bench.asked(image(ALLOW), image(ALLOW), ErrorCode.NOT_COORDINATOR)
    (said,) = bench.asked(image(ALLOW), image(ALLOW), DENIED)
    assert "denies" in said


def test_a_node_without_a_role_is_not_judged() -> None:
    bench = Bench()
    bench.node.running.broker = None
    assert not bench.asked(image(ALLOW), image(ALLOW), DENIED)
    bench.node.running = None
    assert not bench.asked(image(ALLOW), image(ALLOW), DENIED)


def test_an_answered_change_is_in_force_on_live_brokers() -> None:
    bench = Bench()
    assert "that broker 1 lacks" in bench.changed()[0]
    assert not bench.changed(error=ErrorCode.INVALID_REQUEST)
    assert not bench.changed(lagging=(1,))
    bench.broker_has(ALLOW)
    assert not bench.changed()
    bench.broker_has()
    for change in ({"fenced": True}, {"incarnation_id": b"j"}):
        other = SimpleNamespace(**{"fenced": False, "incarnation_id": b"i"} | change)
        bench.registration, known = other, bench.registration
        assert not bench.changed()
        # The broker does not know yet that it is unfenced, or registered anew.
        bench.registration, bench.own_registration = known, other
        assert not bench.changed()
        bench.own_registration = known
    assert bench.changed()
    bench.broker.lease_valid = False
    assert not bench.changed()
