"""The page of what each API needs, written from the tables by which tests ask every API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from runtime.authorization.authorizer import Operation, Resource, ResourceType
from stele.errors import ErrorCode
from tests.broker.grpc import grpc_needs
from tests.broker.service import kafka_needs
from tests.broker.service.asked import Way

_HEAD: Final = """\
# What each API needs

<!-- Written by scripts/permissions-page from the tables that tests walk through. Do not edit. -->

Each line is a request of a test. A caller that has the permissions is served. If it lacks one of
them, the answer has the error, and tells nothing about what is there. "Nothing" without an error:
everybody is served, and what the caller may not see is left out. A test fails for an API without a
line (`tests/broker/service/test_every_api.py`, `tests/broker/grpc/test_every_method.py`).

An operation stands before its resource. A rule that allows READ, WRITE, DELETE or ALTER also
allows DESCRIBE ([security.md](security.md#authorization)).
"""
_NAMES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
    ResourceType.USER: "user",
}

_NO_LOGIN: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.name


def page() -> str:
    """The whole page, as Markdown."""
    kafka = (
        (f"{each.key.name} {each.what}".strip(), each.ways("a topic"), each.denied)
        for each in kafka_needs.ASKED
    )
    grpc = ((f"{each.service}/{each.method}", each.ways, each.denied) for each in grpc_needs.ASKED)
    before = ", ".join(sorted(each.name for each in kafka_needs.BEFORE_AUTHORIZATION))
    log = ", ".join(sorted(f"Log/{each}" for each in grpc_needs.OF_THE_GATEWAY))
    return "\n".join(
        [
            _HEAD,
            "## Kafka's protocol\n",
            *_table("API", ((n, w, "" if e is None else e.name) for n, w, e in kafka)),
            f"\nWith {before} a caller says who it is, so they need nothing.\n",
            "## gRPC\n",
            *_table("method", ((n, w, "" if e is None else e.name) for n, w, e in grpc)),
            f"\n{log}: as PRODUCE and FETCH (`tests/broker/gateway/test_thin_authorization.py`).",
            "",
        ]
    )


def _table(what: str, rows: Iterable[tuple[str, tuple[Way, ...], str]]) -> Iterator[str]:
    yield f"| {what} | needs | error without it |"
    yield "|---|---|---|"
    for name, ways, error in rows:
        needs = "a login" if error == _NO_LOGIN else _needs(ways)
        yield f"| {name} | {needs} | {error} |"


def _needs(ways: tuple[Way, ...]) -> str:
    either = [" and ".join(_need(*each) for each in way) for way in ways]
    return "; or ".join(either) or "nothing"


def _need(operation: Operation, resource: Resource) -> str:
    return f"{operation.name} {_NAMES[resource.type]}"
