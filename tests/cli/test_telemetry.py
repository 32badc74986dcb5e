"""``stele telemetry …``: what it asks the cluster for, and what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType

import pytest

from cli import main, telemetry
from stele.admin.descriptions import ConfigEntry, ConfigResource

Changes = Mapping[ConfigResource, Mapping[str, str | None]]


class _Admin:
    def __init__(self) -> None:
        self.subscriptions = {"m": {"metrics": "*", "interval.ms": "1000", "match": ""}}
        self.changes: list[Changes] = []

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def alter_configs(self, changes: Changes, *, request_id: bytes | None = None) -> None:
        self.changes.append(changes)

    def list_client_metrics(self, *, linearizable: bool = True) -> list[str]:
        return list(self.subscriptions)

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, linearizable: bool = True
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        return {
            each: [
                ConfigEntry(key, value, "CLIENT_METRICS", "STRING", "", False)
                for key, value in self.subscriptions[each.name].items()
            ]
            for each in resources
        }


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    monkeypatch.setattr(telemetry, "connect", lambda bootstrap, timeout: admin)
    return admin


def test_a_subscription_is_made(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--metrics a. --metrics b. --interval-ms 500 --match client_id=x --match client_id=y"
    assert main.run(["telemetry", "subscribe", "s", *words.split()]) == 0
    values = {"metrics": "a.,b.", "interval.ms": "500", "match": "client_id=x,client_id=y"}
    assert admin.changes == [{ConfigResource(16, "s"): values}]
    assert "subscription s: metrics=a.,b., interval.ms=500" in capsys.readouterr().err


def test_only_what_is_given_is_changed(admin: _Admin) -> None:
    assert main.run(["telemetry", "subscribe", "s", "--interval-ms", "500"]) == 0
    assert admin.changes == [{ConfigResource(16, "s"): {"interval.ms": "500"}}]
    assert main.run(["telemetry", "subscribe", "s"]) == 2
    assert len(admin.changes) == 1


def test_every_key_of_a_subscription_is_removed(
    admin: _Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["telemetry", "unsubscribe", "m"]) == 0
    removed = dict.fromkeys(("metrics", "interval.ms", "match"))
    assert admin.changes == [{ConfigResource(16, "m"): removed}]
    assert main.run(["telemetry", "unsubscribe", "other"]) == 1
    assert "there is no subscription other" in capsys.readouterr().err


def test_subscriptions_are_listed(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["telemetry", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["m", "*", "1000", "every", "client"]
    assert main.run(["telemetry", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == admin.subscriptions
    admin.subscriptions.clear()
    assert main.run(["telemetry", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}
