"""Real nodes in this process, all of whose ports speak TLS."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from node.format import format_directory
from node.node import Node, build
from runtime.config.node import from_settings
from runtime.real.world import RealWorld
from security.node_identity import node_uri
from stele.security.client_security import Store
from tests.support.sim import free_ports
from tests.support.tls import AUTHORITY, Authority

_ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
}


@dataclass(frozen=True)
class SecureCluster:
    nodes: list[Node]
    folder: Path
    authority: Authority

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.ports.kafka['SSL']}" for node in self.nodes)

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    def client_file(self, common_name: str) -> str:
        """A key with its certificate for a client, in one file."""
        path = self.folder / f"{common_name}.pem"
        write_store(path, self.authority.key_store("127.0.0.1", common_name=common_name))
        return str(path)


def write_store(path: Path, store: Store) -> None:
    path.write_text((store.key or "") + (store.certificates or ""))


@contextlib.asynccontextmanager
async def secure_cluster(
    folder: Path,
    *,
    count: int = 1,
    client_auth: str = "required",
    settings: Mapping[str, str] | None = None,
    authority: Authority = AUTHORITY,
) -> AsyncIterator[SecureCluster]:
    """Nodes that are controllers and brokers. Each has its own certificate, which names it."""
    ports = free_ports(count)
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1))
    (folder / "ca.pem").write_text(authority.pem)
    worlds, nodes = list[RealWorld](), list[Node]()
    try:
        for node_id, port in enumerate(ports, 1):
            own = folder / f"node-{node_id}.pem"
            made = authority.key_store(
                "127.0.0.1", "localhost", node_uri(node_id), common_name=f"node-{node_id}"
            )
            write_store(own, made)
            config = from_settings(
                {
                    "node.id": str(node_id),
                    "process.roles": "broker,controller",
                    "controller.quorum.voters": voters,
                    "controller.listener": f"127.0.0.1:{port}",
                    "listeners": "SSL://127.0.0.1:0",
                    "grpc.listeners": "SSL://127.0.0.1:0",
                    "metrics.listener": "127.0.0.1:0",
                    "listener.security.protocol.map": "CONTROLLER:SSL",
                    "log.dirs": str(folder / f"data-{node_id}"),
                    "ssl.keystore.location": str(own),
                    "ssl.truststore.location": str(folder / "ca.pem"),
                    "listener.name.ssl.ssl.client.auth": client_auth,
                    "listener.name.controller.ssl.client.auth": "required",
                    **_ALONE,
                    **(settings or {}),
                }
            )
            world = RealWorld()
            worlds.append(world)
            format_directory(
                world.world.disk, list(config.log_dirs), "a-cluster", node_id, world.world.rng
            )
            nodes.append(build(config, world.world))
        for node in nodes:
            await node.start()
        for node in nodes:
            await node.wait_ready()
        yield SecureCluster(nodes, folder, authority)
    finally:
        for node in reversed(nodes):
            await node.stop()
        for world in worlds:
            await world.stop_serving()
            world.close()
        gc.collect()
