"""Kafka's configuration keys that are known and not built.

A key that promises safety stops the start: plaintext in place of configured encryption is worse
than no node. All other keys have no effect, and the log names each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

PLAINTEXT = "PLAINTEXT"


class Promise(NamedTuple):
    """A key and its promise. A key that ends in a dot stands for all keys that begin with it."""

    key: str
    what: str
    # Values that promise nothing, in lower case. No value never promises anything.
    harmless: tuple[str, ...] = ()
    remedy: str = "remove it"

    def covers(self, name: str) -> bool:
        return name.startswith(self.key) if self.key.endswith(".") else name == self.key

    def refusal(self, name: str, value: str) -> str | None:
        """Why a node must not start with this value; None where it promises nothing."""
        if value.strip().lower() in ("", *self.harmless):
            return None
        return f"{name} promises {self.what}, which is not built: {self.remedy}"


_ENCRYPTION = "encrypted or authenticated connections"
_NETWORK = (
    "remove it, and restrict access by the network (every listener is PLAINTEXT and answers "
    "whoever reaches it)"
)

# The first that covers a key counts.
PROMISES = (
    Promise("ssl.client.auth", _ENCRYPTION, ("none",), _NETWORK),
    Promise("ssl.", _ENCRYPTION, remedy=_NETWORK),
    Promise("sasl.", "authenticated clients", remedy=_NETWORK),
    Promise("security.inter.broker.protocol", _ENCRYPTION, ("plaintext",), _NETWORK),
    Promise("security.providers", _ENCRYPTION, remedy=_NETWORK),
    Promise("authorizer.", "access control", remedy=_NETWORK),
    Promise("early.start.listeners", "access control", remedy=_NETWORK),
    Promise("super.users", "access control", remedy=_NETWORK),
    Promise("allow.everyone.if.no.acl.found", "access control", ("true",), _NETWORK),
    Promise("principal.builder.class", "authenticated clients", remedy=_NETWORK),
    Promise("connections.max.reauth.ms", "authenticated clients", ("0",), _NETWORK),
    Promise("delegation.token.", "authenticated clients", remedy=_NETWORK),
    Promise("password.encoder.", "encrypted passwords"),
    Promise("config.providers", "secrets from outside of the file", remedy="write values out"),
    Promise("create.topic.policy.class.name", "a policy that refuses topics"),
    Promise("alter.config.policy.class.name", "a policy that refuses configurations"),
    Promise("delete.topic.enable", "topics that cannot be deleted", ("true",)),
    Promise("remote.log.storage.system.enable", "tiered storage", ("false",)),
    Promise("log.dir", "a directory for partitions", remedy="name it in log.dirs"),
)

_WITHOUT_EFFECT = (
    ("group.consumer.migration.", "a group with members does not change its protocol"),
    ("group.consumer.regex.", "expressions are resolved again when topics come or go"),
    ("group.coordinator.", "a coordinator has no threads, and appends without a delay"),
    ("group.share.", "there are no share groups"),
    ("offsets.load.buffer.size", "a load reads as much as fits"),
    ("offsets.topic.compression.codec", "there is no compression of __consumer_offsets"),
    ("share.", "there are no share groups"),
    ("transaction.abort.timed.out.", "a transaction is aborted when its time is over"),
    ("transaction.state.log.load.buffer.size", "a load reads as much as fits"),
    ("add.partitions.to.txn.", "a broker leaves it to the producer to ask again"),
    ("quota.", "there are no quotas"),
    ("controller.quota.", "there are no quotas"),
    ("client.quota.", "there are no quotas"),
    ("replication.quota.", "there are no quotas"),
    ("alter.log.dirs.replication.quota.", "there are no quotas"),
    ("remote.", "there is no tiered storage"),
    ("log.local.retention.", "there is no tiered storage"),
    ("num.", "there are no pools of threads"),
    ("background.threads", "there are no pools of threads"),
    ("max.connection", "connections are not limited"),
    ("controller.listener.names", "a controller's address is controller.listener"),
    ("zookeeper.", "there is no ZooKeeper"),
    ("allow.everyone.if.no.acl.found", "there is no access control"),
    ("connections.max.reauth.ms", "there is no authentication"),
    ("delete.topic.enable", "topics can always be deleted"),
    ("security.inter.broker.protocol", "every listener is PLAINTEXT"),
    ("ssl.", "every listener is PLAINTEXT"),
    ("sasl.", "every listener is PLAINTEXT"),
)

_LISTENER_PREFIX = "listener.name."
_SECURE_WORDS = ("SSL", "TLS", "SASL")


def refusal(name: str, value: str) -> str | None:
    """Why a node must not start with this setting: it promises safety that is not built."""
    bare = _without_listener(name)
    for promise in PROMISES:
        if promise.covers(bare):
            return promise.refusal(name, value)
    return None


def is_known(name: str) -> bool:
    """Whether this is a key of Kafka whose treatment here is declared."""
    bare = _without_listener(name)
    return no_effect(name) is not None or any(promise.covers(bare) for promise in PROMISES)


def no_effect(name: str) -> str | None:
    """Why a key of Kafka's has no effect here; None where that is not known."""
    bare = _without_listener(name)
    for prefix, reason in _WITHOUT_EFFECT:
        if bare.startswith(prefix):
            return f"{name} has no effect: {reason}"
    return None


def _without_listener(name: str) -> str:
    """``listener.name.internal.ssl.keystore.location`` is the key ssl.keystore.location.

    SASL's also name a mechanism: ``listener.name.internal.plain.sasl.jaas.config``.
    """
    if not name.startswith(_LISTENER_PREFIX):
        return name
    bare = name.removeprefix(_LISTENER_PREFIX).partition(".")[2]
    _, found, key = bare.partition(".sasl.")
    return f"sasl.{key}" if found else bare


def listener_refusals(listeners: Iterable[str], mapped: Sequence[str]) -> Iterable[str]:
    """The reasons why these listeners must not be served in plaintext, one line for each.

    ``listeners``: their names. ``mapped``: the NAME:PROTOCOL items of
    listener.security.protocol.map. If a name is not mapped, the name itself says what its users
    expect.
    """
    protocols: dict[str, str] = {}
    for item in mapped:
        name, colon, protocol = item.partition(":")
        if not colon or not name or not protocol:
            yield f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL"
        protocols[name.upper()] = protocol.upper()
    yield from _insecure(listeners, protocols)


def _insecure(listeners: Iterable[str], protocols: Mapping[str, str]) -> Iterable[str]:
    for listener in dict.fromkeys(listeners):
        protocol = protocols.get(listener.upper())
        if protocol is None and any(word in listener.upper() for word in _SECURE_WORDS):
            yield (
                f"listener {listener} promises {_ENCRYPTION} by its name, which are not built: "
                f"rename it, or map it in listener.security.protocol.map to {PLAINTEXT}"
            )
        elif protocol not in (None, PLAINTEXT):
            yield (
                f"listener.security.protocol.map promises {protocol} for listener {listener}, "
                f"which is not built: map it to {PLAINTEXT}, and restrict access by the network"
            )
