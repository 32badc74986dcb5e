"""The reference page of the configuration, written from the declared keys."""

from __future__ import annotations

from collections.abc import Iterable

from metadata.config_keys import CLIENT_METRICS_KEYS, GROUP_KEYS, NODE_KEYS, TOPIC_KEYS, ConfigKey

_HEAD = """\
# Configuration

<!-- Written by scripts/configuration-page from metadata/config_keys.py. Do not edit. -->

A node reads `server.properties`, then environment variables, then `--set key=value`. Later values
win. The variable of a key is `STELE_` and the key in capitals with `_` for `.`: that of
`log.retention.hours` is `STELE_LOG_RETENTION_HOURS`. If a key does not exist, the log names the
nearest one that does. A key of Kafka's that is not built has no effect, and the log names it once.
But a key that promises safety and is not built (`principal.builder.class`, policies, tiered storage
and the like) stops the start.

The running cluster can override these values, as far as the scope of a key allows:

| scope | where it may be set |
|---|---|
| node | the file and its overrides; read when the node starts |
| cluster | also dynamically, for all brokers or for a single one |
| cluster only | also dynamically, but only for all brokers at once |
| topic | on the topic, when it is created or later |
| group | on the consumer group, whether it exists or not |
| client metrics | on a subscription to clients' metrics, which exists while a key is set |

The narrowest setting wins: topic or group, then broker, then cluster, then file, then default.
Names and defaults are Apache Kafka's unless the description says otherwise.
"""


def page() -> str:
    """The whole page, as Markdown."""
    sections = [
        _HEAD,
        "## Topics\n\n" + _table(TOPIC_KEYS.values(), with_scope=False),
        "## Consumer groups\n\n" + _table(GROUP_KEYS.values(), with_scope=False),
        "## Client metrics\n\n" + _table(CLIENT_METRICS_KEYS.values(), with_scope=False),
        "## Nodes and the cluster\n\n" + _table(NODE_KEYS.values(), with_scope=True),
    ]
    return "\n".join(sections)


def _table(keys: Iterable[ConfigKey], *, with_scope: bool) -> str:
    last = "scope" if with_scope else "default for those that do not set it"
    lines = [f"| key | type | default | {last} | description |", "|---|---|---|---|---|"]
    for key in keys:
        last = key.scope.value if with_scope else _synonyms(key)
        cells = [f"`{key.name}`", _type(key), _default(key), last, key.doc]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _synonyms(key: ConfigKey) -> str:
    if key.synonym is None:
        return "none"
    names = [key.synonym, *(name for name, _ in key.coarser)]
    return ", ".join(f"`{name}`" for name in names)


def _type(key: ConfigKey) -> str:
    text = key.type.value.lower()
    if key.allowed:
        return f"{text}: " + ", ".join(key.allowed)
    if key.pattern is not None:
        return f"{text}: {key.pattern[1]}"
    if key.minimum is not None and key.maximum is not None:
        return f"{text}, {key.minimum:.0f} to {key.maximum:.0f}"
    if key.minimum is not None:
        return f"{text}, {key.minimum:.0f} or more"
    return text


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "**must be set**"
    return f"`{key.default}`" if key.default else ""
