"""Ends the prepared transactions of other producers (KIP-939), over one view of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Unpack

from stele.cluster.view import ClusterView
from stele.config import ClientWorld, ProducerConfig, ProducerOptions, real_world
from stele.errors import SteleError
from stele.producer.transaction_state import PreparedTransaction
from stele.producer.transactional import Transactional

_AT_ONCE: Final = 16
_NOBODYS_ID: Final = "prepared"
"""A config needs a transactional id to allow two-phase commits. It is never sent."""


class PreparedTransactions:
    """Many transactional ids share the connections of this client. A ``Producer`` has connections
    of its own for its one id. Use it from one event loop, and close it.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """As a Producer, but the transactional ids come later. Raises ConfigError."""
        self._config = ProducerConfig.of(
            bootstrap_servers,
            {
                **options,
                "transactional_id": _NOBODYS_ID,
                "transaction_two_phase_commit_enable": True,
            },
        )
        self._view = ClusterView(self._config, world or real_world(self._config.client_security()))

    async def commit(self, prepared: Mapping[str, PreparedTransaction]) -> None:
        """Commit these transactions, by transactional id, as ``Producer.complete_transaction``
        does. One that was ended before is passed over.

        A failure of one does not keep the others from being ended. Raises the first failure.
        """
        turns = asyncio.Semaphore(_AT_ONCE)

        async def commit_one(transactional_id: str, one: PreparedTransaction) -> None:
            config = replace(self._config, transactional_id=transactional_id)
            async with turns:
                await Transactional(config, self._view, transactional_id, _NoRecords()).complete(
                    one
                )

        outcomes = await asyncio.gather(
            *(commit_one(*each) for each in prepared.items()), return_exceptions=True
        )
        for each in outcomes:
            if isinstance(each, BaseException):
                raise each

    async def close(self) -> None:
        """Release all resources."""
        await self._view.close()


class _NoRecords:
    """A producer that has written nothing."""

    async def deliver(self) -> None:
        pass

    def abandon(self, cause: SteleError) -> bool:
        return False
