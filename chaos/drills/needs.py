"""What a drill needs of its cluster beside nodes that can be killed and paused."""

from __future__ import annotations

import enum


class Need(enum.Enum):
    """The value is for people."""

    CUTS = "cuts the network"
    SMALL_DISKS = "fills a disk"
    SLOW_DISKS = "makes a disk slow"
    SLOW_NETWORK = "makes the network slow"
    FALSE_CLOCKS = "lets clocks jump"
    SECURITY = "exchanges certificates and passwords"
    MOVE = "moves from plaintext to TLS"
    EARLIER_VERSION = "begins with an earlier version"


ABLE: dict[str, frozenset[Need]] = {
    "process": frozenset(Need) - {Need.CUTS},
    "compose": frozenset({Need.CUTS, Need.SLOW_DISKS}),
}
"""By kind of cluster: what it can do, if the machine can."""
