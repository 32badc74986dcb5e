"""The error for a producer that was replaced, by the version of its request."""

from __future__ import annotations

from stele.errors import ErrorCode


def fencing_error(error: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Clients older than PRODUCER_FENCED (KIP-588) get INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
