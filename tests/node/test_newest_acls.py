"""A node decides over ACLs of the committed metadata, and over the newest that a role of it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from metadata.acls import Acls, acls_of
from node.node import Node
from tests.support.acls import acl

OLD, NEW = Acls(), acls_of([(acl("a"), bytes(16))])


def controller(*, active: bool) -> Any:
    return SimpleNamespace(active=active, image=SimpleNamespace(acls=NEW))


def broker(*, offset: int) -> Any:
    return SimpleNamespace(image=SimpleNamespace(acls=OLD, offset=offset))


class Roles:
    """The roles of a node, in the place of a whole one."""

    def __init__(self, controller: Any = None, broker: Any = None) -> None:
        self.controller = controller
        self._own_broker = broker
        self._knows_acls = False

    def newest_acls(self) -> Acls | None:
        return Node._newest_acls(cast(Any, self))  # noqa: SLF001


def test_a_node_that_replays_an_old_part_of_the_log_has_no_acls() -> None:
    assert Roles(controller(active=False)).newest_acls() is None
    assert Roles(None, broker(offset=-1)).newest_acls() is None
    assert Roles(controller(active=False), broker(offset=-1)).newest_acls() is None


def test_the_controller_of_a_node_has_newer_acls_than_its_broker() -> None:
    assert Roles(controller(active=True), broker(offset=7)).newest_acls() is NEW
    assert Roles(controller(active=False), broker(offset=7)).newest_acls() is NEW
    assert Roles(controller(active=True), broker(offset=-1)).newest_acls() is NEW


def test_a_node_of_one_role_goes_by_that_role() -> None:
    assert Roles(controller(active=True)).newest_acls() is NEW
    assert Roles(None, broker(offset=7)).newest_acls() is OLD


def test_a_node_that_has_had_the_present_acls_keeps_deciding() -> None:
    roles = Roles(controller(active=True))
    assert roles.newest_acls() is NEW
    roles.controller.active = False
    assert roles.newest_acls() is NEW
    roles.controller = None
    assert roles.newest_acls() is None
