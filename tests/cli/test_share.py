"""``stele share …`` against an administrator's client that remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from cli import main, share
from cli.group import commands, reset
from stele.admin.coordinators import Coordinator
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.admin.groups import DEAD, SHARE, GroupDescription, GroupListing, MemberDescription
from stele.admin.share_groups import ShareGroupOffset
from stele.admin.share_windows import ShareWindow, WindowHolder
from stele.errors import ApiError, BulkError, ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBER = MemberDescription("m-1", None, "client", "/h", (T0, T1), 4, None, False)
START, END = 10, 100  # of every log


class FakeAdmin:
    """Share groups ``live`` (a member), ``idle`` and ``blank``; the topic orders."""

    def __init__(self) -> None:
        self.members: dict[str, tuple[MemberDescription, ...]] = {
            "blank": (),
            "idle": (),
            "live": (MEMBER,),
        }
        self.altered: list[tuple[str, Mapping[Any, int]]] = []
        self.deleted: list[Any] = []
        self.refused: Exception | None = None
        self.letter_trouble: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def list_topics(self) -> list[TopicDescription]:
        partitions = tuple(PartitionDescription(n, 1, 0, 0, (), (), (), 0) for n in range(2))
        return [TopicDescription("orders", b"", partitions, {})]

    def list_offsets(self, wanted: Mapping[Any, int]) -> dict[Any, OffsetAndTimestamp]:
        offsets = {-1: END, -2: START}
        return {
            name: OffsetAndTimestamp(offsets.get(each, 40), -1, 0) for name, each in wanted.items()
        }

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        found = [GroupListing(name, SHARE, self.state(name), SHARE) for name in self.members]
        return [each for each in found if not states or each.state in states]

    def state(self, name: str) -> str:
        if name not in self.members:
            return DEAD
        return "Stable" if self.members[name] else "Empty"

    def describe_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        place = Coordinator(2, "h", 9192)
        return [
            GroupDescription(
                *(name, self.state(name), SHARE, "simple", place, self.members.get(name, ())),
                *(SHARE, 4, 4),
            )
            for name in names
        ]

    def list_share_group_offsets(self, name: str) -> dict[TopicPartition, ShareGroupOffset]:
        if name == "blank":
            return {}
        return {T0: ShareGroupOffset(50, 3, 7), T1: ShareGroupOffset(None, None, None)}

    def describe_share_window(
        self, name: str, place: TopicPartition, *, max_ranges: int
    ) -> ShareWindow | None:
        if place == T1:
            return None
        holders = (WindowHolder("m-1", 3, 1_000), WindowHolder("m-2", 1, 2_000))
        return ShareWindow(
            *(1, 2, 500, 50, 60, 100, 4, 4, 2, 3, self.letter_trouble, 2000, 5, 30_000),
            *(holders if name == "live" else (), (), None),
        )

    def alter_share_group_offsets(self, name: str, offsets: Mapping[Any, int]) -> None:
        self.altered.append((name, offsets))

    def delete_share_group_offsets(self, name: str, topics: Sequence[str]) -> None:
        if self.refused is not None:
            raise self.refused
        self.deleted += topics

    def delete_groups(self, names: Sequence[str]) -> None:
        if self.refused is not None:
            raise self.refused
        self.deleted += names


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()
    for module in (share, commands, reset):
        monkeypatch.setattr(module, "connect", lambda bootstrap, timeout: fake)
    return fake


Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str, code: int = 0, app: str = "share") -> tuple[str, str]:
    """The standard output and the standard error."""
    assert main.run([app, *arguments]) == code, capsys.readouterr()
    output = capsys.readouterr()
    return output.out, output.err


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_share_groups_are_listed(admin: FakeAdmin, capsys: Capture) -> None:
    out, _ = run(capsys, "list")
    assert rows(out) == [
        ["GROUP", "STATE"],
        ["blank", "Empty"],
        ["idle", "Empty"],
        ["live", "Stable"],
    ]
    out, _ = run(capsys, "list", "--state", "stable", "--json")
    assert [each["group_id"] for each in json.loads(out)] == ["live"]


def test_offsets_members_and_states_are_described(admin: FakeAdmin, capsys: Capture) -> None:
    out, err = run(capsys, "describe", "live", "idle")
    assert rows(out) == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["live", "orders", "0", "50", "7"],
        ["live", "orders", "1", "-", "-"],
        ["idle", "orders", "0", "50", "7"],
        ["idle", "orders", "1", "-", "-"],
    ]
    assert err == "stele: group 'idle' has no members\n"
    out, _ = run(capsys, "describe", "live", "--verbose")
    assert rows(out)[1] == ["live", "orders", "0", "3", "50", "7"]
    out, _ = run(capsys, "describe", "--all-groups", "--json")
    assert [len(each["partitions"]) for each in json.loads(out)] == [0, 2, 2]
    assert json.loads(out)[2]["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "start_offset": 50,
        "leader_epoch": 3,
        "lag": 7,
    }
    out, _ = run(capsys, "describe", "live", "--members", "--verbose")
    assert "orders:0,1" in out
    out, _ = run(capsys, "describe", "live", "--state")
    assert rows(out)[1] == ["live", "h:9192", "(2)", "simple", "Stable", "1"]
    out, err = run(capsys, "describe", "liv", code=main.EXIT_FAILED)
    assert "there is no share group 'liv'. Did you mean 'live'?" in err
    run(capsys, "describe", code=main.EXIT_USAGE)
    run(capsys, "describe", "live", "--members", "--state", code=main.EXIT_USAGE)


def test_windows_are_described_with_their_holders(admin: FakeAdmin, capsys: Capture) -> None:
    out, _ = run(capsys, "describe", "live", "idle", "--window")
    since = ["1970-01-01", "00:00:00.100"]
    numbers = ["50", *since, "10", "2000", "4", "2", "3"]
    _, *found = rows(out)
    assert found == [
        ["live", "orders", "0", *numbers, "m-1", "3", "1970-01-01", "00:00:01.000"],
        ["live", "orders", "0", *numbers, "m-2", "1", "1970-01-01", "00:00:02.000"],
        ["live", "orders", "1", *["-"] * 10],
        ["idle", "orders", "0", *numbers, "-", "0", "-"],
        ["idle", "orders", "1", *["-"] * 10],
    ]
    out, _ = run(capsys, "describe", "live", "--window", "--json")
    first, second = json.loads(out)
    assert (first["topic"], first["partition"], second["window"]) == ("orders", 0, None)
    assert first["window"]["holders"][1]["member_id"] == "m-2"
    admin.letter_trouble = "the topic is full"
    out, _ = run(capsys, "describe", "live", "--window")
    assert out.endswith("dead letters of orders-0 of share group 'live': the topic is full\n")
    run(capsys, "describe", "live", "--members", "--window", code=main.EXIT_USAGE)


def test_a_reset_is_shown_and_carried_out_if_told(admin: FakeAdmin, capsys: Capture) -> None:
    out, err = run(capsys, "reset", "idle", "--all-topics", "--to-earliest")
    assert rows(out)[1:] == [
        ["idle", "orders", "0", "50", "10"],
        ["idle", "orders", "1", "-", "10"],
    ]
    assert err == "stele: nothing is changed yet: --execute does it\n"
    assert admin.altered == []
    out, err = run(capsys, "reset", "idle", "--topic", "orders:1", "--to-latest", "--execute")
    assert (rows(out)[1], err) == (["idle", "orders", "1", "-", "100"], "")
    assert admin.altered == [("idle", {T1: END})]
    out, err = run(capsys, "reset", "idle", "--topic", "orders:0", "--to-offset", "500", "--json")
    assert json.loads(out) == {
        "executed": False,
        "offsets": [
            {
                "group": "idle",
                "topic": "orders",
                "partition": 0,
                "start_offset": 50,
                "new_offset": END,
            }
        ],
    }
    assert "ends at 100" in err
    since = ("--to-datetime", "2026-01-01T00:00:00.000")
    assert run(capsys, "reset", "idle", "--topic", "orders:0", *since)[0].split()[-1] == "40"


def test_a_reset_that_makes_no_sense(admin: FakeAdmin, capsys: Capture) -> None:
    target = "--to-latest"
    for wrong in (
        ("idle", target),
        ("idle", target, "--all-topics", "--topic", "orders"),
        ("idle", "--all-topics"),
        ("idle", "--all-topics", target, "--to-earliest"),
        ("idle", "--all-topics", target, "--execute", "--dry-run"),
    ):
        run(capsys, "reset", *wrong, code=main.EXIT_USAGE)
    for name, why in (
        ("live", "has 1 members"),
        ("blank", "has read nothing"),
        ("none", "there is no share group"),
    ):
        refused = run(capsys, "reset", name, "--all-topics", target, code=main.EXIT_FAILED)
        assert why in refused[1]
    assert admin.altered == []


def test_groups_and_offsets_are_deleted(admin: FakeAdmin, capsys: Capture) -> None:
    assert run(capsys, "delete", "idle")[0] == "deleted share group idle\n"
    out, _ = run(capsys, "delete-offsets", "idle", "--topic", "orders", "--json")
    assert json.loads(out) == [{"topic": "orders", "deleted": True}]
    assert admin.deleted == ["idle", "orders"]
    error = ApiError(ErrorCode.NON_EMPTY_GROUP, "it has members")
    admin.refused = BulkError({"live": error}, ["idle"])
    _, err = run(capsys, "delete", "live", "idle", code=main.EXIT_FAILED)
    assert err.startswith("stele: deleted share group idle\n")
    _, err = run(capsys, "delete-offsets", "idle", "--topic", "a", code=main.EXIT_FAILED)
    assert err.startswith("stele: deleted the offsets of idle\n")
    assert (
        "has 1 members"
        in run(capsys, "delete-offsets", "live", "--topic", "a", code=main.EXIT_FAILED)[1]
    )


def test_commands_of_other_groups_leave_share_groups_out(admin: FakeAdmin, capsys: Capture) -> None:
    for arguments in (
        ("describe", "idle"),
        ("reset-offsets", "idle", "--topic", "orders", "--to-latest"),
    ):
        _, err = run(capsys, *arguments, code=main.EXIT_FAILED, app="group")
        assert "'idle' is a share group: see stele share --help" in err
    out, _ = run(capsys, "describe", "--all-groups", "--state", "--json", app="group")
    assert json.loads(out) == []
