"""For tests of real nodes: configurations on free ports of this machine."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Final

from chaos.process_cluster import FREE_PORTS, is_free
from runtime.config.node import NodeConfig, from_settings

# Clusters of processes, which may run at the same time, use lower ports. The kernel uses higher
# ones for outgoing connections.
_PORTS: Final = range(FREE_PORTS.stop, 32_768)


def free_ports(count: int) -> list[int]:
    """Different ports that are free now."""
    drawn = random.sample(_PORTS, len(_PORTS))
    return list(islice((port for port in drawn if is_free(port)), count))


def combined_settings(directory: Path, controller_port: int) -> dict[str, str]:
    """The settings of a node that is controller and broker. Its other ports are free ones."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener": f"127.0.0.1:{controller_port}",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "grpc.listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "127.0.0.1:0",
        "log.dirs": str(directory),
    }


def combined_config(directory: Path) -> NodeConfig:
    return from_settings(combined_settings(directory, free_ports(1)[0]))
