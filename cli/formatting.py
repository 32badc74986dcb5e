"""``stele format``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Json
from cli.output import CommandError, UsageError, note, print_json
from cli.server import Settings, load_config

if TYPE_CHECKING:
    from collections.abc import Collection

    from node.format import FirstVoters
    from runtime.config.node import NodeConfig
    from stele.world import Rng
    from world.disk import Disk


Config = Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")]
ClusterId = Annotated[
    str, typer.Option("--cluster-id", help="Id of the cluster (default: a new one).")
]
Standalone = Annotated[
    bool,
    typer.Option(
        "--standalone", help="This controller begins a quorum with itself as the only voter."
    ),
]
InitialControllers = Annotated[
    str,
    typer.Option(
        "--initial-controllers",
        metavar="ID@HOST:PORT[:DIRECTORY-ID],…",
        help="The controllers that begin a quorum together; the same list on each of them.",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", help="This node joins an existing quorum.")
]
IgnoreFormatted = Annotated[
    bool,
    typer.Option(
        "--ignore-formatted", help="Leave directories that are formatted already as they are."
    ),
]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="A first user of a new cluster, as in kafka-storage; the same on each "
        "controller. May be repeated. In place of password: saltedpassword and salt, in "
        "base64. Also: iterations.",
    ),
]


def format_command(
    config: Config,
    cluster_id: ClusterId = "",
    standalone: Standalone = False,
    initial_controllers: InitialControllers = "",
    no_initial_controllers: NoInitialControllers = False,
    ignore_formatted: IgnoreFormatted = False,
    add_scram: AddScram = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Prepare a node's directories. Every node of a cluster needs the same cluster id.

    Where controller.quorum.voters is not set, a controller is told how its quorum begins.
    """
    from node.directories import directories_of
    from node.first_users import FirstUsers
    from node.format import format_directory, random_cluster_id
    from runtime.real.world import RealWorld

    node = load_config(config, settings)
    _check_beginning(node, standalone, initial_controllers, no_initial_controllers)
    world = RealWorld()
    disk, rng = world.world.disk, world.world.rng
    try:
        users = FirstUsers.of(node, add_scram, rng) if add_scram else None
        directories = directories_of(node)
        chosen = cluster_id or node.cluster_id or _present_id(disk, directories)
        chosen = chosen or random_cluster_id(rng)
        fresh = format_directory(
            disk,
            directories,
            chosen,
            node.node_id,
            rng,
            ignore_formatted=ignore_formatted,
            first=_first_voters(node, standalone, initial_controllers, rng),
            users=users,
        )
        directory_id = _directory_id(disk, node.metadata_log_dir)
    finally:
        world.close()
    if as_json:
        print_json(
            {
                "cluster_id": chosen,
                "node_id": node.node_id,
                "formatted": fresh,
                "metadata_directory_id": directory_id,
            }
        )
    else:
        _tell(node, chosen, directories, fresh, directory_id)
    if add_scram:
        _tell_of_users(node, fresh, joins=no_initial_controllers)


def _tell(
    node: NodeConfig,
    cluster_id: str,
    directories: list[str],
    fresh: Collection[str],
    directory_id: str,
) -> None:
    for path in directories:
        state = "formatted" if path in fresh else "left as it was"
        print(f"{path}: {state} (cluster {cluster_id}, node {node.node_id})")
    if node.is_controller:
        print(f"as a controller its directory id is {directory_id}")


def _tell_of_users(node: NodeConfig, fresh: Collection[str], *, joins: bool) -> None:
    """Say where ``--add-scram`` had no effect."""
    if not node.is_controller:
        note("--add-scram has no effect on a broker: the controllers begin with these users")
    elif node.metadata_log_dir not in fresh:
        note("--add-scram has no effect: the metadata directory was formatted before")
    elif joins:
        note("--add-scram has no effect on a controller that joins: the cluster has its users")


def _check_beginning(
    node: NodeConfig, standalone: bool, initial_controllers: str, no_initial_controllers: bool
) -> None:
    options = {
        "--standalone": standalone,
        "--initial-controllers": bool(initial_controllers),
        "--no-initial-controllers": no_initial_controllers,
    }
    given = [name for name, present in options.items() if present]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")
    if given and node.voters and not initial_controllers:
        raise CommandError(
            f"{given[0]}: controller.quorum.voters says already who begins; remove that key, and "
            "set controller.quorum.bootstrap.servers"
        )
    if not given and node.is_controller and not node.voters:
        raise UsageError(
            "how does the quorum begin? Give --standalone (with this controller alone), "
            "--initial-controllers (with these), or --no-initial-controllers (this one joins it)"
        )


def _first_voters(
    node: NodeConfig, standalone: bool, initial_controllers: str, rng: Rng
) -> FirstVoters | None:
    from node.format import FirstVoters

    if standalone:
        return FirstVoters.standalone(node, rng)
    return FirstVoters.of(node, initial_controllers, rng) if initial_controllers else None


def _present_id(disk: Disk, directories: list[str]) -> str:
    """The cluster id of a directory that is formatted already; "" where none is."""
    from storage.checkpoints import META_PROPERTIES_FILE, read_meta_properties

    for directory in directories:
        properties = read_meta_properties(disk, f"{directory}/{META_PROPERTIES_FILE}")
        if properties is not None:
            return properties.cluster_id
    return ""


def _directory_id(disk: Disk, directory: str) -> str:
    from storage.formatted import read_formatted

    return read_formatted(disk, directory).directory_id
