"""``stele cluster describe`` and ``stele quorum describe``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout, tell_wait
from cli.output import print_json, print_table

cluster_app = typer.Typer(help="The brokers.", no_args_is_help=True)
quorum_app = typer.Typer(help="The controllers' quorum.", no_args_is_help=True)


@cluster_app.command("describe")
def describe_cluster(
    as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER, timeout: Timeout = 30.0
) -> None:
    """Show all brokers, fenced ones too."""
    from stele.sync import Admin

    with Admin(bootstrap, default_api_timeout_ms=int(timeout * 1000), on_wait=tell_wait) as admin:
        cluster = admin.describe_cluster()
    if as_json:
        print_json(cluster)
        return
    controller = "none" if cluster.controller_id is None else cluster.controller_id
    print(
        f"cluster {cluster.cluster_id}  active controller {controller}  "
        f"metadata offset {cluster.metadata_offset}"
    )
    print_table(
        ("BROKER", "KAFKA", "GRPC", "RACK", "STATE", "EPOCH"),
        [
            (
                each.broker_id,
                f"{each.host}:{each.port}",
                f"{each.grpc_host}:{each.grpc_port}",
                each.rack or None,
                _state(each.fenced, each.in_controlled_shutdown),
                each.broker_epoch,
            )
            for each in cluster.brokers
        ],
    )


@quorum_app.command("describe")
def describe_quorum(
    as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER, timeout: Timeout = 30.0
) -> None:
    """Show leader, epoch and how far every replica of the metadata log is."""
    from stele.sync import Admin

    with Admin(bootstrap, default_api_timeout_ms=int(timeout * 1000), on_wait=tell_wait) as admin:
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
                )
            )
    print_table(("NODE", "ROLE", "LOG END OFFSET", "LAG", "LAST FETCH", "CAUGHT UP"), rows)


@quorum_app.command("transfer")
def transfer_leadership(
    to: Annotated[int, typer.Option("--to", help="Node id of the controller that is to lead.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Hand the leadership of the quorum to another controller."""
    from stele.sync import Admin

    with Admin(bootstrap, default_api_timeout_ms=int(timeout * 1000), on_wait=tell_wait) as admin:
        epoch = admin.transfer_leadership(to)
    print(f"controller {to} leads in epoch {epoch}")


def _moment(time_ms: int | None) -> str | None:
    """The leader's wall clock, in UTC."""
    if time_ms is None:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _state(fenced: bool, shutting_down: bool) -> str:
    if shutting_down:
        return "shutting down"
    return "fenced" if fenced else "serving"
