"""``stele cluster describe``, ``unregister``, ``restart-check`` and ``log-dirs``."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.log_dirs import log_dirs
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import print_json, print_table
from cli.whatif import restart_check
from stele.addresses import address_text

cluster_app = typer.Typer(cls=CommandList, help="The cluster's brokers.", no_args_is_help=True)
cluster_app.command("restart-check")(restart_check)
cluster_app.command("log-dirs")(log_dirs)


@cluster_app.command("describe")
def describe_cluster(
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show all brokers, fenced ones too."""
    with connect(bootstrap, timeout) as admin:
        cluster = admin.describe_cluster(linearizable=not local)
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
                address_text(each.host, each.port),
                address_text(each.grpc_host, each.grpc_port),
                each.rack or None,
                _state(each.fenced, each.in_controlled_shutdown),
                each.broker_epoch,
            )
            for each in cluster.brokers
        ],
    )


@cluster_app.command("unregister")
def unregister(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the broker.")],
    request_id: RequestId = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Forget a broker that is gone for good."""
    with connect(bootstrap, timeout) as admin:
        admin.unregister_broker(broker_id, request_id=request_id_of(request_id))
    if as_json:
        print_json({"broker_id": broker_id, "unregistered": True})
    else:
        print(f"broker {broker_id} is unregistered")


def _state(fenced: bool, shutting_down: bool) -> str:
    if shutting_down:
        return "shutting down"
    return "fenced" if fenced else "serving"
