"""``stele doctor``: what is unsafe in the configuration of nodes, and in a live cluster."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client_properties import command_security
from cli.connection import connect
from cli.options import EXIT_NOT_WELL, Json, Timeout
from cli.output import UsageError, note, print_json, print_table
from cli.server import load_config

if TYPE_CHECKING:
    from node.doctor import Finding, NodeFacts
    from stele.admin.acls import Acl
    from stele.sync import Admin

_READABLE_BY_OTHERS = 0o044
_SHOW_S = 5.0
"""How long a broker may take to show its certificate."""


def doctor(
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="A node's server.properties; may be repeated."),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="Kafka ports of some brokers of a live cluster: host:port,host:port. Without "
            "--config, those in STELE_BOOTSTRAP_SERVER.",
        ),
    ] = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> int:
    """Find what is unsafe, and say what to do; exit code 3 if there is a problem.

    With --config the files of nodes are examined, with --bootstrap-server a live cluster: its
    users, their rules, and the certificates that brokers show.
    """
    from node.doctor import Level, examine

    if not configs and bootstrap is None:
        bootstrap = os.environ.get("STELE_BOOTSTRAP_SERVER")
    if not configs and bootstrap is None:
        raise UsageError("give --config FILE, or --bootstrap-server of a live cluster")
    found: list[Finding] = []
    for file in configs or ():
        found += examine(_facts_of(file))
    if bootstrap is not None:
        found += _examine_cluster(bootstrap, timeout)
    if as_json:
        print_json([{**each._asdict(), "level": each.level.value} for each in found])
    elif found:
        rows = [(each.level.value, each.where, each.what, each.advice) for each in found]
        print_table(("LEVEL", "WHERE", "WHAT", "WHAT TO DO"), rows)
    else:
        note("nothing unsafe was found")
    return EXIT_NOT_WELL if any(each.level is Level.PROBLEM for each in found) else 0


def _facts_of(file: Path) -> NodeFacts:
    from datetime import UTC, datetime

    from node.doctor import NodeFacts
    from stele.security.pem import StoreError
    from stele.security.stores import read_key_store

    config = load_config(file, None)
    certificates, unreadable, exposed = {}, {}, list[str]()
    listeners = [*config.security.listeners.values()]
    if config.is_controller:
        listeners.append(config.security.controllers)
    for listener in listeners:
        if not listener.protocol.has_tls:
            continue
        store = listener.tls.keystore
        try:
            certificates[listener.name] = read_key_store(store).certificate
        except StoreError as error:
            unreadable[listener.name] = str(error)
            continue
        if store.location is not None and Path(store.location).stat().st_mode & _READABLE_BY_OTHERS:
            exposed.append(store.location)
    return NodeFacts(
        config, certificates, unreadable, tuple(dict.fromkeys(exposed)), datetime.now(UTC)
    )


def _examine_cluster(bootstrap: str, timeout_s: float) -> list[Finding]:
    from datetime import UTC, datetime

    from cryptography import x509

    from node.cluster_doctor import ClusterFacts, examine_cluster
    from stele.errors import ApiError, ErrorCode

    has_tls = "SSL" in command_security().get("security_protocol", "PLAINTEXT")
    with connect(bootstrap, timeout_s) as admin:
        cluster = admin.describe_cluster()
        rules: list[Acl] | None = None
        try:
            rules = admin.describe_acls()
        except ApiError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
        users = [
            user
            for user in admin.describe_user_scram_credentials()
            if not _is_super_user(admin, user)
        ]
    brokers = {
        each.broker_id: (each.host, each.port) for each in cluster.brokers if not each.fenced
    }
    certificates, silent = {}, dict[int, str]()
    for broker_id, (host, port) in brokers.items() if has_tls else ():
        try:
            shown = ssl.get_server_certificate((host, port), timeout=_SHOW_S)
            certificates[broker_id] = x509.load_pem_x509_certificate(shown.encode())
        except (OSError, ValueError) as error:
            silent[broker_id] = str(error)
    return examine_cluster(
        ClusterFacts(rules, users, brokers, certificates, silent, has_tls, now=datetime.now(UTC))
    )


def _is_super_user(admin: Admin, user: str) -> bool:
    """It needs no rules. Without an authorizer nobody is one."""
    from stele.errors import ApiError, ErrorCode

    try:
        verdict = admin.test_access(f"User:{user}", "ALTER", "CLUSTER", "kafka-cluster")
    except ApiError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return False
    return verdict.reason == "SuperUser"
