"""``stele clients`` and ``stele explain client``: what they ask for, and what they print."""

from __future__ import annotations

import json
from dataclasses import replace
from types import TracebackType

import pytest

from cli import clients, explain_client, main
from stele.admin.client_connections import ClientConnection, ClientDenials
from stele.admin.client_quotas import QuotaUsage

CONNECTION = ClientConnection(
    principal="User:ann",
    client_id="orders",
    software_name="java",
    software_version="4.1",
    listener="EXTERNAL",
    peer="10.0.0.9:5555",
    connected_s=61.2,
    idle_s=0.5,
    bytes_in=1000,
    bytes_out=2000,
    requests=30,
    in_flight=1,
    errors=2,
    throttles=0,
    throttled_s=0.0,
    is_throttled=False,
    lag=17,
    latency_ms=2.345,
)


class _Admin:
    def __init__(self) -> None:
        other = replace(CONNECTION, principal="User:bob", software_name="", software_version="")
        self.connections = {1: [CONNECTION, other], 2: []}
        self.asked: list[str | None] = []

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def describe_connections(
        self, client_id: str | None = None
    ) -> dict[int, list[ClientConnection]]:
        self.asked.append(client_id)
        return self.connections

    def explain_client_quotas(self, user: str, client_id: str = "") -> dict[int, list[QuotaUsage]]:
        usage = QuotaUsage("producer_byte_rate", {"user": user}, 200.0, 50.0, 3, 1.26, ("user",))
        return {1: [usage] if user == "ann" else [], 2: []}


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    for command in (clients, explain_client):
        monkeypatch.setattr(command, "connect", lambda bootstrap, timeout: admin)
    return admin


def test_connections_are_listed(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["clients", "--principal", "User:ann"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    shown = "1 orders User:ann java 4.1 EXTERNAL 10.0.0.9:5555 61 1000 2000 30 2 0 0.0 17 2.35"
    assert line.split() == shown.split()
    assert main.run(["clients", "--client-id", "orders", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["principal"] for each in told["1"]] == ["User:ann", "User:bob"]
    assert admin.asked == [None, "orders"]


def test_a_client_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "client", "orders"]) == 0
    ann, bob, quota, none = capsys.readouterr().out.splitlines()
    assert ann == (
        "broker 1: User:ann from 10.0.0.9:5555 on EXTERNAL with java 4.1 for 61 s; 30 requests "
        "(2 failed), 1000 bytes in, 2000 bytes out"
    )
    assert bob.startswith("broker 1: User:bob from 10.0.0.9:5555 on EXTERNAL with unnamed software")
    assert quota == (
        "broker 1: producer_byte_rate=200 of user ann, 25% used; its clients waited 3 times, 1.3 s "
        "together"
    )
    assert none == "no quota counts for user bob with client id 'orders'"


@pytest.mark.parametrize(
    ("rule", "mend"),
    [
        ("DefaultDeny", "stele acls add User:ann READ topic:orders"),
        ("DENY READ", "this rule denies it: stele acls list --principal User:ann"),
        ("", "it is allowed now"),
    ],
)
def test_what_a_client_was_denied_is_explained(
    admin: _Admin, rule: str, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    denials = ClientDenials(12, "READ", "TOPIC", "orders", 3.4, rule)
    denied = replace(CONNECTION, denials=denials)
    admin.connections = {1: [denied, replace(denied, peer="10.0.0.9:5556")]}
    assert main.run(["explain", "client", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:3] == [
        f"broker 1: User:ann was denied something 12 times, last READ topic:orders 3 s ago: {mend}"
    ]
    assert main.run(["clients"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-4] == "12"
    assert main.run(["clients", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["1"][0]["denials"]["times"] == 12


def test_a_throttled_client_is_not_well(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    slowed = replace(CONNECTION, throttles=3, throttled_s=4.5, is_throttled=True)
    admin.connections = {1: [slowed]}
    assert main.run(["explain", "client", "orders"]) == 3
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith("; throttled 3 times for 4.5 s together; throttled now")
    assert main.run(["explain", "client", "orders", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["quotas"]["ann"]["1"][0]["value"] == 200.0


def test_a_client_that_is_not_connected(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    admin.connections = {1: []}
    assert main.run(["explain", "client", "orders"]) == 3
    assert "no client 'orders' is connected" in capsys.readouterr().err
