"""Answers about several items, some of which may be refused."""

from __future__ import annotations

from typing import TypeVar

from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError, ErrorCode

Result = TypeVar("Result")


def all_or_raise(failed: dict[str, ApiError], succeeded: list[Result]) -> list[Result]:
    if failed:
        raise BulkError(failed, list(succeeded))
    return succeeded


def item_error(number: int, what: str, message: str) -> ApiError:
    """The error of one item. It names ``what`` only if the broker's message does not."""
    code = error_code(number)
    name = what.rpartition(" ")[2].strip("'")
    if name in message:
        return ApiError(code, message)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not message:
        message = "it does not exist"
    return ApiError(code, f"{what}: {message or code.name}")
