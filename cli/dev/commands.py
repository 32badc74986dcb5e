"""``stele dev`` and the commands about a cluster that it has begun."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.command_list import CommandList
from cli.dev.cluster_record import SERVING, ClusterRecord, known_record
from cli.dev.directory import DEFAULT_DIRECTORY, Directory, complete_node, option_of
from cli.dev.logs import show_logs
from cli.dev.starting import dev
from cli.options import EXIT_NOT_WELL, Json
from cli.output import CommandError, note, print_json, print_table

if TYPE_CHECKING:
    from cli.dev.node_state import NodeState

app = typer.Typer(cls=CommandList)
app.callback(invoke_without_command=True)(dev)
app.command("logs")(show_logs)

Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="Id or name of the node: 101, broker-101.",
        autocompletion=complete_node,
    ),
]


@app.command()
def status(directory: Directory = DEFAULT_DIRECTORY, as_json: Json = False) -> int:
    """Show whether a cluster runs, and its nodes. The exit code is 3 if not all of them serve."""
    from cli.dev.node_state import states_of

    record = known_record(directory)
    is_running = record.is_running()
    states = states_of(record)
    is_well = is_running and record.state == SERVING and all(each.is_ready for each in states)
    if as_json:
        print_json(_plain(directory, record, is_running, states))
    else:
        print(f"{directory.resolve()}: {_said(record, is_running)}")
        if is_running:
            print(f"cluster {record.cluster_id}  bootstrap servers {record.bootstrap_servers}")
            if record.console is not None:
                print(f"console {record.console}")
        else:
            print(f"start it again with: {record.start_command}")
        if is_running or any(each.is_alive for each in states):
            print_table(_COLUMNS, [_row(each) for each in states])
    return 0 if is_well else EXIT_NOT_WELL


@app.command()
def stop(
    directory: Directory = DEFAULT_DIRECTORY,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill",
            help="End its processes at once, by SIGKILL. Acknowledged records stay.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Stop a cluster: first the brokers, then the controllers, each in good order."""
    from cli.dev.ending import end_leftovers, kill_cluster

    record = known_record(directory)
    if not record.is_running():
        ended = end_leftovers(record, note)
        said = _said(record, is_running=False)
    elif kill:
        ended = kill_cluster(record, note)
        said = "stopped by SIGKILL"
    else:
        ended = _ask_to_stop(directory, record)
        said = "stopped"
    if as_json:
        print_json({"directory": str(directory.resolve()), "said": said, "ended": ended})
    else:
        print(f"{directory.resolve()}: {said}")


def _ask_to_stop(directory: Path, record: ClusterRecord) -> dict[str, str]:
    from cli.dev.control import OwnerSilentError, ask
    from cli.dev.ending import wait_for_end

    try:
        ended: dict[str, str] = ask(directory, {"request": "stop"}, note)["nodes"]
    except OwnerSilentError as error:
        raise CommandError(
            f"{error} (pid {record.owner.pid}): look at stele dev status{option_of(directory)}; "
            f"stele dev stop{option_of(directory)} --kill ends it and its nodes at once"
        ) from None
    wait_for_end(record.owner, "it had stopped its nodes")
    return ended


@app.command()
def restart(node: Node, directory: Directory = DEFAULT_DIRECTORY, as_json: Json = False) -> None:
    """Stop a node in good order if it runs, and start it again with its data."""
    from cli.dev.control import ask

    record = known_record(directory)
    name = record.node(node).name
    if not record.is_running():
        raise CommandError(
            f"no cluster runs in {directory.resolve()}: start it with {record.start_command}"
        )
    done = ask(directory, {"request": "restart", "node": name}, note)
    if as_json:
        print_json(done)
    else:
        print(f"{done['node']} serves again (pid {done['pid']})")


_COLUMNS: Final = ("NODE", "STATE", "PID", "KAFKA", "GRPC", "CONTROLLER", "METRICS")


def _row(state: NodeState) -> tuple[object, ...]:
    node = state.node
    return (
        node.name,
        state.text,
        node.process.pid if node.process is not None and state.is_alive else None,
        node.kafka_port,
        node.grpc_port,
        None if node.controller is None else node.controller.rpartition(":")[2],
        node.metrics_port,
    )


def _said(record: ClusterRecord, is_running: bool) -> str:
    since = (
        datetime.fromtimestamp(record.since_ms / 1000).astimezone().isoformat(timespec="seconds")
    )
    kind = "detached" if record.is_detached else "in the foreground"
    if is_running:
        return f"{record.state} since {since}, {kind} (pid {record.owner.pid})"
    if record.was_stopped:
        return f"no cluster runs; {record.state} at {since}: {record.reason}"
    return (
        f"no cluster runs; the process that owned it (pid {record.owner.pid}) ended without "
        "stopping it, as after kill -9. Its nodes ended with it"
    )


def _plain(
    directory: Path, record: ClusterRecord, is_running: bool, states: Sequence[NodeState]
) -> dict[str, object]:
    return {
        "directory": str(directory.resolve()),
        "is_running": is_running,
        "state": record.state if is_running or record.was_stopped else "killed",
        "since_ms": record.since_ms,
        "reason": record.reason,
        "is_detached": record.is_detached,
        "pid": record.owner.pid if is_running else None,
        "cluster_id": record.cluster_id,
        "bootstrap_servers": record.bootstrap_servers,
        "console": record.console if is_running else None,
        "start_command": record.start_command,
        "nodes": [
            {
                "node_id": each.node.node_id,
                "name": each.node.name,
                "state": each.text,
                "is_ready": each.is_ready,
                "pid": _row(each)[2],
                "kafka_port": each.node.kafka_port,
                "grpc_port": each.node.grpc_port,
                "controller": each.node.controller,
                "metrics_port": each.node.metrics_port,
                "log_file": each.node.log_file,
                "config_file": each.node.config_file,
            }
            for each in states
        ],
    }
