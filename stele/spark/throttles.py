"""How long brokers have let tasks wait because their user is above a quota, in the log.

A data source in Python has no metrics of its own in Spark's progress of a micro-batch. So a task
that reads says it in the log of its executor. Tasks that write tell it to the driver, and its log
has the sum of each micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from stele.cluster.waiting import PRODUCER_QUOTAS

log = logging.getLogger(__name__)

_LONG_S = 1.0
"""Shorter waits are ordinary: a client that keeps to its quota has them in each batch."""


class Throttled(Protocol):
    """The result of a task that wrote."""

    @property
    def throttled_s(self) -> float:
        """How long brokers let the task's producer wait."""
        ...


def say_of_tasks(what: str, tasks: Iterable[Throttled]) -> None:
    """The driver's line about a write."""
    say(what, sum(each.throttled_s for each in tasks), PRODUCER_QUOTAS)


def say(what: str, throttled_s: float, quotas: str) -> None:
    """``what`` was read or written. ``quotas``: the quotas that may have counted."""
    if throttled_s > 0:
        log.log(
            logging.WARNING if throttled_s >= _LONG_S else logging.INFO,
            "%s: brokers let its clients wait %.1f s, because they are above their quota of %s "
            "(stele quotas why USER --client-id ID says which)",
            what,
            throttled_s,
            quotas,
        )
