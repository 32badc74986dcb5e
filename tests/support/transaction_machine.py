"""Names for tests of the machine of transactions."""

from __future__ import annotations

from broker.coordinator.transaction.types import TransactionRef
from stele.errors import ErrorCode

NONE = ErrorCode.NONE


def after(ref: TransactionRef, *, epochs: int) -> TransactionRef:
    return ref._replace(producer_epoch=ref.producer_epoch + epochs)
