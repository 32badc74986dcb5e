"""How a producer that was replaced is told, by the version of its request."""

from __future__ import annotations

from stele.errors import ErrorCode


def fencing_error(error: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Clients from before PRODUCER_FENCED (KIP-588) are told INVALID_PRODUCER_EPOCH."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
