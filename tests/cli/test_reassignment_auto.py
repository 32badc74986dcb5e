"""``--throttle auto``: the rule of the rate, the measured latency, and what is restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import main
from cli.broker_latency import BrokerLatency, buckets_of, percentile_s
from cli.output import CommandError
from cli.reassignment_auto import LOOK_EVERY_S, QUIET_S, PacedMoves
from cli.reassignment_kept import KeptThrottles
from cli.reassignment_pace import (
    FIRST_RATE,
    LEAST_RATE,
    MIB,
    MOST_RATE,
    STEP_RATE,
    TOLERATED,
    Pace,
)
from cli.reassignment_throttles import FETCHING, RATES, SENDING, Changes
from runtime.metrics.registry import MetricsRegistry
from stele.admin.descriptions import ConfigEntry, ConfigResource
from stele.errors import ApiError, ErrorCode
from stele.sync import Admin

latencies = st.none() | st.floats(min_value=0.0, max_value=10.0)


# ----------------------------------------------------------------------------------- rate


def test_the_rate_doubles_until_it_is_too_much_and_then_grows_in_steps() -> None:
    pace, rates = Pace(0.008), []
    for latency_s in (0.01, 0.016, None, 0.04, 0.01, 0.01):
        pace = pace.after(latency_s)
        rates.append(pace.rate // MIB)
    assert rates == [8, 16, 32, 16, 20, 24]


@given(st.none() | st.floats(min_value=0.0001, max_value=1.0), st.lists(latencies, max_size=40))
def test_each_step_is_that_of_the_dumb_rule(quiet_s: float | None, found: list[Any]) -> None:
    pace = Pace(quiet_s)
    was_too_much, known = False, quiet_s
    for latency_s in found:
        before, pace = pace.rate, pace.after(latency_s)
        if known is None and latency_s is not None:
            known = latency_s
            assert pace.rate == before
        elif latency_s is not None and latency_s > max(0.005, TOLERATED * cast(float, known)):
            was_too_much = True
            assert pace.rate == max(before // 2, LEAST_RATE)
        else:
            more = STEP_RATE if was_too_much else before
            assert pace.rate == min(before + more, MOST_RATE)
        assert LEAST_RATE <= pace.rate <= MOST_RATE


# -------------------------------------------------------------------------------- latency


def text_of(*took_s: float) -> str:
    """The ``/metrics`` of a broker that has answered Produce requests in these times."""
    registry = MetricsRegistry()
    family = registry.histograms("stele_request_seconds", "Time.", "api")
    for api in ("FETCH", "PRODUCE"):
        for each in took_s if api == "PRODUCE" else (9.0,) * 50:
            family(api).observe(each)
    return registry.render().decode()


def test_the_percentile_is_that_of_the_requests_between_two_looks() -> None:
    slow, quick = (0.9,) * 100, (0.0015,) * 100
    before, after = buckets_of(text_of(*slow)), buckets_of(text_of(*slow, *quick))
    found = percentile_s(before, after)
    assert found is not None
    assert 0.001 < found <= 0.002
    assert percentile_s({}, before) == pytest.approx(0.5 + 0.5 * 0.99)
    assert percentile_s(after, after) is None
    assert percentile_s(after, buckets_of(text_of(*quick))) == found, "it began anew"
    assert buckets_of("") == {}


def test_a_percentile_above_all_buckets_is_the_last_bound() -> None:
    found = buckets_of(text_of(*(1000.0,) * 20))
    bounds = sorted(found)
    assert percentile_s({}, found) == bounds[-2]


def test_the_worst_broker_counts_and_one_without_requests_does_not() -> None:
    texts = {"a": [text_of(), text_of(*(0.0015,) * 50)], "b": [text_of(), text_of(*(0.3,) * 50)]}
    texts["c"] = [text_of(), text_of(5.0)]
    latency = BrokerLatency(["a", "b", "c"], lambda server: texts[server].pop(0))
    assert latency.look() is None
    worst = latency.look()
    assert worst is not None
    assert 0.2 < worst <= 0.5


# ------------------------------------------------------------------------------ the course

BROKER, TOPIC = ConfigResource.broker(1), ConfigResource.topic("t")


class Cluster:
    """The configs of a broker and of a topic."""

    def __init__(self, **values: str) -> None:
        self.configs: dict[ConfigResource, dict[str, str]] = {BROKER: {}, TOPIC: {}}
        self.configs[BROKER] = {name: values["rate"] for name in RATES if "rate" in values}
        self.configs[TOPIC] = {SENDING: values["sends"]} if "sends" in values else {}
        self.rates: list[float] = []
        self.is_broker_down = False
        self.is_gone = False

    def alter_configs(self, changes: Changes) -> None:
        if self.is_gone:
            raise ConnectionError
        for resource, values in changes.items():
            for name, value in values.items():
                if value is None:
                    self.configs[resource].pop(name, None)
                else:
                    self.configs[resource][name] = value
        if (rate := self.configs[BROKER].get(RATES[0])) is not None:
            self.rates.append(int(rate) / MIB)

    def describe_configs(
        self, resources: list[ConfigResource]
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        if self.is_broker_down and BROKER in resources:
            raise ApiError(ErrorCode.INVALID_REQUEST, "there is none in service")
        names = {BROKER: (*RATES, "log.retention.ms"), TOPIC: (SENDING, FETCHING)}
        return {each: [self._entry(each, name) for name in names[each]] for each in resources}

    def _entry(self, resource: ConfigResource, name: str) -> ConfigEntry:
        value = self.configs[resource].get(name)
        source = "DYNAMIC_BROKER" if resource is BROKER else "DYNAMIC_TOPIC"
        return ConfigEntry(
            name, value or "9", source if value is not None else "DEFAULT", "long", "", False
        )


def throttles_at(rate: int) -> Changes:
    return {
        BROKER: dict.fromkeys(RATES, str(rate)),
        TOPIC: {SENDING: "0:1", FETCHING: "0:2"},
    }


class Course:
    """A move during which these latencies are measured, the first of them before it."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Path,
        *looks: float | None,
        is_resumed: bool = False,
    ) -> None:
        self.kept = KeptThrottles(plan)
        self._left = [None, *looks]
        self.pauses: list[float] = []
        self.paced = PacedMoves(
            cast(Admin, cluster),
            throttles_at,
            lambda: self._left.pop(0),
            self.pauses.append,
            self.kept,
            is_resumed=is_resumed,
        )

    def is_moving(self) -> bool:
        return bool(self._left)

    def run(self) -> None:
        with self.paced.begun():
            self.paced.follow(self.is_moving)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def test_the_rate_follows_the_latency_and_everything_is_restored(
    plan: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster(rate="777", sends="*")
    course = Course(cluster, plan, 0.008, 0.01, 0.05, 0.01)
    course.run()
    assert cluster.rates[:-1] == [FIRST_RATE / MIB, 8, 4, 8]
    assert cluster.configs == {BROKER: dict.fromkeys(RATES, "777"), TOPIC: {SENDING: "*"}}
    assert not course.kept.path.exists()
    assert course.pauses == [QUIET_S, *[LOOK_EVERY_S] * 3]
    said = capsys.readouterr().err
    assert "p99 of Produce 50 ms (tolerated: 16 ms); each broker moves at most 4 MiB/s" in said
    assert "the throttles are as before the move" in said


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_everything_is_restored_if_the_move_is_left(
    error: type[BaseException], plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(rate="777")
    course = Course(cluster, plan, 0.008)

    def leave() -> bool:
        assert cluster.configs[TOPIC] == {SENDING: "0:1", FETCHING: "0:2"}
        assert course.kept.path.exists()
        raise error

    with pytest.raises(error), course.paced.begun():
        course.paced.follow(leave)
    assert cluster.configs == {BROKER: dict.fromkeys(RATES, "777"), TOPIC: {}}
    assert ("the moves go on" in capsys.readouterr().err) == (error is KeyboardInterrupt)


def killed(cluster: Cluster, plan: Path) -> None:
    """Pace moves of this plan, and die: nothing is restored."""
    course = Course(cluster, plan, 0.008)
    with pytest.raises(ConnectionError), course.paced.begun():
        cluster.is_gone = True
    cluster.is_gone = False


def test_the_same_command_restores_what_a_killed_one_could_not(plan: Path) -> None:
    cluster = Cluster(rate="777", sends="*")
    killed(cluster, plan)
    assert cluster.configs[BROKER] == dict.fromkeys(RATES, str(FIRST_RATE))
    Course(cluster, plan, 0.008, 0.01, is_resumed=True).run()
    assert cluster.configs == {BROKER: dict.fromkeys(RATES, "777"), TOPIC: {SENDING: "*"}}
    assert list(plan.parent.iterdir()) == []


def test_what_a_killed_command_kept_is_restored_once(plan: Path) -> None:
    """``verify`` does this."""
    cluster = Cluster(rate="777", sends="*")
    killed(cluster, plan)
    kept = KeptThrottles(plan)
    before = kept.load()
    assert before is not None
    kept.restore(cast(Admin, cluster), before)
    assert cluster.configs == {BROKER: dict.fromkeys(RATES, "777"), TOPIC: {SENDING: "*"}}
    assert kept.load() is None


def test_throttles_cannot_be_kept(tmp_path: Path) -> None:
    plan = tmp_path / "gone" / "plan.json"
    cluster = Cluster(rate="777")
    with pytest.raises(CommandError, match="to restore them after a crash"):
        Course(cluster, plan, 0.008).run()
    assert cluster.configs[BROKER] == dict.fromkeys(RATES, "777"), "nothing was begun"
    (tmp_path / "plan.json.throttles").write_text("[{}]")
    with pytest.raises(CommandError, match="by hand and remove the file"):
        KeptThrottles(tmp_path / "plan.json").load()


def test_the_rates_of_a_broker_that_is_down_are_removed(
    plan: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster(rate="777", sends="*")
    cluster.is_broker_down = True
    Course(cluster, plan, 0.008, 0.01).run()
    assert cluster.configs == {BROKER: {}, TOPIC: {SENDING: "*"}}
    assert "are not known and removed at the end" in capsys.readouterr().err


def test_throttles_that_a_killed_command_has_left_do_not_stay(plan: Path) -> None:
    cluster = Cluster(rate="4194304", sends="0:1")
    course = Course(cluster, plan, 0.008, 0.01, is_resumed=True)
    course.run()
    assert QUIET_S not in course.pauses
    assert cluster.configs == {BROKER: {}, TOPIC: {}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--throttle", "auto"], "--metrics-servers HOST:PORT"),
        (["--throttle", "5", "--metrics-servers", "a:1"], "goes with --throttle auto"),
        (["--throttle", "0"], "--throttle 0: neither auto nor a number of bytes per second"),
        (["--throttle", "fast"], "--throttle fast: neither auto nor"),
    ],
)
def test_wrong_throttles_are_refused_before_anything_happens(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    assert main.run(["reassign", "execute", "-f", str(plan), *options]) == 2
    assert said in capsys.readouterr().err
