"""The entrance of a node's process: its directories are checked before its code is imported.

The imports of a node take a second of processor time, and a directory that is not formatted is a
frequent mistake of a new user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from node.directories import read_identity
from node.process_end import EXIT_FAILED, tell
from runtime.config.node import NodeConfig
from runtime.real.disk import RealDisk
from stele.errors import SteleError

if TYPE_CHECKING:
    from node.node import Node


def run_node(config: NodeConfig, *, on_ready: Callable[[Node], None] | None = None) -> int:
    """Run a node until SIGTERM or SIGINT, or until it fails; the process's exit code.

    The first signal stops it in good order, a second one at once. Foreseeable errors are one
    line on standard error. ``on_ready`` is called once the node serves.
    """
    try:
        read_identity(RealDisk(), config)  # the start does it again, with the disk of its world
    except SteleError as error:
        tell(str(error))
        return EXIT_FAILED
    from node.process import live

    return live(config, on_ready)
