"""For tests of real nodes: configurations on free ports of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

from runtime.config.node import NodeConfig, from_settings


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def combined_settings(directory: Path, controller_port: int) -> dict[str, str]:
    """One node that is controller and broker; its other ports are free ones."""
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
