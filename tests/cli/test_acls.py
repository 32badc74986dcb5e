"""``stele acls …``: what it asks the cluster for, and what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pytest

from cli import acls, main
from stele.admin.acls import AccessVerdict, Acl, AclFilter

RULE = Acl("User:ann", "READ", "TOPIC", "orders")


class _Admin:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.verdict = AccessVerdict(True, "Rule", RULE)

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def create_acls(self, rules: Sequence[Acl], *, request_id: bytes | None) -> None:
        self.calls.append(("create", list(rules)))

    def delete_acls(self, filters: Sequence[AclFilter], *, request_id: bytes | None) -> list[Acl]:
        self.calls.append(("delete", list(filters)))
        return [RULE]

    def describe_acls(self, wanted: AclFilter, *, linearizable: bool = True) -> list[Acl]:
        self.calls.append(("describe", wanted))
        return [RULE]

    def test_access(
        self, principal: str, operation: str, kind: str, name: str, *, host: str
    ) -> AccessVerdict:
        self.calls.append(("test", (principal, operation, kind, name, host)))
        return self.verdict


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    monkeypatch.setattr(acls, "connect", lambda bootstrap, timeout: admin)
    return admin


def test_rules_are_added(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["acls", "add", "User:ann", "read, describe", "topic:orders"]) == 0
    second = Acl("User:ann", "DESCRIBE", "TOPIC", "orders")
    assert admin.calls == [("create", [RULE, second])]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "in force: ALLOW User:ann READ TOPIC orders"
    more = ["--deny", "--prefixed", "--host", "10.0.0.1"]
    assert main.run(["acls", "add", "User:*", "ALL", "transactional-id:t-", *more]) == 0
    rule = Acl("User:*", "ALL", "TRANSACTIONAL_ID", "t-", "PREFIXED", "10.0.0.1", "DENY")
    assert admin.calls[-1] == ("create", [rule])
    assert main.run(["acls", "add", "User:ann", "ALTER", "cluster"]) == 0
    assert admin.calls[-1][1] == [Acl("User:ann", "ALTER", "CLUSTER", "kafka-cluster")]
    assert main.run(["acls", "add", "User:ann", "DESCRIBE_TOKENS", "user:User:bob"]) == 0
    assert admin.calls[-1][1][0].resource_name == "User:bob"


@pytest.mark.parametrize("resource", ["orders", "topic", "topic:", "queue:a"])
def test_what_is_no_resource(resource: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["acls", "add", "User:ann", "READ", resource]) == 2
    assert capsys.readouterr().err.startswith("stele: ")


def test_rules_are_listed(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["acls", "list"]) == 0
    assert admin.calls == [("describe", AclFilter())]
    head, line = capsys.readouterr().out.splitlines()
    assert line.split() == ["ALLOW", "User:ann", "READ", "TOPIC", "LITERAL", "orders", "*"]
    assert len(head.split()) == 7
    assert main.run(["acls", "list", "--resource", "topic:orders", "--touching", "--json"]) == 0
    wanted = AclFilter(resource_type="TOPIC", resource_name="orders", pattern_type="MATCH")
    assert admin.calls[-1] == ("describe", wanted)
    assert json.loads(capsys.readouterr().out)[0]["principal"] == "User:ann"
    assert main.run(["acls", "list", "--resource", "group"]) == 0
    assert admin.calls[-1] == ("describe", AclFilter(resource_type="GROUP"))
    assert main.run(["acls", "list", "--touching"]) == 2


def test_rules_are_removed_by_what_narrows_them(admin: _Admin) -> None:
    assert main.run(["acls", "remove"]) == 2
    assert main.run(["acls", "remove", "--all", "--principal", "User:ann"]) == 2
    assert admin.calls == []
    assert main.run(["acls", "remove", "--principal", "User:ann", "--dry-run"]) == 0
    assert admin.calls == [("describe", AclFilter(principal="User:ann"))]
    assert main.run(["acls", "remove", "--principal", "User:ann"]) == 0
    assert admin.calls[-1] == ("delete", [AclFilter(principal="User:ann")])
    assert main.run(["acls", "remove", "--all"]) == 0
    assert admin.calls[-1] == ("delete", [AclFilter()])


def test_the_reason_is_reported(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["acls", "test", "User:ann", "read", "topic:orders"]
    assert main.run(command) == 0
    assert admin.calls == [("test", ("User:ann", "read", "TOPIC", "orders", ""))]
    assert capsys.readouterr().out == (
        "User:ann may READ topic:orders: ALLOW User:ann READ TOPIC orders\n"
    )
    admin.verdict = AccessVerdict(False, "DefaultDeny")
    assert main.run(command) == 3
    assert capsys.readouterr().out == "User:ann may not READ topic:orders: no rule allows it\n"
    assert main.run([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["allowed"] is False
