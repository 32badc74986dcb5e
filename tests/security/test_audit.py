"""Denials in the audit log: the first of its kind at once, the others counted."""

from __future__ import annotations

import json

from metadata.acl import Operation, Resource, ResourceType
from security.audit import INTERVAL_S, NAME_MAX, REMEMBERED_MAX, AuditLimiter, Denial, line

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


def test_a_repeated_denial_is_counted() -> None:
    limiter = AuditLimiter()
    assert limiter.take(DENIAL, 0.0) == 0
    assert [limiter.take(DENIAL, at) for at in (0.0, 1.0, INTERVAL_S - 0.1)] == [None] * 3
    elsewhere = DENIAL._replace(host="10.0.0.2", client_id=None)
    assert limiter.take(elsewhere, INTERVAL_S) == 3
    assert limiter.take(DENIAL, INTERVAL_S + 1) is None
    assert limiter.take(DENIAL, 2 * INTERVAL_S) == 1
    for other in (
        DENIAL._replace(principal="User:bob"),
        DENIAL._replace(operation=Operation.WRITE),
        DENIAL._replace(resource=Resource(ResourceType.GROUP, "g")),
    ):
        assert limiter.take(other, 2 * INTERVAL_S) == 0


def test_long_names_are_cut_off() -> None:
    limiter = AuditLimiter()
    long = DENIAL._replace(resource=Resource(ResourceType.GROUP, "g" * NAME_MAX))
    longer = DENIAL._replace(resource=Resource(ResourceType.GROUP, "g" * NAME_MAX + "x"))
    assert limiter.take(long, 0.0) == 0
    assert limiter.take(longer, 0.0) is None
    assert line(long, time_ms=0, left_out=0) == line(longer, time_ms=0, left_out=0)


def test_the_memory_is_bounded() -> None:
    limiter = AuditLimiter()
    for number in range(REMEMBERED_MAX):
        assert limiter.take(DENIAL._replace(principal=f"User:{number}"), 0.0) == 0
    assert limiter.take(DENIAL._replace(principal="User:1"), 1.0) is None
    assert limiter.take(DENIAL, 1.0) == 0
    assert limiter.take(DENIAL._replace(principal="User:1"), 1.0) is None
    assert limiter.take(DENIAL._replace(principal="User:0"), 1.0) == 0
