"""``stele quotas …``: what it asks the cluster for, and what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType

import pytest

from cli import main, quotas
from stele.admin.client_quotas import ClientQuotas, QuotaAlteration, QuotaComponent, QuotaUsage


class _Admin:
    def __init__(self) -> None:
        self.quotas = [
            ClientQuotas({"user": None}, {"request_percentage": 12.5}),
            ClientQuotas({"user": "ann", "client-id": "c"}, {"producer_byte_rate": 1e7}),
            ClientQuotas({"ip": "::1"}, {"connection_creation_rate": 3.0}),
        ]
        self.alterations: list[QuotaAlteration] = []
        self.asked: list[QuotaComponent] = []

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, request_id: bytes | None = None
    ) -> None:
        self.alterations += alterations

    def explain_client_quotas(
        self, user: str = "", client_id: str = "", *, ip: str = ""
    ) -> dict[int, list[QuotaUsage]]:
        if ip == "10.0.0.7":
            quota = QuotaUsage(RATE, {"ip": None}, 20.0, 5.0, 3, 1.26, ("ip",))
            return {1: [quota], 2: []}
        usage = QuotaUsage("producer_byte_rate", {"user": user}, 200.0, 50.0, 3, 1.26, ("user",))
        return {1: [usage] if user == "ann" else [], 2: []}

    def describe_client_quotas(
        self, components: Sequence[QuotaComponent] = (), *, linearizable: bool = True
    ) -> list[ClientQuotas]:
        self.asked += components
        return self.quotas


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    monkeypatch.setattr(quotas, "connect", lambda bootstrap, timeout: admin)
    return admin


def test_quotas_are_set(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--user ann --client-id-default producer_byte_rate=10000000 request_percentage=.5"
    assert main.run(["quotas", "set", *line.split()]) == 0
    values = {"producer_byte_rate": 1e7, "request_percentage": 0.5}
    assert admin.alterations == [QuotaAlteration({"user": "ann", "client-id": None}, values)]
    told = capsys.readouterr().err
    assert "producer_byte_rate of user ann, default client-id is 10000000 on each broker" in told


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        ("--user ann --client-id c", ["producer_byte_rate"]),
        ("--ip-default a b", ["a", "b"]),
        ("--user-default", ["request_percentage"]),
    ],
)
def test_quotas_are_removed(admin: _Admin, arguments: str, keys: list[str]) -> None:
    assert main.run(["quotas", "remove", *arguments.split()]) == 0
    (alteration,) = admin.alterations
    assert alteration.values == dict.fromkeys(keys)


def test_quotas_are_listed(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["quotas", "list", "--user", "ann", "--client-id-default"]) == 0
    assert admin.asked == [
        QuotaComponent("user", "ann"),
        QuotaComponent("client-id", None, "DEFAULT"),
    ]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["<default>", "-", "-", "request_percentage", "12.5"],
        ["ann", "c", "-", "producer_byte_rate", "10000000"],
        ["-", "-", "::1", "connection_creation_rate", "3"],
    ]
    assert main.run(["quotas", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "entity": {"user": None},
        "values": {"request_percentage": 12.5},
    }


@pytest.mark.parametrize(
    ("line", "message", "code"),
    [
        ("set a=1", "say whose quota", 2),
        ("set --user ann --user-default a=1", "not both", 2),
        ("set --user ann a=x", "a=x: the value must be a number", 2),
        ("set --user ann a=nan", "must be a number", 2),
        ("set --user ann a", "not of the form", 2),
        ("remove", "say whose quota", 2),
        ("remove --user bob", "user bob has no quota", 1),
    ],
)
def test_what_makes_no_sense_is_refused(
    admin: _Admin, line: str, message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["quotas", *line.split()]) == code
    assert message in capsys.readouterr().err
    assert not admin.alterations


def test_why_says_what_counts_and_what_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["quotas", "why", "ann", "--client-id", "c"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    told = [each.strip() for each in line.split("  ") if each.strip()]
    assert told == ["1", "producer_byte_rate", "user ann", "user", "200", "25%", "3", "1.3"]
    assert main.run(["quotas", "why", "bob"]) == 0
    assert "no quota counts for user bob" in capsys.readouterr().err
    assert main.run(["quotas", "why", "ann", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["1"][0]["shared_by"] == ["user"]


def test_why_of_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["quotas", "why", "--ip", "10.0.0.7"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    told = [each.strip() for each in line.split("  ") if each.strip()]
    assert told == ["1", RATE, "default ip", "ip", "20", "25%", "3", "1.3"]
    assert main.run(["quotas", "why", "--ip", "10.0.0.8"]) == 0
    assert "no quota counts for address 10.0.0.8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["ann", "--ip", "::1"], ["--ip", "::1", "--client-id", "c"]]
)
def test_why_needs_a_user_or_an_address(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["quotas", "why", *arguments]) == 2
    assert "say of whom" in capsys.readouterr().err


RATE = "connection_creation_rate"
