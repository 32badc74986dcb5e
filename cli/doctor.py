"""``stele doctor``: what is unsafe in the configuration of nodes, and in a live cluster."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client_properties import command_security
from cli.connection import connect
from cli.options import EXIT_NOT_WELL, Json, Timeout
from cli.output import UsageError, note, print_json, print_table
from cli.server import load_config

if TYPE_CHECKING:
    from node.findings import Finding
    from stele.admin.acls import Acl
    from stele.admin.client_connections import ListenerCertificate
    from stele.admin.quorum import QuorumDescription
    from stele.sync import Admin

_SHOW_S = 5.0
"""How long a broker may take to show its certificate."""
_SILENT_MS = 60_000


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
    users, their rules, the certificates that brokers show, and those that they have refused.
    """
    from datetime import UTC, datetime

    from node.doctor import examine
    from node.findings import Level
    from node.node_facts import read_facts

    if not configs and bootstrap is None:
        bootstrap = os.environ.get("STELE_BOOTSTRAP_SERVER")
    if not configs and bootstrap is None:
        raise UsageError("give --config FILE, or --bootstrap-server of a live cluster")
    found: list[Finding] = []
    for file in configs or ():
        found += examine(read_facts(load_config(file, None), datetime.now(UTC)))
    if bootstrap is not None:
        found += _examine_cluster(bootstrap, timeout)
    if as_json:
        print_json([{**each._asdict(), "level": each.level.value} for each in found])
    elif found:
        rows = [(each.level.value, each.where, each.what, each.advice) for each in found]
        print_table(("LEVEL", "WHERE", "WHAT", "WHAT TO DO"), rows)
    else:
        note("nothing unsafe was found")
    return EXIT_NOT_WELL if any(each.level is not Level.ADVICE for each in found) else 0


def _examine_cluster(bootstrap: str, timeout_s: float) -> list[Finding]:
    from datetime import UTC, datetime

    from cryptography import x509

    from node.cluster_doctor import ClusterFacts, examine_cluster
    from stele.errors import ApiError, ErrorCode
    from world.network import ANONYMOUS

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
            if not _is_super_user(admin, f"User:{user}")
        ]
        anonymous_is_super = _is_super_user(admin, ANONYMOUS)
        silent_voters = _silent(admin.describe_quorum())
        brokers = {
            each.broker_id: (each.host, each.port) for each in cluster.brokers if not each.fenced
        }
        listeners, untold = _certificates_of(admin, brokers)
    certificates, silent = {}, dict[int, str]()
    for broker_id, (host, port) in brokers.items() if has_tls else ():
        try:
            shown = ssl.get_server_certificate((host, port), timeout=_SHOW_S)
            certificates[broker_id] = x509.load_pem_x509_certificate(shown.encode())
        except (OSError, ValueError) as error:
            silent[broker_id] = str(error)
    return examine_cluster(
        ClusterFacts(
            rules,
            users,
            brokers,
            certificates,
            silent,
            has_tls,
            now=datetime.now(UTC),
            anonymous_is_super=anonymous_is_super,
            fenced=[each.broker_id for each in cluster.brokers if each.fenced],
            silent_voters=silent_voters,
            listeners=listeners,
            untold=untold,
        )
    )


def _certificates_of(
    admin: Admin, broker_ids: Iterable[int]
) -> tuple[dict[int, Sequence[ListenerCertificate]], dict[int, str]]:
    """What brokers say of their own certificates; the brokers that do not, and why."""
    from stele.errors import ApiError

    listeners: dict[int, Sequence[ListenerCertificate]] = {}
    untold: dict[int, str] = {}
    for broker_id in broker_ids:
        try:
            listeners |= admin.describe_certificates([broker_id])
        except ApiError as error:
            untold[broker_id] = error.message or error.code.name
    return listeners, untold


def _silent(quorum: QuorumDescription) -> list[int]:
    """The voters that have not asked the leader for a long time, by the leader's own clock."""
    fetched = {each.replica_id: each.last_fetch_time_ms or 0 for each in quorum.voters}
    newest_ms = max(fetched.values(), default=0)
    return [
        voter_id
        for voter_id, fetched_ms in sorted(fetched.items())
        if voter_id != quorum.leader_id and newest_ms - fetched_ms > _SILENT_MS
    ]


def _is_super_user(admin: Admin, principal: str) -> bool:
    """It needs no rules. Without an authorizer nobody is one."""
    from stele.errors import ApiError, ErrorCode

    try:
        verdict = admin.test_access(principal, "ALTER", "CLUSTER", "kafka-cluster")
    except ApiError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return False
    return verdict.reason == "SuperUser"
