"""The keys of the authorizer, and the faults that would lock the nodes out of their own cluster."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from metadata.acl import WILDCARD_PRINCIPAL
from runtime.config.security import ListenerSecurity, NodeSecurity
from security.authorizer.decision import Policy
from stele.security.client_security import ClientSecurity
from world.network import ANONYMOUS

logger = logging.getLogger(__name__)

_AUTHORIZER: Final = "authorizer.class.name"
_SUPER_USERS: Final = "super.users"
_SECOND_PRINCIPAL: Final = re.compile(r"\s*,\s*User:")
_ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


def access_policy(
    raw: Mapping[str, str], value: Callable[[str], object], faults: list[str]
) -> Policy | None:
    """What the authorizer goes by; None: there is none. Adds a line to ``faults`` for each fault.

    ``raw``: what was set, as text, by key. ``value`` gives the typed value of a key.
    """
    super_users = split_super_users(raw.get(_SUPER_USERS, ""))
    if not value(_AUTHORIZER):
        faults.extend(_promises(raw))
        return None
    faults.extend(_faults_in(super_users))
    return Policy(frozenset(super_users), value(_ALLOW_EVERYONE) is True)


def split_super_users(text: str) -> list[str]:
    """Principals are separated by semicolons, because names of certificates contain commas."""
    return [each.strip() for each in text.split(";") if each.strip()]


def node_faults(policy: Policy, security: NodeSecurity, inter_broker: str) -> Iterator[str]:
    """Why the nodes could not work together under this policy, one line for each reason.

    ``inter_broker``: the listener by which brokers are reached.
    """
    to_brokers = security.listeners.get(inter_broker)
    ways = [(each, security.to_controllers[name]) for name, each in security.controllers.items()]
    if to_brokers is not None:
        ways.insert(0, (to_brokers, security.to_brokers))
    for listener, client in ways:
        principal = _principal(listener, client)
        if principal is not None and policy.super_users:
            yield from _fault_of(policy, listener.name, principal)


def _principal(listener: ListenerSecurity, client: ClientSecurity) -> str | None:
    """As whom a node comes in on a listener. None: its certificate or its token says that."""
    if client.sasl is not None:
        return f"User:{client.sasl.username}" if client.sasl.username else None
    if listener.protocol.has_sasl:
        return None  # it lacks a mechanism, which is a fault of its own
    if not listener.protocol.has_tls or listener.client_auth == "none":
        return ANONYMOUS
    return None


def _fault_of(policy: Policy, listener: str, principal: str) -> Iterator[str]:
    if principal == ANONYMOUS and principal not in policy.super_users:
        key = f"listener.name.{listener.lower()}.ssl.client.auth=required"
        yield (
            f"the nodes of the cluster come in on the listener {listener} as {ANONYMOUS}, which is "
            f"no super user, and could not form a cluster: map it to SSL with {key}, and name the "
            f"principals of the nodes' certificates in {_SUPER_USERS}"
        )
    elif principal not in policy.super_users:
        yield (
            f"{_SUPER_USERS} lacks {principal}: the nodes of the cluster come in on the listener "
            f"{listener} as this principal, and could not form a cluster. Add it"
        )


def _promises(raw: Mapping[str, str]) -> Iterator[str]:
    is_set = [_SUPER_USERS] if raw.get(_SUPER_USERS) else []
    if raw.get(_ALLOW_EVERYONE, "true").lower() == "false":
        is_set.append(_ALLOW_EVERYONE)
    for name in is_set:
        yield (
            f"{name} promises access control, and there is no authorizer: set "
            f"{_AUTHORIZER}=org.apache.kafka.metadata.authorizer.StandardAuthorizer, or remove it"
        )


def _faults_in(super_users: Sequence[str]) -> Iterator[str]:
    if not super_users:
        yield (
            f"{_AUTHORIZER} is set, and {_SUPER_USERS} names nobody: name the principals of the "
            "nodes, which could not form a cluster without them, and of an administrator: "
            f"{_SUPER_USERS}=User:node;User:admin"
        )
    for each in super_users:
        if _SECOND_PRINCIPAL.search(each):
            apart = _SECOND_PRINCIPAL.sub(";User:", each)
            yield (
                f"{_SUPER_USERS}: {each!r} is one principal, because certificates' names have "
                f"commas: separate principals by semicolons: {apart}"
            )
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            yield f"{_SUPER_USERS}: {each!r} is not Type:name, for example User:admin"
        elif each == WILDCARD_PRINCIPAL:
            yield f"{_SUPER_USERS}: {each} is a name of ACLs and no principal"
    if ANONYMOUS in super_users:
        logger.warning(
            "%s names %s: whoever reaches a listener without authentication may do everything, "
            "whatever the ACLs say",
            _SUPER_USERS,
            ANONYMOUS,
        )
