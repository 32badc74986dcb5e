"""Denials in the audit log: the first of its kind at once, the others counted, and no more lines
than the budgets allow."""

from __future__ import annotations

import json

from metadata.acl import Operation, Resource, ResourceType
from security.audit import (
    INTERVAL_S,
    NAME_MAX,
    NODE_LINES,
    NODE_LINES_PER_S,
    PRINCIPAL_LINES,
    PRINCIPAL_LINES_PER_S,
    REMEMBERED_MAX,
    AuditLimiter,
    Denial,
    Due,
    count_line,
    line,
)

DENIAL = Denial(
    "User:ann",
    Operation.READ,
    Resource(ResourceType.TOPIC, "or\nders"),
    "10.0.0.1",
    "app",
    "EXTERNAL",
    "DefaultDeny",
)


def test_a_denial_is_a_line_of_json() -> None:
    text = line(DENIAL, time_ms=1_700_000_000_007, left_out=3)
    assert "\n" not in text
    assert json.loads(text) == {
        "time": "2023-11-14T22:13:20.007Z",
        "event": "denied",
        "principal": "User:ann",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "or\nders",
        "host": "10.0.0.1",
        "client_id": "app",
        "listener": "EXTERNAL",
        "rule": "DefaultDeny",
        "left_out": 3,
    }


def test_a_count_is_a_line_of_json() -> None:
    text = count_line("User:ann", time_ms=1_700_000_000_007, left_out=3)
    assert json.loads(text) == {
        "time": "2023-11-14T22:13:20.007Z",
        "event": "denials_left_out",
        "principal": "User:ann",
        "left_out": 3,
    }


def take(limiter: AuditLimiter, denial: Denial, now_s: float) -> int | None:
    """Denials left out before this one; None if it is left out too."""
    due = limiter.take(denial.principal, denial.operation, denial.resource, now_s)
    assert due is None or (due.is_count, due.principal) == (False, denial.principal)
    return None if due is None else due.left_out


def test_a_repeated_denial_is_counted() -> None:
    limiter = AuditLimiter()
    assert take(limiter, DENIAL, 0.0) == 0
    assert [take(limiter, DENIAL, at) for at in (0.0, 1.0, INTERVAL_S - 0.1)] == [None] * 3
    elsewhere = DENIAL._replace(host="10.0.0.2", client_id=None)
    assert take(limiter, elsewhere, INTERVAL_S) == 3
    assert take(limiter, DENIAL, INTERVAL_S + 1) is None
    assert take(limiter, DENIAL, 2 * INTERVAL_S) == 1
    for other in (
        DENIAL._replace(principal="User:bob"),
        DENIAL._replace(operation=Operation.WRITE),
        DENIAL._replace(resource=Resource(ResourceType.GROUP, "g")),
    ):
        assert take(limiter, other, 2 * INTERVAL_S) == 0


def test_long_names_are_cut_off() -> None:
    limiter = AuditLimiter()
    long = DENIAL._replace(
        resource=Resource(ResourceType.GROUP, "g" * NAME_MAX), client_id="c" * NAME_MAX
    )
    longer = DENIAL._replace(
        resource=Resource(ResourceType.GROUP, "g" * NAME_MAX + "x"), client_id="c" * NAME_MAX + "x"
    )
    assert take(limiter, long, 0.0) == 0
    assert take(limiter, longer, 0.0) is None
    assert line(long, time_ms=0, left_out=0) == line(longer, time_ms=0, left_out=0)


def flood(limiter: AuditLimiter, principal: str, count: int, now_s: float) -> list[Due]:
    """The lines for denials of as many groups that nobody has named before."""
    fresh = (Resource(ResourceType.GROUP, f"{now_s}-{number}") for number in range(count))
    lines = (limiter.take(principal, Operation.READ, each, now_s) for each in fresh)
    return [each for each in lines if each is not None]


