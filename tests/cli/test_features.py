"""``stele features describe``: which nodes support which levels, for people and for programs."""

from __future__ import annotations

import json
from types import TracebackType

import pytest

from cli import features, main
from stele.admin.features import FeatureDescription, SupportedLevels


class _Admin:
    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def describe_features(self, *, linearizable: bool) -> list[FeatureDescription]:
        assert linearizable
        brokers = (SupportedLevels(1, 1, 2), SupportedLevels(2, 1, 3))
        controllers = (SupportedLevels(101, 1, 2), SupportedLevels(102, 1, 1))
        return [FeatureDescription("metadata.version", 1, 1, 1, brokers, controllers)]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "connect", lambda bootstrap, timeout: _Admin())


def test_every_node_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["features", "describe"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "FEATURE",
        "FINALIZED",
        "SUPPORTED",
        "BY",
        "ALL",
        "BROKERS",
        "CONTROLLERS",
    ]
    shown = "metadata.version 1 1 1: 1 to 2, 2: 1 to 3 101: 1 to 2, 102: 1"
    assert line.split() == shown.split()


def test_programs_get_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["features", "describe", "--json"]) == 0
    (feature,) = json.loads(capsys.readouterr().out)
    assert feature["controllers"] == [
        {"node_id": 101, "min_level": 1, "max_level": 2},
        {"node_id": 102, "min_level": 1, "max_level": 1},
    ]
    assert [each["node_id"] for each in feature["brokers"]] == [1, 2]
