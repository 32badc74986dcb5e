"""``stele group`` against an administrator's client that remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from cli import main
from cli.group import commands, reset
from cli.group.assignment import assignment_text
from stele.admin.coordinators import Coordinator
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.admin.group_lag import PartitionLag, lags
from stele.admin.groups import (
    DEAD,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from stele.errors import ApiError, BulkError, ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp

COORDINATOR = Coordinator(2, "h", 9192)
MEMBER = MemberDescription("m-1", None, "client", "/h", (TopicPartition("orders", 0),))
STATIC = MemberDescription("m-2", "i", "client", "/h", ())
START, END, SINCE = 10, 100, 40  # of every log; SINCE: the first record since 2020


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, "")


class FakeAdmin:
    """Groups ``live`` (two members), ``idle`` and ``blank``; topics orders (2 partitions, one
    without a leader) and payments."""

    def __init__(self) -> None:
        self.members: dict[str, tuple[MemberDescription, ...]] = {
            "blank": (),
            "idle": (),
            "live": (MEMBER, STATIC),
        }
        self.offsets = {
            "idle": {("orders", 0): 50, ("orders", 1): 60},
            "live": {("orders", 0): 90},
        }
        self.altered: list[tuple[str, Mapping[Any, int]]] = []
        self.deleted: list[Any] = []
        self.refused: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def list_topics(self) -> list[TopicDescription]:
        leaders = {"orders": (1, None), "payments": (1,)}
        return [
            TopicDescription(
                name,
                b"",
                tuple(
                    PartitionDescription(number, leader, 0, 0, (), (), (), 0)
                    for number, leader in enumerate(each)
                ),
                {},
            )
            for name, each in leaders.items()
        ]

    def list_offsets(self, wanted: Mapping[Any, int]) -> dict[Any, OffsetAndTimestamp]:
        def offset(timestamp: int) -> int:
            return {-1: END, -2: START}.get(
                timestamp, SINCE if timestamp < 1_577_836_800_001 else -1
            )

        return {name: OffsetAndTimestamp(offset(each), -1, 0) for name, each in wanted.items()}

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        found = [
            GroupListing(name, "consumer", self.state(name), "classic") for name in self.members
        ]
        return [each for each in found if not states or each.state in states]

    def state(self, name: str) -> str:
        if name not in self.members:
            return DEAD
        return "Stable" if self.members[name] else "Empty"

    def describe_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        return [
            GroupDescription(
                name, self.state(name), "consumer", "range", COORDINATOR, self.members.get(name, ())
            )
            for name in names
        ]

    def list_group_offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        found = self.offsets.get(name, {})
        return {TopicPartition(*each): committed(offset) for each, offset in found.items()}

    def group_lags(self, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionLag]]:
        ends = {TopicPartition("orders", 0): END}
        return {
            each.group_id: lags(each, self.list_group_offsets(each.group_id), ends)
            for each in groups
        }

    def alter_group_offsets(self, name: str, offsets: Mapping[Any, int]) -> None:
        if self.refused is not None and self.altered:
            raise self.refused
        self.altered.append((name, offsets))

    def delete_groups(self, names: Sequence[str]) -> None:
        if self.refused is not None:
            raise self.refused
        self.deleted += names

    def delete_group_offsets(self, name: str, partitions: Sequence[tuple[str, int]]) -> None:
        if self.refused is not None:
            raise self.refused
        self.deleted += partitions


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()
    for module in (commands, reset):
        monkeypatch.setattr(module, "connect", lambda bootstrap, timeout: fake)
    return fake


Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str, code: int = 0) -> tuple[str, str]:
    """The standard output and the standard error of ``stele group …``."""
    assert main.run(["group", *arguments]) == code, capsys.readouterr()
    output = capsys.readouterr()
    return output.out, output.err


def refusal(capsys: Capture, *arguments: str, code: int = main.EXIT_FAILED) -> str:
    out, err = run(capsys, *arguments, code=code)
    assert out == ""
    return err


def misuse(capsys: Capture, *arguments: str) -> str:
    return refusal(capsys, *arguments, code=main.EXIT_USAGE)


# ------------------------------------------------------------------------------- list, describe


def test_groups_are_listed(admin: FakeAdmin, capsys: Capture) -> None:
    out, err = run(capsys, "list")
    assert out.splitlines()[1:] == [
        "blank   classic   consumer   Empty",
        "idle    classic   consumer   Empty",
        "live    classic   consumer   Stable",
    ]
    assert err == ""
    out, _ = run(capsys, "list", "--state", "stable, empty", "--type", "CLASSIC", "--json")
    assert len(json.loads(out)) == 3
    out, _ = run(capsys, "list", "--state", "stable", "--json")
    assert json.loads(out) == [
        {"group_id": "live", "protocol_type": "consumer", "state": "Stable", "type": "classic"}
    ]
    assert "Did you mean 'Stable'?" in refusal(capsys, "list", "--state", "Stabel")
    assert "There are: classic, consumer" in refusal(capsys, "list", "--type", "shared")


def test_lags_are_described(admin: FakeAdmin, capsys: Capture) -> None:
    out, err = run(capsys, "describe", "live", "idle")
    assert [line.split() for line in out.splitlines()] == [
        [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ],
        ["live", "orders", "0", "90", "100", "10", "m-1", "/h", "client"],
        ["idle", "orders", "0", "50", "100", "50", "-", "-", "-"],
        ["idle", "orders", "1", "60", "-", "-", "-", "-", "-"],
    ]
    assert err == "stele: group 'idle' has no members\n"
    out, _ = run(capsys, "describe", "live", "--verbose")
    assert "LEADER-EPOCH" in out
    out, err = run(capsys, "describe", "--all-groups", "--json")
    assert [each["group"] for each in json.loads(out)] == ["blank", "idle", "live"]
    assert json.loads(out)[2]["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "leader_epoch": 3,
            "current_offset": 90,
            "log_end_offset": 100,
            "lag": 10,
            "consumer_id": "m-1",
            "host": "/h",
            "client_id": "client",
            "group_instance_id": None,
            "metadata": "",
        }
    ]
    assert err == ""


def test_members_and_states_are_described(admin: FakeAdmin, capsys: Capture) -> None:
    out, _ = run(capsys, "describe", "live", "--members", "--verbose")
    assert [line.split() for line in out.splitlines()] == [
        [
            "GROUP",
            "CONSUMER-ID",
            "GROUP-INSTANCE-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            "CURRENT-ASSIGNMENT",
        ],
        ["live", "m-1", "-", "/h", "client", "1", "orders:0"],
        ["live", "m-2", "i", "/h", "client", "0", "-"],
    ]
    out, _ = run(capsys, "describe", "live", "--members", "--json")
    assert json.loads(out)[0]["members"][0]["assignment"] == [["orders", 0]]
    out, _ = run(capsys, "describe", "live", "--state")
    assert out.splitlines()[1].split() == ["live", "h:9192", "(2)", "range", "Stable", "2"]
    out, _ = run(capsys, "describe", "live", "--state", "--json")
    assert json.loads(out)[0]["coordinator"] == 2
    assert "give one of" in misuse(capsys, "describe", "live", "--state", "--members")


def test_groups_of_the_consumer_protocol_show_what_they_are_on_their_way_to(
    admin: FakeAdmin, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = (TopicPartition("orders", 1),)
    member = MemberDescription("m-3", None, "c", "/h", MEMBER.assignment, 5, target, False)
    upgrading = MemberDescription("m-4", None, "c", "/h", (), 5, (), True)

    def consumers(*members: MemberDescription) -> GroupDescription:
        common = ("idle", "Reconciling", "consumer", "uniform", COORDINATOR)
        return GroupDescription(*common, members, "consumer", 7, 6)

    (classic,) = admin.describe_groups(["live"])
    described = [consumers(member), classic]
    monkeypatch.setattr(admin, "describe_groups", lambda names: described)
    out, err = run(capsys, "describe", "idle", "live", "--members", "--verbose")
    assert [line.split()[-4:] for line in out.splitlines()] == [
        ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"],
        ["5", "orders:0", "6", "orders:1"],
        ["-", "orders:0", "-", "-"],
        ["-", "-", "-", "-"],
    ]
    assert "'idle' is being rebalanced (Reconciling)" in err
    out, _ = run(capsys, "describe", "idle", "live", "--state", "--verbose")
    assert [line.split()[-4:] for line in out.splitlines()] == [
        ["STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"],
        ["Reconciling", "7", "6", "1"],
        ["Stable", "-", "-", "2"],
    ]
    described = [consumers(member, upgrading), classic]
    out, _ = run(capsys, "describe", "idle", "live", "--members", "--verbose")
    assert [line.split()[-1] for line in out.splitlines()] == [
        "UPGRADED",
        "True",
        "False",
        "-",
        "-",
    ]
    out, _ = run(capsys, "describe", "idle", "--state", "--json")
    assert json.loads(out)[0]["target_assignment_epoch"] == 6


def test_groups_that_are_rebalanced_are_reported(
    admin: FakeAdmin, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "state", lambda name: "PreparingRebalance")
    _, err = run(capsys, "describe", "live")
    assert err == "stele: group 'live' is being rebalanced (PreparingRebalance)\n"


@pytest.mark.parametrize("command", [["describe"], ["delete"], ["delete-offsets", "--topic", "t"]])
def test_groups_that_are_not_there(admin: FakeAdmin, capsys: Capture, command: list[str]) -> None:
    err = refusal(capsys, *command, "lives")
    assert err == "stele: there is no group 'lives'. Did you mean 'live'?\n"


@pytest.mark.parametrize("command", ["describe", "delete", "reset-offsets"])
def test_groups_are_named_or_all_are_meant(admin: FakeAdmin, capsys: Capture, command: str) -> None:
    more = ["--topic", "orders", "--to-latest"] if command == "reset-offsets" else []
    for names in ([], ["idle", "--all-groups"]):
        assert "which groups?" in misuse(capsys, command, *names, *more)


def test_a_group_without_offsets_has_an_empty_table(admin: FakeAdmin, capsys: Capture) -> None:
    out, _ = run(capsys, "describe", "blank")
    assert len(out.splitlines()) == 1


# ------------------------------------------------------------------------------- delete


def test_groups_are_deleted(admin: FakeAdmin, capsys: Capture) -> None:
    assert run(capsys, "delete", "idle", "blank")[0] == "deleted group idle\ndeleted group blank\n"
    out, _ = run(capsys, "delete", "--all-groups", "--json")
    assert json.loads(out)[0] == {"group": "blank", "deleted": True}
    assert admin.deleted == ["idle", "blank", "blank", "idle", "live"]


def test_what_was_deleted_before_a_refusal_is_reported(admin: FakeAdmin, capsys: Capture) -> None:
    error = ApiError(ErrorCode.NON_EMPTY_GROUP, "group 'live': the group has members")
    admin.refused = BulkError({"live": error}, ["idle"])
    assert refusal(capsys, "delete", "idle", "live").splitlines() == [
        "stele: deleted group idle",
        "stele: NON_EMPTY_GROUP: group 'live': the group has members",
    ]
    admin.refused = BulkError({"orders-1": error}, [TopicPartition("orders", 0)])
    assert refusal(capsys, "delete-offsets", "idle", "--topic", "orders").startswith(
        "stele: deleted the offset of orders-0\n"
    )


def test_offsets_are_deleted(admin: FakeAdmin, capsys: Capture) -> None:
    out, _ = run(capsys, "delete-offsets", "idle", "--topic", "orders:1", "--topic", "payments")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["orders", "1", "deleted"],
        ["payments", "0", "deleted"],
    ]
    assert admin.deleted == [("orders", 1), ("payments", 0)]
    out, _ = run(capsys, "delete-offsets", "idle", "--topic", "orders:1", "--json")
    assert json.loads(out) == [{"topic": "orders", "partition": 1, "deleted": True}]


# ------------------------------------------------------------------------------- reset


def planned(capsys: Capture, *arguments: str) -> list[tuple[int | None, int]]:
    """The current and the new offsets, in order of the partitions."""
    out, _ = run(capsys, "reset-offsets", "idle", *arguments, "--json")
    offsets = json.loads(out)["offsets"]
    return [(each["current_offset"], each["new_offset"]) for each in offsets]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--all-topics", "--to-earliest"], [(50, 10), (60, 10)]),
        (["--topic", "orders:1", "--to-latest"], [(60, 100)]),
        (["--topic", "payments", "--to-current"], [(None, 100)]),
        (["--all-topics", "--to-current"], [(50, 50), (60, 60)]),
        (["--topic", "orders:0", "--to-offset", "99"], [(50, 99)]),
        (["--topic", "orders:0", "--to-offset", "101"], [(50, 100)]),
        (["--all-topics", "--shift-by", "-45"], [(50, 10), (60, 15)]),
        (["--all-topics", "--shift-by", "0"], [(50, 50), (60, 60)]),
        (["--topic", "orders:0", "--to-datetime", "2020-01-01T00:00:00.000"], [(50, 40)]),
        (["--topic", "orders:0", "--to-datetime", "2020-01-01T00:00:00.001"], [(50, 100)]),
        (["--topic", "orders:0", "--by-duration", "P99999D"], [(50, 40)]),
        (["--topic", "orders:0", "--by-duration", "PT0S"], [(50, 100)]),
    ],
)
def test_resets_are_planned(
    admin: FakeAdmin, capsys: Capture, options: list[str], expected: list[tuple[int | None, int]]
) -> None:
    assert planned(capsys, *options) == expected
    assert planned(capsys, *options, "--dry-run") == expected
    assert admin.altered == []


def test_a_reset_is_executed_when_asked_for(admin: FakeAdmin, capsys: Capture) -> None:
    target = ("reset-offsets", "idle", "--topic", "orders", "--to-offset", "5")
    out, err = run(capsys, *target)
    assert [line.split() for line in out.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        ["idle", "orders", "0", "50", "10"],
        ["idle", "orders", "1", "60", "10"],
    ]
    assert err.splitlines() == [
        "stele: orders-0 begins at 10: that is taken instead of 5",
        "stele: orders-1 begins at 10: that is taken instead of 5",
        "stele: nothing is changed yet: --execute does it",
    ]
    out, err = run(capsys, *target, "--execute")
    assert admin.altered == [("idle", {("orders", 0): 10, ("orders", 1): 10})]
    assert "nothing is changed" not in err


def test_a_group_with_members_is_not_reset(admin: FakeAdmin, capsys: Capture) -> None:
    for groups in (["live"], ["idle", "live"], ["--all-groups"]):
        options = ("--topic", "orders", "--to-latest", "--execute")
        assert "group 'live' has members (it is Stable)" in refusal(
            capsys, "reset-offsets", *groups, *options
        )
    assert admin.altered == []


def test_a_group_that_does_not_exist_is_made(admin: FakeAdmin, capsys: Capture) -> None:
    _, err = run(capsys, "reset-offsets", "idel", "--topic", "payments", "--to-latest", "--execute")
    assert err == "stele: there is no group 'idel'; a reset makes one. Did you mean 'idle'?\n"
    assert admin.altered == [("idel", {("payments", 0): 100})]


def test_offsets_are_exported_and_read_again(
    admin: FakeAdmin, capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    out, err = run(capsys, "reset-offsets", "idle", "--all-topics", "--to-current", "--export")
    assert (out, err) == ("orders,0,50\norders,1,60\n", "")
    file.write_text(out)
    assert planned(capsys, "--from-file", str(file)) == [(50, 50), (60, 60)]

    two = ("reset-offsets", "idle", "blank")
    out, _ = run(capsys, *two, "--topic", "payments", "--to-earliest", "--export")
    assert out == "idle,payments,0,10\nblank,payments,0,10\n"
    file.write_text(out)
    run(capsys, *two, "--from-file", str(file), "--execute")
    assert [name for name, _ in admin.altered] == ["idle", "blank"]
    assert planned(capsys, "--from-file", str(file)) == [(None, 10)]
    file.write_text("other,payments,0,10\n")
    assert "no offsets of group 'idle'" in refusal(
        capsys, "reset-offsets", "idle", "--from-file", str(file)
    )
    file.write_text("payment,0,10\n")
    assert "Did you mean 'payments'?" in refusal(
        capsys, "reset-offsets", "idle", "--from-file", str(file)
    )


def test_a_failure_between_two_groups_is_reported(admin: FakeAdmin, capsys: Capture) -> None:
    admin.refused = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    options = ("--topic", "payments", "--to-latest", "--execute")
    err = refusal(capsys, "reset-offsets", "blank", "idle", *options)
    assert err == (
        "stele: group 'idle': GROUP_AUTHORIZATION_FAILED: no; groups that were reset: blank\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic", "orders"], "where to? Give one of --to-earliest, "),
        (["--topic", "orders", "--to-latest", "--shift-by", "0"], "--to-latest and --shift-by"),
        (["--to-latest"], "which partitions?"),
        (["--to-latest", "--topic", "orders", "--all-topics"], "which partitions?"),
        (["--to-datetime", "yesterday", "--topic", "orders"], "is no time"),
        (["--by-duration", "1d", "--topic", "orders"], "is no duration"),
        (["--to-latest", "--topic", "orders", "--execute", "--dry-run"], "exclude each other"),
        (["--to-latest", "--topic", "orders", "--export", "--json"], "exclude each other"),
    ],
)
def test_resets_that_make_no_sense(
    admin: FakeAdmin, capsys: Capture, options: list[str], said: str
) -> None:
    assert said in misuse(capsys, "reset-offsets", "idle", *options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to-latest", "--topic", "order"], "Did you mean 'orders'?"),
        (["--shift-by", "1", "--topic", "payments"], "payments-0 has no committed offset"),
    ],
)
def test_resets_that_cannot_be(
    admin: FakeAdmin, capsys: Capture, options: list[str], said: str
) -> None:
    assert said in refusal(capsys, "reset-offsets", "idle", *options)


def test_a_group_without_offsets_needs_topics(admin: FakeAdmin, capsys: Capture) -> None:
    err = refusal(capsys, "reset-offsets", "blank", "--all-topics", "--to-latest")
    assert "group 'blank' has committed no offsets" in err


def test_wrong_usage(admin: FakeAdmin, capsys: Capture) -> None:
    for arguments in (
        ["reset-offsets", "idle", "--to-offset", "-1", "--topic", "orders"],
        ["reset-offsets", "idle", "--from-file", "/nothing"],
        ["delete-offsets", "idle"],
    ):
        run(capsys, *arguments, code=main.EXIT_USAGE)


# ------------------------------------------------------------------------------- the pure part


def test_assignments_as_text() -> None:
    names = [TopicPartition("u", 0), TopicPartition("t", 10), TopicPartition("t", 9)]
    assert assignment_text(names) == "t:9,10;u:0"
    assert assignment_text([]) == ""
