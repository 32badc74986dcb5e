"""The work on a topic name that comes again: what its writer sends, and what its judge reports."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import nullcontext
from typing import Any, cast

from chaos.sim.work.remade import Remade
from stele.errors import DeliveryTimeoutError
from tests.support.worlds import virtual

TOPIC_ID = bytes(16)


class ForgetfulProducer:
    """Writes every record, and says of the first ones that it does not know whether it did."""

    def __init__(self, unknown: int) -> None:
        self.written: list[bytes] = []
        self._unknown = unknown

    async def send(self, topic: str, value: bytes, *, partition: int) -> Awaitable[None]:
        self.written.append(value)
        return self._outcome(len(self.written) <= self._unknown)

    async def _outcome(self, is_unknown: bool) -> None:
        if is_unknown:
            raise DeliveryTimeoutError("it may have been written", maybe_written=True)

    async def abort(self) -> None:
        pass


def _work(reported: list[str]) -> Remade:
    return Remade(cast(Any, None), random.Random(1), reported.append, {}, nullcontext, Counter())


@virtual
async def test_a_last_record_of_unknown_outcome_is_not_sent_twice() -> None:
    reported: list[str] = []
    producer = ForgetfulProducer(unknown=3)

    work = _work(reported)
    await work.stream(cast(Any, producer), is_done=lambda: True)
    work.judge(TOPIC_ID, list(enumerate(producer.written)), 0)

    assert len(producer.written) == 4
    assert reported == []


@virtual
async def test_a_record_that_is_there_twice_is_reported() -> None:
    reported: list[str] = []

    _work(reported).judge(TOPIC_ID, [(0, b"a"), (1, b"b"), (2, b"a")], 0)

    assert reported == ["again: a record is there twice"]
