"""What ``stele dev`` says about a cluster that serves: where it is, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.process_cluster import NodeProcess, ProcessCluster
    from cli.dev.console import DevConsole


def how_to_connect(cluster: ProcessCluster, console: DevConsole | None, how_to_stop: str) -> str:
    """``how_to_stop`` is the last line."""
    servers = cluster.bootstrap_servers
    brokers = [node for node in nodes_of(cluster) if node.kafka_port is not None]
    lines = [
        f"Brokers      {servers}",
        f"gRPC         {','.join(f'127.0.0.1:{node.grpc_port}' for node in brokers)}",
        f"Controllers  {','.join(_controller_addresses(cluster))}",
        f"Directory    {cluster.directory.resolve()}",
    ]
    if console is not None:
        lines.append(f"Console      {console.address}")
    lines += [
        f"  {node.name:<16} pid {node.pid:<8} http://127.0.0.1:{node.metrics_port}/metrics "
        f"{node.log_file}"
        for node in nodes_of(cluster)
    ]
    lines += _how_to_try(cluster)
    lines.append(how_to_stop)
    return "\n".join(lines)


def _controller_addresses(cluster: ProcessCluster) -> list[str]:
    listeners = [node.settings.get("controller.listener") for node in nodes_of(cluster)]
    return [each for each in listeners if each is not None]


def nodes_of(cluster: ProcessCluster) -> list[NodeProcess]:
    return [cluster.nodes[node_id] for node_id in sorted(cluster.nodes)]


def _how_to_try(cluster: ProcessCluster) -> list[str]:
    servers = cluster.bootstrap_servers
    factor = min(3, len(cluster.broker_ids))
    create = f"stele topic create orders --partitions 6 --replication-factor {factor}"
    if not cluster.is_secure:
        return [
            "Try",
            f"  export STELE_BOOTSTRAP_SERVER={servers}",
            f"  {create}",
            "  seq 1000 | stele produce orders",
            "  stele consume orders --max 5",
            f"  kcat -b {servers} -L",
            f"  python -c 'from stele import Admin; print(Admin(\"{servers}\").list_topics())'",
        ]
    from chaos.cluster_security import ADMIN, APPLICATION, MECHANISM

    security = cluster.security
    kafka = "  kafka-console-consumer.sh --topic orders --from-beginning --bootstrap-server "
    kcat = f"  kcat -b {servers} -L -X security.protocol=sasl_ssl -X sasl.mechanism={MECHANISM} "
    kcat += f"-X ssl.ca.location={security.certificates.truststore} "
    kcat += f"-X sasl.username={APPLICATION} -X sasl.password={security.password_of(APPLICATION)}"
    admin, app = security.client_file(ADMIN), security.client_file(APPLICATION)
    return [
        f"Certificates {security.certificates.path}",
        f"Clients      {admin} (may do everything)",
        f"             {app} (topics and groups)",
        "Try",
        f"  export STELE_BOOTSTRAP_SERVER={servers} STELE_COMMAND_CONFIG={app}",
        f"  {create}",
        "  seq 1000 | stele produce orders",
        "  stele consume orders --max 5",
        f"  stele acls list --command-config {admin}",
        f"  stele doctor --command-config {admin}",
        f"{kafka}{servers} --consumer.config {app}",
        "  # kcat needs librdkafka 2.6.1 for SCRAM (kcat -V); an earlier one is refused",
        kcat,
    ]
