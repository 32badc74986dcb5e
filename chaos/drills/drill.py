"""A drill: its setting, its course, its expectations, and its negative control."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage
from chaos.drills.workload import Load

Course = Callable[[Stage], Awaitable[None]]

SHORT_TIMES: Final = {"replica.lag.time.max.ms": "4000"}
"""Settings of the nodes: a silent follower is noticed sooner than by default, so drills are
shorter."""

TWO_IN_SYNC: Final = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True)
class Control:
    """A negative control: the same drill with one thing made wrong, which must turn it red.

    ``breaks`` is a part of the name of a check that must not hold then. What is None is as in
    the drill itself.
    """

    what: str
    breaks: str
    course: Course | None = None
    load: Load | None = None
    topic_configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Drill:
    """``control`` None: its control is what ``chaos.drills.planted`` plants in its history."""

    name: str
    title: str
    what: str
    course: Course
    expectations: Expectations
    control: Control | None = None
    load: Load = field(default_factory=Load)
    topic_configs: Mapping[str, str] = field(default_factory=lambda: TWO_IN_SYNC)
    settings: Mapping[str, str] = field(default_factory=lambda: SHORT_TIMES)
    partitions: int = 3
    brokers: int = 3
    controllers: int = 3
    needs: frozenset[Need] = frozenset()
