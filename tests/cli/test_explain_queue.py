"""``stele explain queue``: the sentences, and when the queue is not well."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cli import explain_queue, main
from cli.options import EXIT_NOT_WELL
from cli.queue_explanation import Queue, explain_unread, explain_window
from stele.admin.coordinators import Coordinator
from stele.admin.groups import DEAD, SHARE, GroupDescription, GroupListing, MemberDescription
from stele.admin.share_groups import ShareGroupOffset
from stele.admin.share_windows import ShareWindow, VainDelivery, WindowHolder, WindowRange
from stele.ids import TopicPartition
from tests.cli.test_share import FakeAdmin

NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC
PLACE = TopicPartition("orders", 0)
MEMBER = MemberDescription("m-1", None, "worker", "/10.0.0.9", (PLACE,), 4, None, False)
GROUP = GroupDescription(
    *("mails", "Stable", SHARE, "simple", Coordinator(2, "h", 9192), (MEMBER,), SHARE, 4, 4)
)
HELD = WindowRange(42, 44, "acquired", 3, "m-1", NOON_MS - 2_000, NOON_MS + 28_000, False, None)
WINDOW = ShareWindow(
    leader_id=1,
    readers=2,
    time_ms=NOON_MS,
    start_offset=42,
    end_offset=142,
    start_since_ms=NOON_MS - 60_500,
    done_records=5,
    acquired_records=3,
    redelivered_records=3,
    archiving_records=0,
    letter_trouble=None,
    max_record_locks=2000,
    delivery_count_limit=5,
    record_lock_duration_ms=30_000,
    holders=(WindowHolder("m-1", 3, NOON_MS + 28_000),),
    ranges=(HELD,),
    next_offset=45,
)
EMPTY = replace(WINDOW, end_offset=42, start_since_ms=None, ranges=(), holders=())


def window_with(**changes: Any) -> ShareWindow:
    """Its first record is another."""
    return replace(WINDOW, ranges=(replace(HELD, **changes),))


NOBODY: dict[str, Any] = {"member_id": None, "acquired_ms": None, "lock_until_ms": None}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("archiving", "after 3 deliveries"),
        ("archiving_rejected", "since a member has rejected it in delivery 3"),
    ],
)
def test_a_record_that_waits_for_its_dead_letter_is_explained(state: str, why: str) -> None:
    window = replace(window_with(state=state, **NOBODY), archiving_records=3)
    told = explain_window(window, GROUP, 100)
    assert told.window.endswith("; 3 wait for their dead letters")
    assert told.reasons[1:] == (f"it is given up, {why}, and its dead letter is not written yet",)
    assert (told.is_well, told.remedies) == (True, ())
    told = explain_window(replace(window, letter_trouble="the topic is full"), GROUP, 100)
    assert told.reasons[-1] == "dead letters cannot be written: the topic is full"
    assert "remove errors.deadletterqueue.topic.name from the group" in told.remedies[0]
    assert not told.is_well


FREE = {"state": "available", "member_id": None, "acquired_ms": None, "lock_until_ms": None}


def test_a_record_that_a_member_has_is_explained() -> None:
    vain = VainDelivery("lock_ended", "m-2", NOON_MS - 5_000)
    told = explain_window(window_with(last_vain_delivery=vain), GROUP, 100)
    assert (told.queue, told.is_well, told.remedies) == (Queue.HELD, True, ())
    assert told.window == (
        "window: offsets 42 to 141, 100 of at most 2000; 5 done, 3 with 1 members, 3 delivered in "
        "vain before"
    )
    assert told.reasons == (
        (
            "the record at offset 42 is not done; the window begins with it since 2026-01-01 "
            "11:58:59.500 UTC (60.5 s)"
        ),
        (
            "member m-1 (client id 'worker' at /10.0.0.9) has it since 2026-01-01 11:59:58.000 UTC "
            "(2.0 s), in delivery 3 of at most 5"
        ),
        (
            "its last delivery ended at 2026-01-01 11:59:55.000 UTC: the lock of member m-2 ended "
            "before it said anything"
        ),
    )
    assert told.following == (
        (
            "its lock ends at 2026-01-01 12:00:28.000 UTC, in 28.0 s, unless it is renewed; if the "
            "member does not accept it, it can be delivered again, as delivery 4 of 5"
        ),
    )


@pytest.mark.parametrize(
    ("changes", "reason", "following"),
    [
        ({"delivery_count": 5}, "in delivery 5 of at most 5", "does not accept it, it is given up"),
        ({"is_being_persisted": True}, "has it since", "decision is being persisted"),
        (
            {**FREE, "delivery_count": 1},
            "it is available, after 1 of at most 5 deliveries",
            "the next fetch of a member gets it, as delivery 2 of 5",
        ),
        (
            {**FREE, "delivery_count": 4},
            "how its last delivery ended is not known",
            "as delivery 5 of 5; without an acceptance it is given up then",
        ),
        (
            {**FREE, "delivery_count": 2, "due_ms": NOON_MS + 4_000},
            "it rests, after 2 of at most 5 deliveries (share.redelivery.backoff.ms)",
            (
                "it rests until 2026-01-01 12:00:04.000 UTC, 4.0 s more; then the next fetch of a "
                "member gets it, as delivery 3 of 5"
            ),
        ),
        ({**FREE, "delivery_count": 0}, "no delivery of it counts", "as delivery 1 of 5"),
        (
            {**FREE, "last_vain_delivery": VainDelivery("released", "m-1", NOON_MS)},
            "member m-1 (client id 'worker' at /10.0.0.9) released it",
            "as delivery 4 of 5",
        ),
        (
            {**FREE, "last_vain_delivery": VainDelivery("session_ended", "m-3", NOON_MS)},
            "the session of member m-3 ended, and the delivery does not count",
            "as delivery 4 of 5",
        ),
    ],
)
def test_what_was_and_what_comes_next(changes: dict[str, Any], reason: str, following: str) -> None:
    told = explain_window(window_with(**changes), GROUP, 100)
    assert reason in " | ".join(told.reasons)
    assert following in told.following[0]


def test_a_full_window_is_not_well() -> None:
    told = explain_window(replace(WINDOW, max_record_locks=100), GROUP, 100)
    assert (told.queue, told.is_well) == (Queue.FULL, False)
    assert told.remedies == (
        "stop member m-1, if it hangs: others get its records at once",
        "raise share.partition.max.record.locks of the group, now 100",
    )


def test_a_window_without_readers_is_not_well_unless_everything_is_done() -> None:
    left = explain_window(replace(window_with(**FREE), readers=0), GROUP, 100)
    assert (left.queue, left.is_well) == (Queue.UNREAD, False)
    assert "no member reads the partition from broker 1" in left.reasons
    assert left.following[0].startswith("the next member that reads it gets it, as delivery 4")
    done = explain_window(replace(EMPTY, readers=0), GROUP, 0)
    assert (done.queue, done.is_well, done.remedies) == (Queue.UNREAD, True, ())


def test_an_empty_window_is_free() -> None:
    told = explain_window(EMPTY, GROUP, 7)
    assert (told.queue, told.is_well, told.reasons) == (Queue.FREE, True, ())
    assert told.window == "window: empty, before offset 42 everything is done"
    assert told.following == ("the next fetch of a member gets new records",)
    assert explain_window(EMPTY, GROUP, 0).following == ()


def test_a_partition_that_no_member_reads_is_explained_by_its_group() -> None:
    offset = ShareGroupOffset(42, 3, 7)
    told = explain_unread(replace(GROUP, members=()), offset)
    assert (told.queue, told.is_well) == (Queue.UNREAD, False)
    assert told.reasons == (
        "share group 'mails' has no members",
        "everything before offset 42 is done",
        "7 records are not done",
    )
    assert told.remedies == ("start a consumer of the group",)
    assert explain_unread(GROUP, ShareGroupOffset(42, 3, 0)).is_well
    never = explain_unread(GROUP, None)
    assert not never.is_well
    assert "the group has read nothing of the partition yet" in never.reasons
    assert "has 1 members, and none of them fetches" in never.reasons[0]


class QueueAdmin(FakeAdmin):
    """One share group, ``mails``."""

    def __init__(self) -> None:
        super().__init__()
        self.window: ShareWindow | None = WINDOW

    def describe_groups(self, names: Any) -> list[GroupDescription]:
        (name,) = names
        return [GROUP if name == "mails" else replace(GROUP, group_id=name, state=DEAD)]

    def list_groups(self, **filters: Any) -> list[GroupListing]:
        return [GroupListing("mails", SHARE, "Stable", SHARE)]

    def list_share_group_offsets(self, name: str) -> dict[TopicPartition, ShareGroupOffset]:
        return {PLACE: ShareGroupOffset(42, 3, 95)}

    def describe_share_window(
        self, group: str, place: tuple[str, int], *, max_ranges: int
    ) -> ShareWindow | None:
        assert (group, place, max_ranges) == ("mails", PLACE, 1)
        return self.window


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> QueueAdmin:
    fake = QueueAdmin()
    monkeypatch.setattr(explain_queue, "connect", lambda bootstrap, timeout: fake)
    return fake


def test_a_queue_is_explained(admin: QueueAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "queue", "mails", "orders-0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders-0 of share group 'mails': a record holds the start of its window"
    assert [line.split()[0] for line in lines[1:]] == ["window:", *["because"] * 3, "next:"]
    assert main.run(["explain", "queue", "mails", "orders-0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["health"], told["start_offset"], told["lag"]) == ("held", 42, 95)
    assert told["window"]["ranges"][0]["member_id"] == "m-1"

    admin.window = None
    assert main.run(["explain", "queue", "mails", "orders-0"]) == EXIT_NOT_WELL
    assert capsys.readouterr().out.startswith("orders-0 of share group 'mails': no member reads it")


def test_what_does_not_exist_is_refused(
    admin: QueueAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["explain", "queue", "mail", "orders-0"]) == main.EXIT_FAILED
    assert "there is no share group 'mail'. Did you mean 'mails'?" in capsys.readouterr().err
    assert main.run(["explain", "queue", "mails", "orders"]) == main.EXIT_FAILED
    assert "'orders' is no partition: write TOPIC-NUMBER" in capsys.readouterr().err
