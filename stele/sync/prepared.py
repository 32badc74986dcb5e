"""The synchronous form of ``stele.producer.prepared``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from stele.config import ClientWorld, ProducerOptions
from stele.producer import prepared as asynchronous
from stele.producer.transaction_state import PreparedTransaction
from stele.sync.face import Face


class PreparedTransactions(Face):
    """Ends the prepared transactions of other producers. Methods may be called from any thread."""

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """As a Producer, but the transactional ids come later. Raises ConfigError."""
        super().__init__()
        self._transactions = self._do(
            lambda: asynchronous.PreparedTransactions(bootstrap_servers, world=world, **options)
        )

    def commit(self, prepared: Mapping[str, PreparedTransaction]) -> None:
        """Commit these transactions, by transactional id. One that was ended before is passed over.
        Raises the first failure, after all others were ended."""
        self._run(lambda: self._transactions.commit(prepared))

    def close(self) -> None:
        """Release all resources. Idempotent."""
        if not self._is_open or self._is_foreign:
            return
        try:
            self._run(self._transactions.close)
        finally:
            self._is_open = False
