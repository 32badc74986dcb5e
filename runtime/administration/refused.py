"""Which items of an administrator's change its caller may not make.

A broker asks this before it forwards a change, the controller before it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metadata.image import MetadataImage
from runtime.administration.changes import Items, change_of
from runtime.administration.parts import items_of
from runtime.administration.permissions import Asked
from runtime.authorization.authorizer import Authorizer
from runtime.authorization.caller import Caller
from stele.errors import ApiError


class Refused:
    """The items of a change that its caller may not make, and their places in the answer."""

    def __init__(self, field: str, results: Sequence[dict[str, Any] | None]) -> None:
        """``field``: of the answer. ``results``: of each item of the request as it was; None: it is
        not refused."""
        self._field = field
        self._results = results

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left to be decided."""
        return bool(self._results) and all(self._results)

    @property
    def is_anything(self) -> bool:
        return any(self._results)

    def place(self, answer: Any) -> None:
        """Put the results of refused items between the results of the other items."""
        if not any(self._results):
            return
        told = getattr(answer, self._field)
        decided = iter(list(told))
        del told[:]
        for result in self._results:
            if result is not None:
                told.add(**result)
            else:
                told.append(next(decided))


NOTHING_REFUSED: Final = Refused("", ())


def take_refused(
    authorizer: Authorizer, image: MetadataImage, caller: Caller, request: Any
) -> Refused:
    """Take out of a change what the caller may not change. Raises ApiError for a change of the
    cluster that the caller may not make."""
    change = change_of(request)
    items = change.items
    asked = Asked(authorizer, caller, image)
    if items is None or items.permission is None:
        if (why := change.permission(asked, request)) is not None:
            raise why
        return NOTHING_REFUSED
    permission = items.permission
    refusals = [permission(asked, item) for _, item in items_of(items, request)]
    return remove_refused(items, request, refusals)


def remove_refused(items: Items, request: Any, refusals: Sequence[ApiError | None]) -> Refused:
    """Take the refused items out of a change. ``refusals``: of each item, in order; None: it is not
    refused."""
    results: list[dict[str, Any] | None] = []
    whys = iter(refusals)
    for name in items.lists:
        listed = getattr(request, name)
        of_list = [next(whys) for _ in listed]
        results += [
            None
            if why is None
            else {**items.named(item), "error": why.code, "message": why.message}
            for item, why in zip(listed, of_list, strict=True)
        ]
        for index in reversed([i for i, why in enumerate(of_list) if why is not None]):
            del listed[index]
    return Refused(items.results, results)
