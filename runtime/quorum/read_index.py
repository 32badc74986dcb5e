"""A leader's read index, once a majority has confirmed that it led when it was asked."""

from __future__ import annotations

from raft.core import RaftCore
from raft.ready import Ready
from runtime.quorum.driver import Driver


async def confirm_leadership(driver: Driver, epoch: int) -> int:
    """As ``raft.api.MetadataQuorum.confirm_leadership``."""
    read_index, number = driver.leading(epoch).high_watermark, 0

    def ask(core: RaftCore, now: float) -> Ready:
        nonlocal number
        number, ready = core.confirm_leadership(now)
        return ready

    driver.take(ask)
    await driver.until(lambda: driver.leading(epoch).reads_confirmed >= number)
    return read_index