def test_names_that_a_client_invents_are_counted_beyond_the_budget_of_its_principal() -> None:
    limiter = AuditLimiter()
    told = Due(False, "User:ann", 0)
    first = flood(limiter, "User:ann", 60_000, 0.0)
    assert first == [told] * PRINCIPAL_LINES + [Due(True, "User:ann", 1)]
    left_out = 60_000 - PRINCIPAL_LINES - 1
    assert take(limiter, DENIAL._replace(principal="User:bob"), 0.0) == 0

    lines = round(10 * PRINCIPAL_LINES_PER_S)
    assert flood(limiter, "User:ann", 100, 10.0) == [told] * lines
    left_out += 100 - lines

    lines = round((INTERVAL_S - 10) * PRINCIPAL_LINES_PER_S)
    again = flood(limiter, "User:ann", 1000, INTERVAL_S)
    assert again == [told] * lines + [Due(True, "User:ann", left_out + 1)]


def test_what_is_repeated_takes_nothing_from_the_budget() -> None:
    limiter = AuditLimiter()
    assert take(limiter, DENIAL, 0.0) == 0
    for _ in range(2 * PRINCIPAL_LINES):
        assert take(limiter, DENIAL, 0.0) is None
    assert len(flood(limiter, DENIAL.principal, PRINCIPAL_LINES - 1, 0.0)) == PRINCIPAL_LINES - 1


def test_all_principals_together_have_a_budget() -> None:
    limiter = AuditLimiter()
    lines: list[Due] = []
    for number in range(2 * NODE_LINES):
        lines += flood(limiter, f"User:{number}", 3, 0.0)
    assert len(lines) == NODE_LINES + 1
    assert [each for each in lines if each.is_count] == [Due(True, None, 1)]
    later = flood(limiter, "User:new", 50, 1.0)
    assert later == [Due(False, "User:new", 0)] * round(NODE_LINES_PER_S)
    left_out = 3 * 2 * NODE_LINES - NODE_LINES - 1 + 50 - round(NODE_LINES_PER_S)
    lines = []
    for number in range(2 * NODE_LINES):
        lines += flood(limiter, f"User:{number}", 1, INTERVAL_S + 1)
    (count,) = (each for each in lines if each.is_count)
    assert (count.principal, count.left_out) == (None, left_out + 1)


def test_the_lines_that_count_are_part_of_the_budget_of_all() -> None:
    limiter = AuditLimiter()
    lines: list[Due] = []
    for number in range(NODE_LINES):
        lines += flood(limiter, f"User:{number}", PRINCIPAL_LINES + 1, 0.0)
    assert len(lines) == NODE_LINES + 1


def test_a_denial_is_remembered_until_its_next_line_may_come() -> None:
    assert NODE_LINES + INTERVAL_S * NODE_LINES_PER_S < REMEMBERED_MAX
    limiter = AuditLimiter()
    assert take(limiter, DENIAL, 0.0) == 0
    for second in range(int(INTERVAL_S)):
        for number in range(20):
            flood(limiter, f"User:{second}-{number}", PRINCIPAL_LINES, float(second))
    assert take(limiter, DENIAL, INTERVAL_S - 0.1) is None


def test_the_memory_is_bounded() -> None:
    limiter = AuditLimiter()
    interval_s = 1 / NODE_LINES_PER_S
    for number in range(REMEMBERED_MAX):
        assert take(limiter, DENIAL._replace(principal=f"User:{number}"), number * interval_s) == 0
    now_s = REMEMBERED_MAX * interval_s
    last = DENIAL._replace(principal=f"User:{REMEMBERED_MAX - 1}")
    assert take(limiter, last, now_s) is None
    assert take(limiter, DENIAL, now_s) == 0
    # What was left out of the oldest is forgotten with it.
    first = DENIAL._replace(principal="User:0")
    assert take(limiter, first, now_s + 1) == 0


def test_the_memory_holds_so_many_kinds_of_denial() -> None:
    """A kind that is remembered has the count of what was left out since its last line."""

    def left_out_after(others: int) -> int:
        limiter, now_s = AuditLimiter(), 0.0
        limiter.take("User:ann", DENIAL.operation, DENIAL.resource, now_s)
        limiter.take("User:ann", DENIAL.operation, DENIAL.resource, now_s)
        for number in range(others):
            now_s += 1.0
            limiter.take(f"User:{number}", DENIAL.operation, DENIAL.resource, now_s)
        due = limiter.take("User:ann", DENIAL.operation, DENIAL.resource, now_s + INTERVAL_S)
        assert due is not None
        return due.left_out

    assert left_out_after(REMEMBERED_MAX - 1) == 1
    assert left_out_after(REMEMBERED_MAX) == 0
