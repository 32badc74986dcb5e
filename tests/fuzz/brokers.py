"""A broker without logs, for changed requests on both planes: it answers or refuses, and goes
on."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from metadata.internal_topics import GROUP_TOPIC
from stele.wire.kafka.messages import api_versions
from tests.support.broker_apis import Edges
from tests.support.timing import until

AT_ONCE: Final = 20
"""Requests to one broker."""

PATIENCE_S: Final = 600.0
"""How long a request may wait, in virtual time."""


class Said(logging.Handler):
    """What is logged meanwhile. An error is a defect, and warnings must not pile up."""

    def __init__(self, refusals: Collection[str] = ()) -> None:
        """``refusals``: how errors may begin that are said to the request's sender, too."""
        super().__init__(logging.WARNING)
        self._refusals = tuple(refusals)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Said:
        self._root = logging.getLogger()
        self._root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self)

    def check(self, requests: int) -> None:
        errors = [
            each
            for each in self.records
            if each.levelno >= logging.ERROR and not str(each.msg).startswith(self._refusals)
        ]
        formatter = logging.Formatter()
        assert not errors, "\n".join(formatter.format(each) for each in errors)
        assert len(self.records) <= requests, "more than one line for each request"


async def broker() -> Edges:
    edges = Edges(group_initial_rebalance_delay_ms="0")
    edges.add_topic("t", [[1], [2, 1], [1, 2]])
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    return edges


async def check_alive(edges: Edges) -> None:
    request = api_versions.ApiVersionsRequest("test", "1.0")
    client = edges.client()
    assert (await client.call(api_versions.API, 4, request)).error_code == 0
    client.disconnect()
    failures = [
        name for name in edges.registry.values() if name.startswith("stele_request_failures")
    ]
    assert not failures, failures
