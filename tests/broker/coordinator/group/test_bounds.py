"""What one client may have a group coordinator remember, and do in one turn."""

from __future__ import annotations

import dataclasses
import logging
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from broker.coordinator.group.classic import requests
from broker.coordinator.group.classic.generations import REASON_MAX
from broker.coordinator.group.classic.requests import IDS_MAX, PROTOCOL_BYTES_MAX, PROTOCOLS_MAX
from broker.coordinator.group.classic.subscription import (
    TOPICS_MAX,
    TOPICS_READ_MAX,
    subscribed_topics,
)
from broker.coordinator.group.types import (
    JoinAnswer,
    LeavingMember,
    MemberProtocol,
    OffsetToCommit,
    OffsetToDelete,
)
from stele.errors import ErrorCode
from tests.support.groups import GroupBench, join_request, told


def joined_with(protocols: list[MemberProtocol]) -> ErrorCode:
    return told(GroupBench().join(protocols=protocols), JoinAnswer).error


def test_the_protocols_of_a_member_are_bounded() -> None:
    """Choosing one takes time that grows with the square of their number."""
    protocols = [MemberProtocol(f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1)]
    assert joined_with(protocols[1:]) is ErrorCode.MEMBER_ID_REQUIRED
    assert joined_with(protocols) is ErrorCode.INVALID_REQUEST


