"""The keys of the authorizer: a configuration that locks the nodes out does not start."""

from __future__ import annotations

import logging

import pytest

from metadata.config_keys import STANDARD_AUTHORIZER
from runtime.config.access import node_faults
from runtime.config.node import ConfigError, from_settings
from runtime.config.security import ListenerSecurity, NodeSecurity
from security.authorizer.decision import Policy
from stele.addresses import SecurityProtocol
from stele.security.client_security import ClientSecurity, SaslCredentials
from world.network import ANONYMOUS

MINIMAL = {"node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093"}
TLS = ListenerSecurity("L", SecurityProtocol.SSL)
MUTUAL_TLS = ListenerSecurity("M", SecurityProtocol.SSL, {("", "ssl.client.auth"): "required"})
SASL = ListenerSecurity("L", SecurityProtocol.SASL_SSL)
NODE = SaslCredentials(mechanism="PLAIN", username="n")
ADMIN = SaslCredentials(mechanism="PLAIN", username="admin")
ON = {"authorizer.class.name": STANDARD_AUTHORIZER}


def policy(**settings: str) -> Policy | None:
    return from_settings({**MINIMAL, **settings}).access_policy


def fault(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        policy(**settings)
    return str(caught.value)


def test_without_an_authorizer_there_is_no_policy() -> None:
    assert policy() is None
    assert policy(**{"allow.everyone.if.no.acl.found": "true", "super.users": ""}) is None


@pytest.mark.parametrize("name", [STANDARD_AUTHORIZER, "stele"])
def test_the_policy(name: str) -> None:
    users = "User:CN=node,OU=stele; User:ANONYMOUS ;"
    given = policy(**{"authorizer.class.name": name, "super.users": users})
    assert given == Policy(frozenset(["User:CN=node,OU=stele", "User:ANONYMOUS"]), False)
    assert given is not None
    more = {"super.users": users, "allow.everyone.if.no.acl.found": "True"}
    assert policy(**ON, **more) == given._replace(allow_everyone_if_no_acl_found=True)


def test_another_authorizer_is_not_built() -> None:
    said = fault(**{"authorizer.class.name": "org.example.A", "super.users": "User:ANONYMOUS"})
    assert f"it must be one of {STANDARD_AUTHORIZER}, stele" in said


def test_promises_without_an_authorizer() -> None:
    said = fault(**{"super.users": "User:a", "allow.everyone.if.no.acl.found": "false"})
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        assert f"{name} promises access control, and there is no authorizer" in said


def test_somebody_must_be_a_super_user() -> None:
    assert "super.users names nobody" in fault(**ON)
    assert "'admin' is not Type:name" in fault(**ON, **{"super.users": "admin;User:ANONYMOUS"})
    assert "User:* is a name of ACLs" in fault(**ON, **{"super.users": "User:*"})


@pytest.mark.parametrize(
    ("users", "apart"),
    [
        ("User:admin,User:node", "User:admin;User:node"),
        ("User:CN=a,OU=b , User:CN=c,OU=b", "User:CN=a,OU=b;User:CN=c,OU=b"),
    ],
)
def test_super_users_that_a_comma_separates(users: str, apart: str) -> None:
    said = fault(**ON, **{"super.users": f"User:ANONYMOUS;{users}"})
    assert f"separate principals by semicolons: {apart}" in said
    policy(**ON, **{"super.users": f"User:ANONYMOUS;{apart}"})


def test_the_nodes_must_be_super_users() -> None:
    said = fault(**ON, **{"super.users": "User:admin"})
    for listener in ("PLAINTEXT", "CONTROLLER"):
        assert f"come in on the listener {listener} as User:ANONYMOUS" in said
    assert "listener.name.controller.ssl.client.auth=required" in said
    assert "Add it" not in said, "everybody would be a super user"


@pytest.mark.parametrize(
    ("listener", "client", "lacking"),
    [
        (ListenerSecurity("L"), ClientSecurity(), ANONYMOUS),
        (TLS, ClientSecurity(protocol=SecurityProtocol.SSL), ANONYMOUS),
        (MUTUAL_TLS, ClientSecurity(protocol=SecurityProtocol.SSL), None),
        (SASL, ClientSecurity(protocol=SecurityProtocol.SASL_SSL, sasl=NODE), "User:n"),
    ],
)
def test_the_principals_of_nodes_must_be_super_users(
    listener: ListenerSecurity, client: ClientSecurity, lacking: str | None
) -> None:
    to_controllers = {MUTUAL_TLS.name: ClientSecurity(sasl=ADMIN)}
    controllers = {MUTUAL_TLS.name: MUTUAL_TLS}
    security = NodeSecurity({"L": listener}, controllers, client, to_controllers)
    said = list(node_faults(Policy(frozenset(["User:admin"])), security, "L"))
    assert len(said) == bool(lacking)
    assert all(f"lacks {lacking}: " in each or f"as {lacking}, " in each for each in said)
    assert not list(node_faults(Policy(frozenset(["User:admin"])), security, "OTHER"))


def test_a_warning_names_a_super_user_that_is_everybody(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        policy(**ON, **{"super.users": "User:ANONYMOUS"})
    assert "whoever reaches a listener without authentication may do everything" in caplog.text
