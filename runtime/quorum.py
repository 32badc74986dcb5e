"""The metadata quorum as a node runs it: the driver that pumps the pure Raft core."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.api import LeaderAndEpoch, QuorumListener
from runtime.quorum_config import QuorumConfig
from stele.world import Service, World


class Quorum:
    """A replica of ``__cluster_metadata-0``: a voter on controllers, an observer on brokers.

    Satisfies ``raft.api.MetadataQuorum``. Life: make it, ``add_listener``, ``start``, serve
    ``service()`` on the controller's port, ``stop``. ``on_fatal`` is called once, on the event
    loop, when the replica can go on no more (its disk failed, its log is corrupt).
    """

    def __init__(
        self,
        config: QuorumConfig,
        world: World,
        log_directory: str,
        *,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        raise NotImplementedError

    @property
    def leader(self) -> LeaderAndEpoch:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        raise NotImplementedError

    def add_listener(self, listener: QuorumListener) -> None:
        """Before ``start`` only: every listener sees every committed batch."""
        raise NotImplementedError

    def propose(self, records: Sequence[bytes], *, epoch: int) -> int:
        raise NotImplementedError

    def next_offset(self) -> int:
        raise NotImplementedError

    def service(self) -> Service:
        """The handlers of ``stele.v1.Raft``; voters serve it, observers have no need to."""
        raise NotImplementedError

    async def start(self) -> None:
        """Recover the log, read ``quorum-state``, join. Raises SteleError when it may not start."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Resign if leading, telling the voters; end every task; sync and close the log."""
        raise NotImplementedError
