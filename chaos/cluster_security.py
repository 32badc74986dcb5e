"""What makes a cluster of processes secure: certificates, listeners, users and their files.

Clients come in on the listener CLIENTS with SASL over TLS and say who they are by SCRAM. Nodes, and
the administrator who makes the users, come in on the listener NODES, and controllers' ports, with
certificates. A directory that has all this already is used as it is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from node.certificates import CertificateDirectory
from security.authority import DAYS, MAPPING_RULES, NODES, Subject
from stele.admin.acls import Acl
from stele.admin.users import ScramUpsertion
from stele.aio import Admin
from stele.properties import format_properties, parse_properties
from stele.security.options import SecurityOptions
from stele.security.properties import login_properties, options_of

CLIENTS: Final = "CLIENTS"
NODES_LISTENER: Final = "NODES"
ADMIN: Final = "admin"
"""A super user. It has a certificate, too, by which it comes in before there are users."""

APPLICATION: Final = "app"
"""A user with ordinary rights."""

APPLICATION_RULES: Final = (
    *tuple(
        Acl(f"User:{APPLICATION}", operation, kind, "*")
        for kind, operations in {
            "TOPIC": ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS"),
            "GROUP": ("READ", "DELETE"),
            "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
        }.items()
        for operation in operations
    ),
    Acl(f"User:{APPLICATION}", "TWO_PHASE_COMMIT", "TRANSACTIONAL_ID", "spark/", "PREFIXED"),
)
"""It works with topics, also from Spark exactly once, and administrates nothing."""

MECHANISM: Final = "SCRAM-SHA-512"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")

_PASSWORD_BYTES: Final = 18
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True)
class ListenerPorts:
    """The ports of one broker: of the Kafka protocol, and of gRPC."""

    clients: int
    clients_grpc: int
    nodes: int
    nodes_grpc: int


class ClusterSecurity:
    """The secrets of one cluster, in ``<directory>/security``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve() / "security"
        self.certificates = CertificateDirectory(self.directory / "certificates")

    def exists(self) -> bool:
        """Whether the cluster in the directory is secure."""
        return self.directory.exists()

    def prepare(self, node_ids: Iterable[int]) -> None:
        """Make what is missing: an authority, certificates, passwords, clients' files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        os.chmod(self.directory, 0o700)
        now = datetime.now(UTC)
        if not self.certificates.exists():
            self.certificates.make_authority(now)
        subjects = [Subject.node(node_id, HOSTS) for node_id in node_ids]
        for subject in (*subjects, Subject.user(ADMIN)):
            if not self.certificates.keystore(subject).exists():
                self.certificates.issue(subject, now, DAYS)
        for user in (ADMIN, APPLICATION):
            if not self.client_file(user).exists():
                self._write_client(user)

    def settings(self, node_id: int, ports: ListenerPorts | None) -> dict[str, str]:
        """The settings of a node; ``ports`` None: it is no broker."""
        keystore = self.certificates.keystore(Subject.node(node_id, HOSTS))
        settings = {
            "listener.security.protocol.map": (
                f"{CLIENTS}:SASL_SSL,{NODES_LISTENER}:SSL,CONTROLLER:SSL"
            ),
            "inter.broker.listener.name": NODES_LISTENER,
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.location": str(self.certificates.truststore),
            "ssl.principal.mapping.rules": MAPPING_RULES,
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{NODES};User:{ADMIN}",
        }
        if ports is not None:
            settings |= {
                "listeners": (
                    f"{CLIENTS}://127.0.0.1:{ports.clients},"
                    f"{NODES_LISTENER}://127.0.0.1:{ports.nodes}"
                ),
                "grpc.listeners": (
                    f"{CLIENTS}://127.0.0.1:{ports.clients_grpc},"
                    f"{NODES_LISTENER}://127.0.0.1:{ports.nodes_grpc}"
                ),
                "sasl.enabled.mechanisms": MECHANISM,
                f"listener.name.{NODES_LISTENER.lower()}.ssl.client.auth": "required",
            }
        return settings

    async def introduce_users(self, admin: Admin) -> None:
        """Make the users and their rules in a cluster that serves, unless that is done already:
        a password that was changed since stays, and a removed user stays away.

        A cluster without any user is new, even where the file says that its passwords were given
        to one: the nodes' directories may have been emptied since."""
        done = self.directory / "users.made"
        if done.exists():
            if await admin.describe_user_scram_credentials():
                return
            done.unlink()
        await admin.alter_user_scram_credentials(
            [ScramUpsertion(each, self.password_of(each)) for each in (ADMIN, APPLICATION)]
        )
        await admin.create_acls(APPLICATION_RULES)
        done.touch()

    # ------------------------------------------------------------------------------ clients

    @property
    def of_administrator(self) -> SecurityOptions:
        """How the administrator comes in on the listener for nodes, where no user is needed."""
        return {
            "security_protocol": "SSL",
            "ssl_truststore_location": str(self.certificates.truststore),
            "ssl_keystore_location": str(self.certificates.keystore(Subject.user(ADMIN))),
        }

    def of_user(self, user: str) -> SecurityOptions:
        """How a user comes in on the listener for clients."""
        return options_of(self._properties(user), str(self.client_file(user)))

    def password_of(self, user: str) -> str:
        """The password of a user who is made here."""
        return self._properties(user)["sasl.password"]

    def client_file(self, user: str) -> Path:
        """The properties of a client, for ``--command-config`` and for Kafka's own tools."""
        return self.directory / f"{user}.properties"

    def _properties(self, user: str) -> Mapping[str, str]:
        return parse_properties(self.client_file(user).read_text())

    def _write_client(self, user: str) -> None:
        password = secrets.token_hex(_PASSWORD_BYTES)
        properties = {
            "security.protocol": "SASL_SSL",
            **login_properties(user, password, MECHANISM),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.truststore),
        }
        descriptor = os.open(self.client_file(user), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(format_properties(properties))
