"""What a node's own certificates and settings must allow before it starts.

A node that no other node would ever take does not start. What the metadata of the cluster may heal,
such as an ACL that is missing here, is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from node.findings import Finding, Level
from node.node_facts import read_facts
from node.peers_doctor import PEER_CHECKS
from runtime.config.node import ConfigError, NodeConfig

logger = logging.getLogger(__name__)


def check_start(config: NodeConfig, now: datetime) -> None:
    """Raises ConfigError if the other nodes would refuse this one whatever happens."""
    facts = read_facts(config, now)
    found = [finding for check in PEER_CHECKS for finding in check(facts)]
    for line in _lines(each for each in found if each.level is Level.PROBLEM):
        logger.warning("%s", line)
    fatal = _lines(each for each in found if each.level is Level.FATAL)
    if fatal:
        raise ConfigError("; ".join(fatal))


def _lines(found: Iterable[Finding]) -> list[str]:
    """One for each fault: listeners that share a store share its faults."""
    places: dict[tuple[str, str], list[str]] = {}
    for each in found:
        listener = each.where.rpartition(" ")[2]
        where = places.setdefault((each.what, each.advice), [])
        if listener not in where:
            where.append(listener)
    return [
        f"listener {' and '.join(listeners)}: {what}. What to do: {advice}"
        for (what, advice), listeners in places.items()
    ]
