"""``stele reassign`` without a cluster: its files, the placement of replicas, its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli import main
from cli import reassignment_throttles as throttles
from cli.output import CommandError
from cli.reassign import _check_factor, _spread
from cli.reassignment_file import Assignments, LogDirs, document, read_plan, read_topics
from cli.reassignment_log_dirs import Directories, LogDirStatus
from stele.admin.descriptions import BrokerDescription, ConfigResource, PartitionDescription
from stele.admin.log_dirs import LogDirDescription, LogDirReplica
from stele.ids import TopicPartition


def write(path: Path, content: object) -> Path:
    file = path / "plan.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def entry(
    topic: object = "t", partition: object = 0, replicas: object = (1, 2)
) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "replicas": replicas}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    plan = {("t", 1): (2, 1), ("t", 0): (1, 2), ("a", 10): (3,)}
    written = document(plan)
    assert read_plan(write(tmp_path, written)) == (plan, {})
    assert [each["topic"] for each in written["partitions"]] == ["a", "t", "t"]  # type: ignore[attr-defined]


def test_a_file_of_kafka_s_own_tool(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","any"]}]}',
    )
    assert read_plan(file) == ({("foo", 0): (1, 2)}, {})
    topics = write(tmp_path, {"version": 1, "topics": [{"topic": "a"}, {"topic": "a"}]})
    assert read_topics(topics) == ["a"]


def test_the_log_directories_of_a_plan(tmp_path: Path) -> None:
    plan: Assignments = {("t", 0): (1, 2), ("t", 1): (2, 3)}
    log_dirs: LogDirs = {("t", 0, 2): "/b"}
    written = document(plan, log_dirs)
    assert written["partitions"] == [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/b"]},
        {"topic": "t", "partition": 1, "replicas": [2, 3]},
    ]
    assert read_plan(write(tmp_path, written)) == (plan, log_dirs)


def replica(partition: int, *, is_future: bool = False) -> LogDirReplica:
    return LogDirReplica(TopicPartition("t", partition), 10, 0, is_future)


DIRECTORIES = Directories(
    [
        LogDirDescription(1, "/a", False, 100, 50, tuple(map(replica, range(3)))),
        LogDirDescription(1, "/b", False, 100, 50, (replica(1, is_future=True),)),
        LogDirDescription(1, "/c", True, None, None, ()),
    ]
)


@pytest.mark.parametrize(
    ("partition", "path", "status"),
    [
        (0, "/a", LogDirStatus.COMPLETED),
        (0, "/b", LogDirStatus.ELSEWHERE),
        (0, "/c", LogDirStatus.OFFLINE),
        (1, "/b", LogDirStatus.IN_PROGRESS),
        (1, "/a", LogDirStatus.REDIRECTED),  # it is there still
        (3, "/a", LogDirStatus.AWAITED),
    ],
)
def test_how_far_a_move_to_another_directory_is(
    partition: int, path: str, status: LogDirStatus
) -> None:
    assert DIRECTORIES.status(("t", partition, 1), path) is status


def test_where_replicas_are_and_which_move() -> None:
    wanted: LogDirs = {("t", 0, 1): "/b", ("t", 1, 1): "/b", ("t", 3, 1): "/b"}
    assert DIRECTORIES.present(wanted) == {("t", 0, 1): "/a", ("t", 1, 1): "/a"}
    assert DIRECTORIES.moving(wanted) == {("t", 1, 1): "/a"}


@pytest.mark.parametrize(
    ("path", "said"),
    [("/d", "t-0: broker 1 has no log directory /d; it has /a, /b, /c"), ("/c", "is offline")],
)
def test_a_plan_with_a_directory_that_cannot_be_used(path: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        DIRECTORIES.check({("t", 0, 1): path})
    DIRECTORIES.check({("t", 0, 1): "/b"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ([], "must be of the form"),
        ({"version": 1}, "must be of the form"),
        ({"version": 2, "partitions": [entry()]}, "only 1 is known"),
        ({"partitions": []}, "names no partitions"),
        ({"partitions": ["t"]}, r"partitions\[0\]: 'topic' is missing"),
        ({"partitions": [entry(topic=3)]}, "'topic' is missing or not a text"),
        ({"partitions": [entry(partition="0")]}, "'partition' is missing or not a whole number"),
        ({"partitions": [entry(partition=True)]}, "'partition' is missing or not a whole number"),
        ({"partitions": [entry(replicas=3)]}, "'replicas' is missing or not a list"),
        ({"partitions": [entry(replicas=["1"])]}, "must be broker ids"),
        ({"partitions": [entry(), entry()]}, r"partitions\[1\]: t-0 is there already"),
        ({"partitions": [{**entry(), "log_dirs": ["/a"]}]}, "2 replicas and 1 log_dirs"),
        ({"partitions": [{**entry(), "log_dirs": "/a"}]}, "'log_dirs' is missing or not a list"),
        ({"partitions": [{**entry(), "log_dirs": ["/a", "b"]}]}, "absolute paths"),
        ({"partitions": [{**entry(), "log_dirs": ["any", 1]}]}, "absolute paths"),
    ],
)
def test_bad_files(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        read_plan(write(tmp_path, content))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--broker-list", "1,2"], "which topics?"),
        (["generate", "--topic", "t", "--broker-list", "1,x"], "is not of the form 1,2,3"),
        (["generate", "--topic", "t", "--broker-list", "1,1"], "names a broker twice"),
        (["cancel"], "cancel what?"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reassign", *arguments]) == main.EXIT_USAGE
    assert said in capsys.readouterr().err


def broker(broker_id: int, rack: str = "") -> BrokerDescription:
    return BrokerDescription(broker_id, "h", 1, "h", 2, rack, False, False, 0)


def state(*replicas: int, adding: tuple[int, ...] = ()) -> PartitionDescription:
    return PartitionDescription(0, 1, 0, 0, replicas, replicas, (), 0, adding)


def test_a_plan_is_spread_evenly_over_brokers_and_racks() -> None:
    states = {("t", number): state(1, 2) for number in range(8)}
    brokers = [broker(3, "a"), broker(4, "a"), broker(5, "b"), broker(6, "b")]
    plan = _spread(states, brokers, None, racks=True)
    assert set(plan) == set(states)
    for replicas in plan.values():
        assert len(replicas) == 2
        assert len({replica in (3, 4) for replica in replicas}) == 2, "one in each rack"
    leaders = [replicas[0] for replicas in plan.values()]
    assert sorted(leaders.count(each) for each in (3, 4, 5, 6)) == [2, 2, 2, 2]


def test_the_number_of_replicas_is_that_before_a_move_or_the_one_asked_for() -> None:
    states = {("t", 0): state(1, 2, 3, adding=(3,))}
    brokers = [broker(each) for each in (1, 2, 3)]
    assert len(_spread(states, brokers, None, racks=False)["t", 0]) == 2
    assert len(_spread(states, brokers, 3, racks=False)["t", 0]) == 3


def test_throttles_name_earlier_replicas_as_sending_and_new_ones_as_fetching() -> None:
    states = {
        ("t", 0): state(1, 2),
        ("t", 1): state(2, 3, 4, adding=(4,)),  # under way
        ("t", 2): state(5, 6),  # gets another order only
        ("u", 10): state(1),
    }
    plan: Assignments = {("t", 0): (2, 3), ("t", 1): (2, 5), ("t", 2): (6, 5), ("u", 10): (7, 1)}
    found = throttles.changes(states, plan, 900)
    rates: dict[str, str | None] = dict.fromkeys(throttles.RATES, "900")
    brokers: throttles.Changes = {ConfigResource.broker(each): rates for each in (1, 2, 3, 4, 5, 7)}
    assert found == brokers | {
        ConfigResource.topic("t"): {
            throttles.SENDING: "0:1,0:2,1:2,1:3",
            throttles.FETCHING: "0:3,1:4,1:5",
        },
        ConfigResource.topic("u"): {throttles.SENDING: "10:1", throttles.FETCHING: "10:7"},
    }


def test_a_broker_list_that_is_too_short_is_counted() -> None:
    states: Any = {("t", 3): state(1, 2, 3)}
    with pytest.raises(CommandError, match=r"t-3 has a replication factor of 3, and --broker-list"):
        _check_factor(states, None, [1, 2])
    with pytest.raises(CommandError, match="names 1 brokers"):
        _check_factor(states, 2, [1])
    _check_factor(states, 2, [1, 2])
