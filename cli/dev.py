"""``stele dev``: a cluster of processes on this machine, kept up in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import CommandError, UsageError, key_values, note

if TYPE_CHECKING:
    from chaos.process_cluster import NodeProcess, ProcessCluster

DEFAULT_PORT_BASE = 9092
DEFAULT_NODES = 3
"""Controllers, and brokers."""
DEFAULT_SETTINGS = {
    # Spark's exactly-once sink writes in prepared transactions.
    "transaction.two.phase.commit.enable": "true",
}
"""Those of every node, unless ``--set`` says something else."""


def dev(
    controllers: Annotated[
        int | None,
        typer.Option(
            "--controllers",
            min=1,
            show_default="3",
            help="Number of controllers, which hold the metadata.",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            show_default="3",
            help="Number of brokers, which hold the records.",
        ),
    ] = None,
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Directory of the nodes. A cluster in it is started again."),
    ] = Path("stele-dev"),
    combined: Annotated[
        bool, typer.Option("--combined", help="Run one node that is controller and broker.")
    ] = False,
    base_port: Annotated[
        int,
        typer.Option(
            "--base-port",
            min=0,
            max=65000,
            help="Kafka ports from here, gRPC 100 above, controllers 200, metrics 300; 0: any.",
        ),
    ] = DEFAULT_PORT_BASE,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS, users and access rules, which are made at the first start.",
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for every node."),
    ] = None,
) -> int:
    """Run a cluster of processes until Ctrl-C; what it holds stays in --dir."""
    import asyncio

    from chaos.process_cluster import ProcessCluster
    from runtime.config.node import check_key

    if combined and (controllers is not None or brokers is not None):
        raise UsageError("--combined is one node: leave --controllers and --brokers out")
    chosen = key_values(settings or (), "--set")
    for name in chosen:
        check_key(name)
    cluster = ProcessCluster(
        directory,
        controllers=1 if combined else controllers or DEFAULT_NODES,
        brokers=1 if combined else brokers or DEFAULT_NODES,
        combined=combined,
        base_port=base_port or None,
        settings={**DEFAULT_SETTINGS, **chosen},
        is_secure=secure,
    )
    return asyncio.run(_run(cluster))


async def _run(cluster: ProcessCluster) -> int:
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    life = loop.create_task(_live(cluster))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, life.cancel)
    try:
        await life
    except asyncio.CancelledError:
        note("stele: stopping (again Ctrl-C: at once)")
    finally:
        await _stop(cluster)
    return 0


async def _live(cluster: ProcessCluster) -> None:
    import asyncio

    from stele.real import RealClock

    clock = RealClock()
    began = clock.monotonic()
    await cluster.start()
    note(f"stele: {len(cluster.nodes)} nodes serve after {clock.monotonic() - began:.1f} s")
    print(_how_to_connect(cluster), flush=True)
    gone: set[int] = set()
    while True:
        await asyncio.sleep(0.2)
        for node_id, node in cluster.nodes.items():
            if node.running:
                gone.discard(node_id)
            elif node_id not in gone:
                gone.add(node_id)
                note(f"stele: {node.name} has ended: {node.last_words()}")
                note(f"  its log       {node.log_file}")
                note(f"  start it with stele server {node.config_file}")
        if len(gone) == len(cluster.nodes):
            raise CommandError(f"all nodes have ended; their logs are in {cluster.directory}")


async def _stop(cluster: ProcessCluster) -> None:
    """In good order; a second signal kills what is left."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stopping = loop.create_task(cluster.stop())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.cancel)
    try:
        await stopping
    except asyncio.CancelledError:
        await cluster.stop(timeout_s=0)


def _how_to_connect(cluster: ProcessCluster) -> str:
    servers = cluster.bootstrap_servers
    brokers = [node for node in _nodes(cluster) if node.kafka_port is not None]
    lines = [
        f"Brokers      {servers}",
        f"gRPC         {','.join(f'127.0.0.1:{node.grpc_port}' for node in brokers)}",
        f"Controllers  {','.join(_controller_addresses(cluster))}",
        f"Directory    {cluster.directory.resolve()}",
    ]
    lines += [
        f"  {node.name:<16} pid {node.pid:<8} http://127.0.0.1:{node.metrics_port}/metrics "
        f"{node.log_file}"
        for node in _nodes(cluster)
    ]
    lines += _how_to_try(cluster)
    return "\n".join(lines)


def _controller_addresses(cluster: ProcessCluster) -> list[str]:
    listeners = [node.settings.get("controller.listener") for node in _nodes(cluster)]
    return [each for each in listeners if each is not None]


def _nodes(cluster: ProcessCluster) -> list[NodeProcess]:
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
            "Ctrl-C stops the cluster.",
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
        "Ctrl-C stops the cluster.",
    ]