def test_the_metadata_of_a_member_are_bounded_in_bytes() -> None:
    room = PROTOCOL_BYTES_MAX - 3 * len("ü".encode())
    halves = [MemberProtocol("ü", bytes(room // 2)), MemberProtocol("üü", bytes(room // 2))]
    assert joined_with(halves) is ErrorCode.MEMBER_ID_REQUIRED
    halves[0] = MemberProtocol("ü", bytes(room // 2 + 1))
    assert joined_with(halves) is ErrorCode.INVALID_REQUEST


TOO_LONG = "ü" * 16_384
"""32,768 bytes: gRPC passes it, and no string of a record holds it."""


@pytest.mark.parametrize(
    ("group_id", "options", "error"),
    [
        (TOO_LONG, {}, ErrorCode.INVALID_GROUP_ID),
        ("g", {"client_id": TOO_LONG}, ErrorCode.INVALID_REQUEST),
        ("g", {"instance": TOO_LONG}, ErrorCode.INVALID_REQUEST),
        ("g", {"protocol_type": TOO_LONG}, ErrorCode.INVALID_REQUEST),
        ("g", {"protocols": (MemberProtocol(TOO_LONG, b""),)}, ErrorCode.INVALID_REQUEST),
        (TOO_LONG[1:], {"protocol_type": TOO_LONG[:16_000]}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_names_that_no_record_can_hold_are_refused_in_joins(
    group_id: str, options: dict[str, Any], error: ErrorCode
) -> None:
    assert told(GroupBench().join(group_id, **options), JoinAnswer).error is error


def test_names_that_no_record_can_hold_are_refused_in_commits() -> None:
    bench = GroupBench()
    assert bench.commit_offset(1, group_id=TOO_LONG) is ErrorCode.INVALID_GROUP_ID
    assert bench.commit_offset(1, topic=TOO_LONG) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    longest = TOO_LONG[1:]
    assert bench.commit_offset(1, group_id=longest, topic=longest) is ErrorCode.NONE
    assert bench.log
    bench.reload()
    assert bench.offset(longest, group_id=longest) == 1


def test_a_deadline_is_put_off_by_itself() -> None:
    bench = GroupBench()
    bench.stable(1, "g")
    bench.stable(1, "h")
    first_ms = bench.machine.deadline_ms
    assert first_ms is not None
    now = bench.now._replace(monotonic_ms=first_ms)
    what = bench.machine.put_off(first_ms + 60_000, now)
    assert "'session'" in what
    assert "'g'" in what
    second_ms = bench.machine.deadline_ms
    assert second_ms is not None
    assert first_ms <= second_ms < first_ms + 60_000


def subscription(count: int, name: Callable[[int], str] = str) -> bytes:
    names = [name(number).encode() for number in range(count)]
    return struct.pack(">hi", 0, count) + b"".join(
        struct.pack(">h", len(each)) + each for each in names
    )


def test_a_subscription_to_too_many_topics_is_not_read() -> None:
    assert len(subscribed_topics(subscription(TOPICS_MAX))) == TOPICS_MAX
    with pytest.raises(ValueError, match="10001 topics"):
        subscribed_topics(subscription(TOPICS_MAX + 1))


def test_too_many_subscriptions_of_one_group_are_not_known() -> None:
    """Then its members may use any topic, and nobody deletes its offsets."""
    protocols = [MemberProtocol("range", subscription(TOPICS_MAX))]
    most = TOPICS_READ_MAX // TOPICS_MAX
    expected = {most: ErrorCode.NONE, most + 1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    for size, error in expected.items():
        bench = GroupBench()
        bench.stable(size, protocols=protocols)
        assert bench.delete_offsets(OffsetToDelete("another", 0)).errors == (error,)


def test_ids_that_nobody_uses_are_forgotten_and_so_are_their_groups() -> None:
    bench = GroupBench()
    (member,) = bench.stable(group_id="g")
    first = told(bench.join("g0"), JoinAnswer)
    second = told(bench.join("g"), JoinAnswer)
    again = bench.join("g", member)  # it waits for the second one
    assert bench.listed() == ["g", "g0"]
    for number in range(1, IDS_MAX - 1):
        bench.join(f"g{number}")
    assert len(bench.listed()) == IDS_MAX
    bench.join("one more")
    assert "g0" not in bench.listed()
    assert told(bench.join("g0", first.member_id), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert again.told == []
    bench.join("and one")
    assert told(again, JoinAnswer).generation == 2, "nobody else may still come"
    assert told(bench.join("g", second.member_id), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(bench.listed()) == IDS_MAX + 1, "g and those with an id"


def test_an_id_that_was_used_is_a_member_s() -> None:
    bench = GroupBench()
    bench.commit_offset(5, group_id="kept")
    bench.join("kept")
    member_id, _ = bench.joined("used")
    for number in range(IDS_MAX):
        bench.join(f"g{number}")
    assert {"kept", "used"} <= set(bench.listed())
    assert [each.member_id for each in bench.described("used").members] == [member_id]
    assert bench.offset(group_id="kept") == 5
    bench.pass_time(20_000)  # longer than any session: timers of forgotten ids are no more
    assert bench.offset(group_id="kept") == 5


def with_a_member_that_joins(bench: GroupBench) -> None:
    bench.joined()


def with_a_record(bench: GroupBench) -> None:
    bench.left(*bench.stable())


def with_an_offset_of_an_open_transaction(bench: GroupBench) -> None:
    bench.ask_commit(OffsetToCommit("t", 0, 5), producer_id=1)


def with_an_offset_whose_end_is_not_committed(bench: GroupBench) -> None:
    bench.commit_offset(5)
    bench.commits_at_once = False
    bench.ask_deletion(OffsetToDelete("t", 0))


@pytest.mark.parametrize(
    "prepare",
    [
        with_a_member_that_joins,
        with_a_record,
        with_an_offset_of_an_open_transaction,
        with_an_offset_whose_end_is_not_committed,
    ],
)
def test_a_group_outlives_an_id_that_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[GroupBench], None]
) -> None:
    monkeypatch.setattr(requests, "IDS_MAX", 1)
    bench = GroupBench()
    prepare(bench)
    member_id = told(bench.join(), JoinAnswer).member_id
    bench.join("another")
    assert bench.listed() == ["g", "another"]
    answer = bench.join(member_id=member_id)
    bench.commit()
    assert told(answer, JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_of_a_group_that_was_deleted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "IDS_MAX", 1)
    bench = GroupBench()
    bench.commit_offset(5)
    bench.join()
    assert bench.delete() is ErrorCode.NONE
    answer = told(bench.join("another"), JoinAnswer)
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert bench.listed() == ["another"]


def test_a_group_that_goes_with_a_forgotten_id_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first rebalance had begun, with a member that has left."""
    monkeypatch.setattr(requests, "IDS_MAX", 1)
    bench = GroupBench()
    member_id, _ = bench.joined()
    bench.left(member_id)
    bench.join()
    bench.join("another")
    assert bench.listed() == ["another"]
    bench.pass_time(bench.config.group_initial_rebalance_delay_ms)
    assert bench.listed() == ["another"]


def test_ten_thousand_names_take_little_memory() -> None:
    bench = GroupBench()
    bench.join("warm")
    tracemalloc.start()
    for number in range(10_000):
        bench.join(f"group-{number}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < IDS_MAX * 3_000, held


def test_the_log_tells_reasons_and_names_only_up_to_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = GroupBench()
    ids = bench.stable(20)
    request = join_request(known_id=False)
    wordy = dataclasses.replace(request, reason="x" * 30_000)
    bench.ask(wordy)
    bench.leave(*(LeavingMember(each, None, "y" * 30_000) for each in ids))
    longest = max(len(each.getMessage()) for each in caplog.records)
    assert longest < 6 * (REASON_MAX + 100)
