"""The transaction coordinators of one broker: machines and configuration put together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

from broker.coordinator.runtime import CoordinatorRuntime, Host
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.counters import TransactionCounters
from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.types import TransactionState
from metadata.features import TRANSACTION_VERSION, finalized_level
from metadata.image import MetadataImage
from metadata.internal_topics import TRANSACTION_TOPIC
from runtime.config.node import NodeConfig
from stele.world import Clock

_TOLD_STATES = tuple(
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)


class TransactionCoordinators(CoordinatorRuntime[TransactionMachine]):
    """The coordinators of the partitions of ``__transaction_state`` that ``host`` leads."""

    def __init__(
        self,
        config: NodeConfig,
        host: Host,
        *,
        clock: Clock,
        image: Callable[[], MetadataImage],
    ) -> None:
        """``image``: the newest one that is published."""
        keys = (each.name for each in dataclasses.fields(TransactionConfig))
        transaction_config = TransactionConfig(**{key: getattr(config, key) for key in keys})
        self.transaction_counters = TransactionCounters()
        self.on_markers_due: Callable[[], None] = lambda: None
        """Called when a machine has markers that are due. It must not call a machine at once."""

        def markers_due() -> None:
            self.on_markers_due()

        super().__init__(
            TRANSACTION_TOPIC,
            host=host,
            make_machine=lambda: TransactionMachine(
                transaction_config,
                lambda: finalized_level(image(), TRANSACTION_VERSION),
                markers_due,
                self.transaction_counters,
            ),
            clock=clock,
            commit_timeout_ms=_COMMIT_TIMEOUT_MS,
        )

    def transactions_by_state(self) -> dict[str, float]:
        """How many transactional ids this broker coordinates in each state, by the state's name."""
        counts: Counter[TransactionState] = Counter()
        for machine in self.active:
            counts.update(machine.transactions_by_state())
        return {state.label: float(counts[state]) for state in _TOLD_STATES}


_COMMIT_TIMEOUT_MS = 5_000.0
"""How long a request waits for the in-sync replicas of ``__transaction_state``, as in Kafka."""
