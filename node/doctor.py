"""What is unsafe in a node's configuration, and what to do about it.

A node with such a configuration may start: these are mistakes that nobody notices until it is too
late. Pure, but for the stores, which the caller has read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

from node.findings import Check, Finding, Level, NodeFacts
from node.peers_doctor import PEER_CHECKS
from security.renewal import days_left
from world.network import ANONYMOUS

SOON_DAYS: Final = 30

_PROBLEM, _ADVICE = Level.PROBLEM, Level.ADVICE


def examine(facts: NodeFacts) -> list[Finding]:
    """All findings, the worst first."""
    return in_order(finding for check in CHECKS for finding in check(facts))


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Each finding once, the worst first."""
    levels = list(Level)
    return sorted(dict.fromkeys(found), key=lambda each: levels.index(each.level))


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
            facts.place_of(bound.name),
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
                facts.place_of(bound.name),
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


def _stores(facts: NodeFacts) -> Iterator[Finding]:
    for name, reason in facts.unreadable.items():
        yield Finding(Level.FATAL, facts.place_of(name), reason, "the node does not start so")


def _ends(facts: NodeFacts) -> Iterator[Finding]:
    for name, certificate in facts.certificates.items():
        left = days_left(certificate, facts.now)
        if 0 <= left < SOON_DAYS:
            yield Finding(
                _ADVICE,
                facts.place_of(name),
                f"its certificate ends on {certificate.not_valid_after_utc:%Y-%m-%d}, in "
                f"{int(left)} days",
                "renew it: stele certs renew; a node that runs takes the new file by itself",
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
    _stores,
    _ends,
    _exposed,
    *PEER_CHECKS,
)
