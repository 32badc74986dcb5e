"""Traces of requests: how long each step of a sampled request takes, and what it waits for.

A node that traces nothing has no tracer: ``World.tracer`` is None, and so is the span of each
request. Code on the way of a request looks at that one attribute, and calls nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Attributes = Mapping[str, str | int | float | bool]

REPLICATE: Final = "replicate"
"""The span of a batch that waits for its followers."""


class Span(Protocol):
    """A step of a sampled request. A span that is never ended is not exported."""

    @property
    def context(self) -> str:
        """What another process needs to add a step to this one: a ``traceparent`` of W3C's Trace
        Context."""
        ...

    def child(self, name: str, attributes: Attributes, *, began_s_ago: float = 0.0) -> Span:
        """A step within this one, which begins now or has begun so long ago."""
        ...

    def around(self, work: Callable[P, T]) -> Callable[P, T]:
        """The work, during which this is the tracer's current span."""
        ...

    def end(self, error: str = "") -> None:
        """The step ends now. If another request's span is current, its work has ended the step:
        it is linked as the cause. Example: a follower's Fetch ends the wait of a batch."""
        ...


class Tracer(Protocol):
    """Decides which requests are traced, and exports their spans."""

    @property
    def current(self) -> Span | None:
        """The span of the request whose handler runs at this moment."""
        ...

    @property
    def context_header(self) -> str:
        """The header of a record in which clients tell the context of their own span. Empty: no
        header is read."""
        ...

    def begin(
        self, name: str, attributes: Attributes, *, of_follower: bool, context: str = ""
    ) -> Span | None:
        """The span of a request that has just come; None if it is not sampled.

        ``of_follower``: another broker fetches. That is traced while a traced batch waits for its
        followers, and at no other time.

        ``context``: of the client's span. Then the client has decided whether the request is
        sampled. A text that is no context counts as none.
        """
        ...

    def join(self, name: str, attributes: Attributes, context: str) -> Span | None:
        """A step of another process's request, whose ``Span.context`` is given; None if the text is
        no context."""
        ...
