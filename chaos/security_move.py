"""A running cluster of plaintext on its way to TLS, users and access rules.

docs/moving-to-security.md has the same steps for people. Each step gives a node other settings
while it is down. Nodes before and after a step work together, so a cluster takes each step node by
node.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from chaos.cluster_security import CLIENTS, NODES_LISTENER, ListenerPorts
from chaos.process_cluster import Ports, ProcessCluster
from world.network import ANONYMOUS

_PLAIN: Final = "PLAINTEXT"
_PLAIN_CONTROLLER: Final = "CONTROLLER"
_CONTROLLER: Final = "CONTROLLER_SSL"


class MoveStep(enum.Enum):
    """The settings of a node. The value is for people."""

    OPEN = "the new listeners beside the old ones"
    USE = "it connects to other nodes by the new listeners"
    """A line of brokers only. A controller is reached by the listener that it has."""
    CLOSE = "without the old listeners"


class SecurityMove:
    """The settings of each node of a cluster of processes, and of its clients, by steps."""

    def __init__(self, cluster: ProcessCluster) -> None:
        """Makes certificates, passwords and ports."""
        self._cluster = cluster
        self.secrets = cluster.security
        self.secrets.prepare(cluster.nodes)
        ports = Ports(None)
        self._before = {each: dict(node.settings) for each, node in cluster.nodes.items()}
        self._listeners = {
            each: ListenerPorts(
                ports.kafka(), ports.grpc(), ports.of_nodes(), ports.grpc_of_nodes()
            )
            for each in cluster.broker_ids
        }
        self._controllers = {each: ports.controller(each) for each in cluster.controller_ids}

    def take(self, node_id: int, step: MoveStep) -> None:
        """Write the settings of a node that is down."""
        node = self._cluster.nodes[node_id]
        node.settings = self.settings(node_id, step)
        node.write_config()

    def move_clients(self) -> None:
        """From now on the cluster's clients come in by the new listeners."""
        for node_id, ports in self._listeners.items():
            node = self._cluster.nodes[node_id]
            node.kafka_port, node.grpc_port = ports.clients, ports.clients_grpc
            node.nodes_port = ports.nodes
        self._cluster.is_secure = True

    def old_ports(self, node_id: int) -> list[int]:
        """The ports of the plaintext listeners of a node."""
        settings = self._before[node_id]
        keys = ("listeners", "grpc.listeners", "controller.listener")
        return [int(settings[key].rpartition(":")[2]) for key in keys if key in settings]

    def settings(self, node_id: int, step: MoveStep) -> dict[str, str]:
        """All settings of a node."""
        before = self._before[node_id]
        settings = before | self.secrets.settings(node_id, self._listeners.get(node_id))
        del settings["listener.name.controller.ssl.client.auth"]
        is_last, uses = step is MoveStep.CLOSE, step is not MoveStep.OPEN
        protocols = {CLIENTS: "SASL_SSL", NODES_LISTENER: "SSL", _CONTROLLER: "SSL"}
        names = [_CONTROLLER] if is_last else [_CONTROLLER, _PLAIN_CONTROLLER]
        settings |= {
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "inter.broker.listener.name": NODES_LISTENER if uses else _PLAIN,
            "controller.listener.names": ",".join(names if uses else reversed(names)),
            "listener.name.controller_ssl.ssl.client.auth": "required",
        }
        if uses:
            settings["controller.quorum.voters"] = self._voters()
        if not is_last:
            settings["super.users"] += f";{ANONYMOUS}"
            for key in ("listeners", "grpc.listeners"):
                if key in before:
                    settings[key] = f"{before[key]},{settings[key]}"
        if node_id in self._controllers:
            settings["controller.listener"] = self._controller_listener(before, node_id, names)
        return settings

    def _controller_listener(
        self, before: Mapping[str, str], node_id: int, names: list[str]
    ) -> str:
        listeners = {
            _PLAIN_CONTROLLER: before["controller.listener"],
            _CONTROLLER: f"127.0.0.1:{self._controllers[node_id]}",
        }
        return ",".join(f"{name}://{listeners[name]}" for name in names)

    def _voters(self) -> str:
        """The voters on their new listener: nodes connect to these addresses by their first one."""
        return ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._controllers.items())
