"""Reads the stores of a node for an examination."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from node.findings import NodeFacts
from runtime.config.node import NodeConfig
from runtime.tls.listeners import setting_names
from runtime.tls.own_handshake import Refused, try_own_handshake
from stele.errors import SteleError
from stele.security.stores import read_key_store

_READABLE_BY_OTHERS: Final = 0o044


def read_facts(config: NodeConfig, now: datetime) -> NodeFacts:
    """A node as its configuration and the files that it names describe it."""
    certificates = dict[str, x509.Certificate]()
    unreadable, refused = dict[str, str](), dict[str, Refused]()
    exposed = dict[str, None]()
    facts = NodeFacts(config, certificates, unreadable, (), now, refused)
    listeners = {each.name: each for each, _, _ in facts.listeners if each.protocol.has_tls}
    peers = {each.name: each for each in facts.peer_listeners}
    for name, security in (listeners | peers).items():
        store, named = security.tls.keystore, setting_names(name)
        try:
            certificates[name] = read_key_store(store, named).certificate
            why = try_own_handshake(security.tls, security.client_auth, named)
        except SteleError as error:
            unreadable[name] = str(error)
            continue
        if why is not None and name in peers:
            refused[name] = why
        if store.location is not None and Path(store.location).stat().st_mode & _READABLE_BY_OTHERS:
            exposed[store.location] = None
    return NodeFacts(config, certificates, unreadable, tuple(exposed), now, refused)
