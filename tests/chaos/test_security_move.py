"""The steps from plaintext to TLS: in the configuration of all nodes, and on a small cluster."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from chaos.cluster_security import APPLICATION
from chaos.process_cluster import ProcessCluster
from chaos.security_move import MoveStep, SecurityMove
from runtime.config.addresses import choose_listener
from runtime.config.node import NodeConfig, from_settings
from runtime.config.security import ListenerSecurity
from security.authority import NODES
from stele.addresses import SecurityProtocol
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer
from stele.properties import parse_properties
from stele.security.client_security import ClientSecurity
from stele.security.options import SecurityOptions
from world.network import ANONYMOUS

OPEN, USE, CLOSE = MoveStep
PAGE = Path(__file__).parents[2] / "docs" / "moving-to-security.md"

Restart = tuple[int, MoveStep]
Settings = dict[str, str]


def restarts(controllers: Sequence[int], brokers: Sequence[int]) -> Iterator[Restart]:
    """As the page has them."""
    both = (*controllers, *brokers)
    for nodes, step in ((both, OPEN), (brokers, USE), (both, CLOSE)):
        yield from ((node, step) for node in dict.fromkeys(nodes))


def lets_in(server: NodeConfig, listener: ListenerSecurity, client: ClientSecurity) -> None:
    """Whether a node comes in on a listener of another one, as a super user."""
    assert listener.protocol is client.protocol
    if server.access_policy is None:
        return
    if client.protocol is SecurityProtocol.PLAINTEXT:
        assert ANONYMOUS in server.access_policy.super_users
    else:
        assert listener.client_auth == "required"
        assert f"User:{NODES}" in server.access_policy.super_users


def meet(client: NodeConfig, server: NodeConfig) -> None:
    """Whether one node reaches another one."""
    if server.is_controller:
        to_controllers = client.security.to_controllers
        found = choose_listener(server.controller_advertised_listeners, list(to_controllers))
        assert found is not None
        (theirs,) = [each for each in server.controller_listeners if each.port == found.port]
        lets_in(server, server.security.controllers[theirs.name], to_controllers[found.name])
    if server.is_broker and client.is_broker:
        listener = server.security.listeners[client.inter_broker_listener_name]
        lets_in(server, listener, client.security.to_brokers)


def meet_all(configs: Mapping[int, NodeConfig]) -> None:
    for client, server in itertools.product(configs.values(), repeat=2):
        meet(client, server)


def meet_throughout(
    before: Mapping[int, Settings],
    settings: Callable[[int, MoveStep], Settings],
    steps: Iterable[Restart],
) -> list[NodeConfig]:
    """Check that all nodes reach one another after each restart; their last configurations."""
    configs = {each: from_settings(found) for each, found in before.items()}
    meet_all(configs)
    for node_id, step in steps:
        configs[node_id] = from_settings(settings(node_id, step))
        meet_all(configs)
    return list(configs.values())


def laid_out(directory: Path, *, combined: bool = False) -> ProcessCluster:
    cluster = ProcessCluster(directory, combined=combined)
    cluster.lay_out()
    return cluster


def before(cluster: ProcessCluster) -> dict[int, Settings]:
    return {each: node.settings for each, node in cluster.nodes.items()}


def is_secure(configs: Iterable[NodeConfig]) -> bool:
    """Whether nothing of plaintext is left."""
    return all(
        each.protocol.has_tls
        for config in configs
        for each in (*config.security.listeners.values(), *config.security.controllers.values())
    ) and not any(
        config.access_policy is None or ANONYMOUS in config.access_policy.super_users
        for config in configs
    )


@pytest.mark.parametrize("combined", [False, True], ids=["separate", "combined"])
def test_all_nodes_reach_one_another_after_each_restart(tmp_path: Path, combined: bool) -> None:
    cluster = laid_out(tmp_path, combined=combined)
    steps = restarts(cluster.controller_ids, cluster.broker_ids)
    assert not is_secure(map(from_settings, before(cluster).values()))
    assert is_secure(meet_throughout(before(cluster), SecurityMove(cluster).settings, steps))


@pytest.mark.parametrize("left_out", [OPEN, USE])
def test_no_step_can_be_left_out(tmp_path: Path, left_out: MoveStep) -> None:
    cluster = laid_out(tmp_path)
    steps = restarts(cluster.controller_ids, cluster.broker_ids)
    rest = [each for each in steps if each[1] is not left_out]
    with pytest.raises((AssertionError, KeyError)):
        meet_throughout(before(cluster), SecurityMove(cluster).settings, rest)


# ------------------------------------------------------------------------------------- the page

CONTROLLERS, BROKERS = (1, 2, 3), (101, 102, 103)
_KINDS = ("", "advertised.")


def blocks() -> list[Settings]:
    """The settings of nodes on the page, in its order."""
    text = PAGE.read_text()
    found = re.findall(r"^```properties\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    nodes = [block for block in found if "security.protocol=" not in block]
    return [parse_properties(each) for each in nodes]


def without_plaintext(listeners: str) -> str:
    return ",".join(each for each in listeners.split(",") if not each.startswith("PLAINTEXT:"))


def on_page(node_id: int, step: MoveStep | None) -> Settings:
    """What a reader of the page has in the file of a node. None: before the move."""
    start, opened, controllers, brokers, used, closed = blocks()
    own = {"node.id": str(node_id), "log.dirs": "/data"}
    is_broker = node_id in BROKERS
    own["process.roles"] = "broker" if is_broker else "controller"
    of_brokers = {f"{plane}{kind}listeners" for plane in ("", "grpc.") for kind in _KINDS}
    others = {"controller.listener"} if is_broker else of_brokers
    settings = start | own
    if step is not None:
        settings |= opened | (brokers if is_broker else controllers)
    if step is USE or (step is CLOSE and is_broker):
        settings |= used
    if step is CLOSE:
        settings |= closed
        settings["controller.listener"] = "CONTROLLER_SSL://0.0.0.0:9094"
        settings |= {key: without_plaintext(settings.get(key, "")) for key in of_brokers}
    return {key: value for key, value in settings.items() if key not in others}


def test_the_page_moves_a_cluster() -> None:
    start = {each: on_page(each, None) for each in (*CONTROLLERS, *BROKERS)}
    assert is_secure(meet_throughout(start, on_page, restarts(CONTROLLERS, BROKERS)))


# ------------------------------------------------------------------------------- a small cluster


async def write(servers: str, security: SecurityOptions, partition: int) -> None:
    async with Producer(servers, delivery_timeout_ms=20_000, **security) as producer:
        await (await producer.send("orders", b"x", partition=partition))


@pytest.mark.processes
async def test_a_small_cluster_moves(tmp_path: Path) -> None:
    """The drill plaintext-to-tls does it to three controllers and three brokers, under load."""
    cluster = ProcessCluster(tmp_path, controllers=1, brokers=2)
    await cluster.start()
    try:
        move = SecurityMove(cluster)
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", 2, 2)])
        security: SecurityOptions = {}
        for node_id, step in restarts(cluster.controller_ids, cluster.broker_ids):
            if step is USE and not security:
                async with cluster.administrator() as admin:
                    await move.secrets.introduce_users(admin)
                move.move_clients()
                security = move.secrets.of_user(APPLICATION)
            await cluster.stop_node(node_id)
            move.take(node_id, step)
            await cluster.restart(node_id)
            for partition in range(2):
                await write(cluster.bootstrap_servers, security, partition)
        async with cluster.administrator() as admin:
            quorum = await admin.describe_quorum()
        voter = cluster.nodes[1].settings["controller.listener"].removeprefix("CONTROLLER_SSL://")
        assert [each.endpoint for each in quorum.voters] == [voter]
    finally:
        await cluster.stop(timeout_s=0)
