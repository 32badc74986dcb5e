"""A change of many items, in decisions of a bounded size, and their answers put together.

The parts of a request only depend on the request. So a repeated request has the same parts, and a
part with an id takes effect once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from runtime.administration.changes import Change, Items, change_of
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError

NAMED_MAX: Final = 10_000
"""What one administrative request may name, and how much it may make."""

_ID_BYTES: Final = 16
_ITEMS_PER_TURN: Final = 256


class Part(NamedTuple):
    """One decision."""

    request: Any
    places: Sequence[int]
    """The places of its items in the whole request, in the order of its own items."""


def items_of(items: Items, request: Any) -> Iterator[tuple[str, Any]]:
    """Every item of a request, with the field that it is in."""
    for field in items.lists:
        for item in getattr(request, field):
            yield field, item


async def parts_in_turns(request: Any) -> list[Part]:
    """The decisions of a change, made in turns of the event loop. The first part of a divided
    request has its id, the others have ids that follow from it. The request must not change
    meanwhile."""
    parts: list[Part] = []
    for number, some in enumerate(dividing(request)):
        if number:  # most requests are one slice
            await asyncio.sleep(0)
        parts += some
    return parts


def dividing(request: Any) -> Iterator[Sequence[Part]]:
    """The decisions of a change, some or none after each slice of the work."""
    items = change_of(request).items
    if items is None:
        yield [Part(request, ())]
        return
    every = list(items_of(items, request))
    works: list[int] = []
    while some := every[len(works) : len(works) + _ITEMS_PER_TURN]:
        if works:
            yield ()
        works += [items.work(item) for _, item in some]
    if items.at_once is None or sum(works) <= items.at_once:
        yield [Part(request, range(len(every)))]
        return
    by_key: dict[Hashable, list[int]] = {}
    for place, (_, item) in enumerate(every):
        by_key.setdefault(items.key(item), []).append(place)
        if not place % _ITEMS_PER_TURN:
            yield ()
    frame = _without_items(items, request)
    for number, places in enumerate(_divided(by_key, works, items.at_once)):
        part = type(request)()
        part.CopyFrom(frame)
        for place in places:
            field, item = every[place]
            getattr(part, field).append(item)
        if number and request.request_id:
            part.request_id = _part_id(request.request_id, number)
        yield [Part(part, places)]


def _without_items(items: Items, request: Any) -> Any:
    """Everything else of a request. To copy all of it and to drop the items would be one long
    turn."""
    frame = type(request)()
    for field, value in request.ListFields():
        if field.name in items.lists:
            continue
        if field.message_type is None:
            setattr(frame, field.name, value)
        else:
            getattr(frame, field.name).CopyFrom(value)
    return frame


def _divided(
    by_key: Mapping[Hashable, Sequence[int]], works: Sequence[int], at_once: int
) -> Iterator[list[int]]:
    """The places of the items of each part. Within a part they are in the order of the request's
    fields, because its answer is."""
    part: list[int] = []
    size = 0
    for places in by_key.values():
        more = sum(works[place] for place in places)
        if part and size + more > at_once:
            yield sorted(part)
            part, size = [], 0
        part += places
        size += more
    if part:
        yield sorted(part)


def _part_id(request_id: bytes, number: int) -> bytes:
    return hashlib.sha256(request_id + number.to_bytes(4)).digest()[:_ID_BYTES]


def error_code(number: int) -> ErrorCode:
    """An error of the wire. One that this version does not know is a server's error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def told_as(error: ApiError) -> ApiError:
    """REQUEST_TIMED_OUT for whatever Kafka's clients know by that: no controller has answered."""
    if error.code is ErrorCode.POLICY_VIOLATION:
        return error
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, error.message)


async def in_parts(
    request: Any,
    parts: Sequence[Part],
    decide: Callable[[Any], Awaitable[Any]],
    left_s: Callable[[], float],
) -> Any:
    """The answer to a request whose parts are decided one after the other.

    If a later part fails for a passing reason, the outcome of a request with an id is unknown: its
    sender repeats it. Otherwise the items that are left get the error. Raises as ``decide`` does
    for the first part.
    """
    answers = Answers(request)
    for part in parts:
        try:
            if not answers.is_empty:
                _check_left(answers.made, left_s())
            answer = await decide(part.request)
            await asyncio.sleep(0)  # a part that is refused has waited for nothing
        except OutcomeUnknownError as error:
            if request.request_id:
                raise OutcomeUnknownError.because(error.cause, request.request_id) from error
            if answers.is_empty:
                raise
            return answers.whole(told_as(error))
        except ApiError as error:
            if answers.is_empty:
                raise
            if request.request_id:
                raise OutcomeUnknownError.because(error.message, request.request_id) from error
            return answers.whole(told_as(error))
        if answer.error != ErrorCode.NONE:
            if answers.is_empty:
                return answer
            refusal = ApiError(error_code(answer.error), answer.message)
            if request.request_id and refusal.code.retriable:
                raise OutcomeUnknownError.because(str(refusal), request.request_id)
            return answers.whole(refusal)
        answers.add(part, answer)
    return answers.whole()


def _check_left(made: int, left_s: float) -> None:
    if made >= NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the request has already changed {made} partitions, and the maximum is {NAMED_MAX}: "
            "send the rest in another request",
        )
    if left_s <= 0:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, "the request timed out before this part of it was tried"
        )


class Answers:
    """The answers of the parts of one request, on their way to be one answer."""

    def __init__(self, request: Any) -> None:
        self._change: Change = change_of(request)
        self._request = request
        self._results: dict[int, Any] = {}
        self._last: Any = None
        self._all_done_before = True

    @property
    def is_empty(self) -> bool:
        return self._last is None

    @property
    def made(self) -> int:
        """How many partitions the results until now tell of."""
        items = self._change.items
        return 0 if items is None else sum(map(items.made, self._results.values()))

    def add(self, part: Part, answer: Any) -> None:
        """The answer to a part. It is no refusal of the whole part."""
        if self._last is None or answer.metadata_offset >= self._last.metadata_offset:
            self._last = answer  # of a part that was refused as a whole, nothing is in the metadata
        self._all_done_before = self._all_done_before and answer.already_done
        if self._change.items is not None:
            told = getattr(answer, self._change.items.results)
            self._results.update(zip(part.places, told, strict=False))

    def whole(self, error: ApiError | None = None) -> Any:
        """The answer to the request. ``error``: of the items that have no result."""
        items = self._change.items
        if items is None:
            return self._last
        answer = self._change.response()
        answer.CopyFrom(self._last)
        answer.already_done = self._all_done_before
        results = getattr(answer, items.results)
        del results[:]
        for place, (_, item) in enumerate(items_of(items, self._request)):
            if place in self._results:
                results.append(self._results[place])
            elif error is not None:
                results.add(**items.named(item), error=error.code, message=error.message)
        return answer
