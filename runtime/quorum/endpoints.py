"""Where the other replicas are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from raft.quorum import VoterSet
from runtime.config.addresses import (
    CONTROLLER,
    NamedAddress,
    choose_listener,
    parse_address,
    parse_endpoint,
)
from runtime.quorum.config import QuorumConfig

_log = logging.getLogger(__name__)

FIRST_BOOTSTRAP_ID: Final = -2
"""The configured servers to ask have no ids; they are called -2, -3, … as in Kafka."""


class Endpoints:
    """Where each peer is reached, by node id.

    Of a voter, the voters record knows; of a leader that is not in the newest one here, other
    replicas do; of the rest, the configuration. One that does not answer gives way to the next.

    A controller may have several listeners. This node uses the first of its own names that the
    controller has, and no other: TLS that fails must not give way to plaintext.
    """

    def __init__(self, config: QuorumConfig) -> None:
        self._names = tuple(config.controllers)
        self._own_id, self._own = config.node_id, parse_endpoint(config.own_endpoint) or ()
        first = self._names[0]
        self._configured = {
            each.id: NamedAddress(first, each.host, each.port) for each in config.voters
        }
        for number, address in enumerate(config.bootstrap):
            named = NamedAddress(first, address.host, address.port)
            self._configured[FIRST_BOOTSTRAP_ID - number] = named
        self._recorded: dict[int, tuple[NamedAddress, ...]] = {}
        self._told: dict[int, dict[str, NamedAddress]] = {}  # by listener
        self._failures: dict[int, int] = {}  # in a row, by id: how far down its addresses it is

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """All that the configuration says where they are, but this node."""
        others = [each for each in self._configured if each != self._own_id]
        return tuple(sorted(others, key=lambda each: (each > 0, abs(each))))

    def settle(self, voters: VoterSet, leader_id: int | None) -> None:
        """These are the voters now, and this is the leader, which need not be one of them: it may
        have been added behind the end of this log, or be about to leave."""
        if leader_id is not None and leader_id in self._recorded:
            known = {each.name: each for each in self._recorded[leader_id]}
            self._told.setdefault(leader_id, known)
        recorded = {each.id: parse_endpoint(each.endpoint) for each in voters.voters}
        found = {node_id: listeners for node_id, listeners in recorded.items() if listeners}
        if found != self._recorded:
            self._warn_of_unnamed(found)
            self._recorded = found
            self._failures.clear()
        for node_id in [each for each in self._told if each not in (*voters.ids, leader_id)]:
            del self._told[node_id]

    def _warn_of_unnamed(self, found: Mapping[int, Sequence[NamedAddress]]) -> None:
        """Say which controllers have none of this node's listeners, once for each change."""
        for node_id, listeners in found.items():
            known = (CONTROLLER, *self._names)  # earlier versions recorded this one for all
            if listeners == self._recorded.get(node_id) or node_id == self._own_id:
                continue
            if not any(each.name in known for each in listeners):
                _log.warning(
                    "controller %d has the listeners %s, and controller.listener.names here has "
                    "only %s: add the listener by which this node is to connect",
                    node_id,
                    ", ".join(map(str, listeners)),
                    ", ".join(self._names),
                )

    @property
    def in_use(self) -> set[NamedAddress]:
        """Where those are that this replica may have to call."""
        ids = [*self._recorded, *self._told, *self._configured]
        return {address for each in ids if (address := self.get(each)) is not None}

    def tell(self, node_id: int | None, endpoint: str, listener: str) -> None:
        """Another replica says that this node is there. Both speak over a listener of that name,
        and mean the one of the same name."""
        address = parse_address(endpoint)
        if node_id is None or address is None:
            return
        named = NamedAddress(listener, address.host, address.port)
        told = self._told.setdefault(node_id, {})
        if told.get(listener) != named:
            told[listener] = named
            self._failures.pop(node_id, None)

    def failed(self, node_id: int) -> None:
        """It was not reached where it was thought to be."""
        self._failures[node_id] = self._failures.get(node_id, 0) + 1

    def get(self, node_id: int) -> NamedAddress | None:
        """None: nobody knows where this node is."""
        if node_id == self._own_id and self._own:
            return choose_listener(self._own, self._names)
        known = self._known(node_id)
        return known[self._failures.get(node_id, 0) % len(known)] if known else None

    def text_of(self, node_id: int | None, listener: str) -> str:
        """The address to tell a replica that speaks over a listener of that name; "" if none is
        known here."""
        if node_id is None:
            return ""
        sources = [self._own] if node_id == self._own_id else []
        for source in (*sources, *self._sources(node_id)):
            found = choose_listener(source, (listener,))
            if found is not None:
                return str(found.address)
        return ""

    def _known(self, node_id: int) -> list[NamedAddress]:
        known: list[NamedAddress] = []
        for source in self._sources(node_id):
            found = choose_listener(source, self._names)
            if found is None or found in known:
                continue
            if not known or found.name == known[0].name:
                known.append(found)
        return known

    def _sources(self, node_id: int) -> Sequence[Sequence[NamedAddress]]:
        configured = self._configured.get(node_id)
        return (
            self._recorded.get(node_id, ()),
            tuple(self._told.get(node_id, {}).values()),
            () if configured is None else (configured,),
        )
