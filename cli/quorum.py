"""``stele quorum``: the controllers that hold the metadata, who leads them, who they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import CommandError, UsageError, print_json, print_table
from cli.server import Settings, load_config

quorum_app = typer.Typer(cls=CommandList, help="The controllers' quorum.", no_args_is_help=True)

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="server.properties of the controller, on its machine."),
]
NodeId = Annotated[int | None, typer.Option("--id", help="Node id of the controller.")]
DirectoryId = Annotated[
    str,
    typer.Option(
        "--directory-id", help="Id of its metadata directory, as stele quorum describe shows it."
    ),
]


@quorum_app.command("describe")
def describe_quorum(
    as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER, timeout: Timeout = 30.0
) -> None:
    """Show leader, epoch and how far every replica of the metadata log is."""
    with connect(bootstrap, timeout) as admin:
        quorum = admin.describe_quorum()
    if as_json:
        print_json(quorum)
        return
    leader = "none" if quorum.leader_id is None else quorum.leader_id
    print(f"leader {leader}  epoch {quorum.epoch}  high watermark {quorum.high_watermark}")
    end = max((each.log_end_offset or 0 for each in quorum.voters), default=0)
    rows: list[tuple[object, ...]] = []
    for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for each in replicas:
            name = "leader" if each.replica_id == quorum.leader_id else role
            lag = None if each.log_end_offset is None else end - each.log_end_offset
            rows.append(
                (
                    each.replica_id,
                    name,
                    each.log_end_offset,
                    lag,
                    _moment(each.last_fetch_time_ms),
                    _moment(each.last_caught_up_time_ms),
                    each.directory_id or None,
                    each.listeners or each.endpoint or None,
                )
            )
    columns = ("NODE", "ROLE", "LOG END OFFSET", "LAG", "LAST FETCH", "CAUGHT UP")
    print_table((*columns, "DIRECTORY ID", "ENDPOINT"), rows)


@quorum_app.command("transfer")
def transfer_leadership(
    to: Annotated[int, typer.Option("--to", help="Node id of the controller that is to lead.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Hand the leadership of the quorum to another controller."""
    with connect(bootstrap, timeout) as admin:
        epoch = admin.transfer_leadership(to)
    if as_json:
        print_json({"leader_id": to, "epoch": epoch})
    else:
        print(f"controller {to} leads in epoch {epoch}")


@quorum_app.command("add-voter")
def add_voter(
    config: Config = None,
    node_id: NodeId = None,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            metavar="HOST:PORT",
            help="Address (host:port) at which the other nodes reach the controller.",
        ),
    ] = "",
    directory_id: DirectoryId = "",
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Make a running controller a voter, once it has caught up. Name it, or give its --config."""
    voter = _named(config, settings, node_id, directory_id, endpoint)
    if not voter.endpoint:
        raise UsageError("where do the others reach it? Give --endpoint HOST:PORT, or --config")
    with connect(bootstrap, timeout) as admin:
        admin.add_voter(
            voter.node_id, voter.directory_id, voter.endpoint, cluster_id=voter.cluster_id
        )
    _tell(voter, "votes now", as_json)


@quorum_app.command("remove-voter")
def remove_voter(
    config: Config = None,
    node_id: NodeId = None,
    directory_id: DirectoryId = "",
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Remove a controller from the voters. It may be down, and it may be the leader."""
    voter = _named(config, settings, node_id, directory_id, "")
    with connect(bootstrap, timeout) as admin:
        admin.remove_voter(voter.node_id, voter.directory_id, cluster_id=voter.cluster_id)
    _tell(voter, "votes no more", as_json)


@quorum_app.command("voters")
def show_voters(
    config: Annotated[Path, typer.Option("--config", "-c", help="A controller's configuration.")],
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show the voters by this node's own disk, for stele format --initial-controllers.

    For a quorum that has lost its majority: quorum describe gets no answer then.
    """
    from node.directories import read_identity
    from runtime.quorum.inspection import voters_on_disk
    from runtime.real.world import RealWorld
    from stele.ids import encode_uuid

    node = load_config(config, settings)
    world = RealWorld()
    try:
        cluster_id = read_identity(world.world.disk, node).cluster_id
        found = voters_on_disk(world.world.disk, node.metadata_log_dir, cluster_id)
    finally:
        world.close()
    if found is None:
        raise CommandError(f"{node.metadata_log_dir} does not say who votes")
    rows = [(each.id, encode_uuid(each.key.directory_id), each.endpoint) for each in found.voters]
    if as_json:
        names = ("node_id", "directory_id", "endpoint")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print(",".join(f"{node_id}@{endpoint}:{directory}" for node_id, directory, endpoint in rows))


@dataclass(frozen=True, slots=True)
class _Voter:
    """The controller that a command is about. ``cluster_id``: "" if only the cluster knows it."""

    node_id: int
    directory_id: str
    endpoint: str
    cluster_id: str


def _named(
    config: Path | None,
    settings: list[str] | None,
    node_id: int | None,
    directory_id: str,
    endpoint: str,
) -> _Voter:
    """The controller that options name, or this machine's. Raises CommandError."""
    if config is not None:
        if node_id is not None or directory_id:
            raise UsageError("--config names the controller already: leave --id and the like out")
        return _of_config(config, settings, endpoint)
    if node_id is None or not directory_id:
        raise UsageError(
            "which controller? Give --id and --directory-id (stele quorum describe shows both), or "
            "on its own machine --config"
        )
    return _Voter(node_id, directory_id, endpoint, "")


def _of_config(config: Path, settings: list[str] | None, endpoint: str) -> _Voter:
    from node.directories import read_identity
    from runtime.config.addresses import endpoint_text
    from runtime.real.world import RealWorld
    from stele.ids import encode_uuid

    node = load_config(config, settings)
    if not node.controller_advertised_listeners:
        raise CommandError(f"node {node.node_id} is no controller: {config}")
    world = RealWorld()
    try:
        identity = read_identity(world.world.disk, node)
    finally:
        world.close()
    return _Voter(
        node.node_id,
        encode_uuid(identity.metadata_directory_id),
        endpoint or endpoint_text(node.controller_advertised_listeners),
        identity.cluster_id,
    )


def _tell(voter: _Voter, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"node_id": voter.node_id, "directory_id": voter.directory_id})
    else:
        print(f"controller {voter.node_id} with the directory {voter.directory_id} {what}")


def _moment(time_ms: int | None) -> str | None:
    """The leader's wall clock, in UTC."""
    if time_ms is None:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
