"""Kafka's configuration keys that are known and not built.

A key that promises safety stops the start: plaintext in place of configured encryption is worse
than no node. All other keys have no effect, and the log names each once.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from metadata.security_settings import LISTENER_KEYS


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
        near = _nearest_built(name)
        if near is not None:
            return f"there is no configuration {name}; did you mean {near}?"
        return f"{name} promises {self.what}, which is not built: {self.remedy}"


_KAFKAS_OWN = (
    "ssl.provider", "ssl.protocol", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "sasl.mechanism",
    "sasl.mechanism.controller.protocol",
)  # fmt: skip
"""Keys that Kafka has and that are near to others."""


def _nearest_built(name: str) -> str | None:
    """The key about a listener's protection that was probably meant by one that nobody has."""
    bare = _without_listener(name)
    if not bare.startswith(("ssl.", "sasl.")) or bare in _KAFKAS_OWN:
        return None
    near = difflib.get_close_matches(bare, [key.name for key in LISTENER_KEYS], n=1, cutoff=0.93)
    return name.removesuffix(bare) + near[0] if near else None


_VERSIONS = "name the versions in ssl.enabled.protocols"
_NETWORK = (
    "remove it, and restrict access by the network (every listener is PLAINTEXT and answers "
    "whoever reaches it)"
)

# The first that covers a key counts.
PROMISES = (
    Promise("ssl.protocol", "a version of TLS", ("tls", "tlsv1.2", "tlsv1.3"), _VERSIONS),
    Promise("ssl.", "another implementation of TLS"),
    Promise(
        "sasl.mechanism.controller.protocol",
        "logins at controllers",
        remedy="remove it, and let nodes come in there by certificates (CONTROLLER:SSL)",
    ),
    Promise("sasl.kerberos.", "authentication by Kerberos"),
    Promise("sasl.", "another way of authentication"),
    Promise("security.providers", "another implementation of security"),
    Promise("early.start.listeners", "access control", remedy=_NETWORK),
    Promise("principal.builder.class", "principals of your own making"),
    Promise(
        "delegation.token.master.key",
        "a secret by its name of older versions",
        remedy="remove it, and set delegation.token.secret.key, as in Kafka 4",
    ),
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
    ("group.share.assignors", "simple is the only assignor of share groups"),
    ("offsets.load.buffer.size", "a load reads as much as fits"),
    ("offsets.topic.compression.codec", "there is no compression of __consumer_offsets"),
    ("share.coordinator.append.linger.", "a coordinator appends without a delay"),
    ("share.coordinator.cold.partition.", "a write pays for the snapshots of cold partitions"),
    ("share.coordinator.load.buffer.size", "a load reads as much as fits"),
    ("share.coordinator.state.topic.compression.", "there is no compression of states"),
    ("share.coordinator.state.topic.prune.", "the log is cut as soon as much of it is not needed"),
    ("share.coordinator.threads", "a coordinator has no threads"),
    ("share.fetch.purgatory.", "there is no list of waiting fetches to be purged"),
    ("transaction.abort.timed.out.", "a transaction is aborted when its time is over"),
    ("transaction.state.log.load.buffer.size", "a load reads as much as fits"),
    ("add.partitions.to.txn.", "a broker leaves it to the producer to ask again"),
    ("quota.", "there is no window: what a client uses is paid by time"),
    ("controller.quota.", "11 seconds' worth of changes may be made at once"),
    ("client.quota.", "quotas are set with stele quotas, and not by a plugin"),
    ("replication.quota.", "a throttle lets a second's bytes pass at once"),
    ("alter.log.dirs.replication.quota.", "a copy waits after each piece that it has read"),
    ("remote.", "there is no tiered storage"),
    ("log.local.retention.", "there is no tiered storage"),
    ("num.", "there are no pools of threads"),
    ("zookeeper.", "there is no ZooKeeper"),
    ("delete.topic.enable", "topics can always be deleted"),
)

_LISTENER_PREFIX = "listener.name."


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
