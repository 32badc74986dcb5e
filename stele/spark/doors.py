"""The clients of this process through which exactly-once writes reach their clusters.

A door is opened for each task and each commit, and left open for the next one
(``stele.spark.kept_clients``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stele.spark.client_settings import of_admins
from stele.spark.kept_clients import KeptClients
from stele.spark.ledger import Ledger
from stele.spark.options import SinkOptions

if TYPE_CHECKING:
    from stele.sync.prepared import PreparedTransactions


class Door:
    """The clients for one set of options. Use it from one thread at a time."""

    def __init__(self, options: SinkOptions) -> None:
        from stele import Admin  # loaded where it runs: Spark forks its workers

        self._options = options
        self.admin = Admin(options.bootstrap_servers, **of_admins(options.client))
        self.ledger = Ledger(options, self.admin)
        self._prepared: PreparedTransactions | None = None

    @property
    def prepared(self) -> PreparedTransactions:
        """The client that ends the prepared transactions of tasks."""
        if self._prepared is None:
            from stele.sync.prepared import PreparedTransactions

            self._prepared = PreparedTransactions(
                self._options.bootstrap_servers, **self._options.client
            )
        return self._prepared

    def close(self) -> None:
        self.ledger.close()
        if self._prepared is not None:
            self._prepared.close()
        self.admin.close()


def key(options: SinkOptions) -> object:
    settings = tuple(sorted(options.client.items()))
    return options.bootstrap_servers, options.ledger_topic, settings


doors = KeptClients(Door, key)
os.register_at_fork(after_in_child=doors.forget)
