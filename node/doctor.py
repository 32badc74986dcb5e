"""What is unsafe in a node's configuration, and what to do about it.

A node with such a configuration may start: these are mistakes that nobody notices until it is too
late. Pure, but for the stores, which the caller has read.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from cryptography import x509

from runtime.config.node import NamedAddress, NodeConfig
from runtime.config.security import ListenerSecurity
from security.renewal import days_left, names_host
from world.network import ANONYMOUS

SOON_DAYS: Final = 30


class Level(enum.Enum):
    PROBLEM = "problem"
    ADVICE = "advice"


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    level: Level
    where: str
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as its files describe it."""

    config: NodeConfig
    certificates: Mapping[str, x509.Certificate]  # by listener; those that can be read
    unreadable: Mapping[str, str]  # by listener: why its store cannot be read
    exposed_files: tuple[str, ...]  # with a private key that other users of the machine can read
    now: datetime

    @property
    def name(self) -> str:
        return f"node {self.config.node_id}"

    @property
    def listeners(self) -> Iterator[tuple[ListenerSecurity, NamedAddress, NamedAddress]]:
        """Of each listener its security, and where it is bound and advertised."""
        config = self.config
        for bound, advertised in zip(config.listeners, config.advertised_listeners, strict=True):
            yield config.security.listeners[bound.name], bound, advertised
        grpc = zip(config.grpc_listeners, config.grpc_advertised_listeners, strict=True)
        for bound, advertised in grpc:
            yield config.security.listeners[bound.name], bound, advertised
        address, told = config.controller_listener, config.controller_advertised_listener
        if address is not None and told is not None:
            own = config.security.controllers
            yield (
                own,
                NamedAddress(own.name, address.host, address.port),
                NamedAddress(own.name, told.host, told.port),
            )


Check = Callable[[NodeFacts], Iterator[Finding]]
_PROBLEM, _ADVICE = Level.PROBLEM, Level.ADVICE


def examine(facts: NodeFacts) -> list[Finding]:
    """All findings, problems first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(dict.fromkeys(found), key=lambda each: each.level is not _PROBLEM)


def _faces_outside(host: str) -> bool:
    """Whether other machines may connect. A name counts as outside, unless it is localhost."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _plaintext_outside(facts: NodeFacts) -> Iterator[Finding]:
    for security, bound, _ in facts.listeners:
        if security.protocol.has_tls or not _faces_outside(bound.host):
            continue
        read = "passwords and records" if security.protocol.has_sasl else "records"
        yield Finding(
            _PROBLEM,
            f"{facts.name}, listener {bound.name}",
            f"it is {security.protocol.value} on {bound.host}: whoever is on the way reads {read}",
            f"map {bound.name} to SASL_SSL or SSL in listener.security.protocol.map, or bind it "
            "to 127.0.0.1",
        )


def _nobody_is_asked(facts: NodeFacts) -> Iterator[Finding]:
    for security, bound, _ in facts.listeners:
        if security.protocol.has_sasl or security.client_auth == "required":
            continue
        if security.protocol.has_tls:
            yield Finding(
                _ADVICE,
                f"{facts.name}, listener {bound.name}",
                f"clients need not say who they are (ssl.client.auth={security.client_auth}): "
                f"they are {ANONYMOUS}",
                f"set listener.name.{bound.name.lower()}.ssl.client.auth=required, or map the "
                "listener to SASL_SSL",
            )


def _no_authorizer(facts: NodeFacts) -> Iterator[Finding]:
    if facts.config.access_policy is None and any(
        _faces_outside(bound.host) for _, bound, _ in facts.listeners
    ):
        yield Finding(
            _PROBLEM,
            facts.name,
            "there is no authorizer: whoever gets in reads, writes and deletes everything",
            "set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and "
            "super.users",
        )


def _super_users_are_everybody(facts: NodeFacts) -> Iterator[Finding]:
    access = facts.config.access_policy
    if access is None:
        return
    for principal in sorted(access.super_users & {ANONYMOUS, "User:*"}):
        yield Finding(
            _PROBLEM,
            facts.name,
            f"{principal} is a super user: access rules have no effect for those who do not say "
            "who they are",
            f"take {principal} out of super.users, and let nodes come in by certificates",
        )
    if access.allow_everyone_if_no_acl_found:
        yield Finding(
            _ADVICE,
            facts.name,
            "everybody may use what no rule is about (allow.everyone.if.no.acl.found=true)",
            "set it to false once every user has rules: stele acls list",
        )


def _certificates(facts: NodeFacts) -> Iterator[Finding]:
    for name, reason in facts.unreadable.items():
        yield Finding(
            _PROBLEM, f"{facts.name}, listener {name}", reason, "the node does not start so"
        )
    for name, certificate in facts.certificates.items():
        left = days_left(certificate, facts.now)
        where = f"{facts.name}, listener {name}"
        until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        if left < 0:
            yield Finding(
                _PROBLEM,
                where,
                f"its certificate expired on {until}",
                "renew it: stele certs renew",
            )
        elif left < SOON_DAYS:
            yield Finding(
                _ADVICE,
                where,
                f"its certificate ends on {until}, in {int(left)} days",
                "renew it: stele certs renew; a node that runs takes the new file by itself",
            )


def _names(facts: NodeFacts) -> Iterator[Finding]:
    for security, _, advertised in facts.listeners:
        certificate = facts.certificates.get(security.name)
        if certificate is None or names_host(certificate, advertised.host):
            continue
        yield Finding(
            _PROBLEM,
            f"{facts.name}, listener {security.name}",
            f"it is advertised as {advertised.host}, which its certificate does not name: clients "
            "refuse it",
            f"give the certificate the name {advertised.host}, or advertise one that it has",
        )


def _exposed(facts: NodeFacts) -> Iterator[Finding]:
    for file in facts.exposed_files:
        yield Finding(
            _PROBLEM,
            facts.name,
            f"other users of the machine can read the private key in {file}",
            f"chmod 600 {file}",
        )


CHECKS: Final[tuple[Check, ...]] = (
    _plaintext_outside,
    _nobody_is_asked,
    _no_authorizer,
    _super_users_are_everybody,
    _certificates,
    _names,
    _exposed,
)
