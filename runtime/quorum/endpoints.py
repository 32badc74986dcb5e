"""Where the other replicas are."""

from __future__ import annotations

from typing import Final

from raft.quorum import VoterSet
from runtime.config.node import parse_address
from runtime.quorum.config import QuorumConfig
from stele.addresses import Address

FIRST_BOOTSTRAP_ID: Final = -2
"""The configured servers to ask have no ids; they are called -2, -3, … as in Kafka."""


class Endpoints:
    """Where each peer is reached, by node id.

    Of a voter, the voters record knows; of a leader that is not in the newest one here, other
    replicas do; of the rest, the configuration. One that does not answer gives way to the next.
    """

    def __init__(self, config: QuorumConfig) -> None:
        self._own_id, self._own = config.node_id, parse_address(config.own_endpoint)
        self._configured = {each.id: Address(each.host, each.port) for each in config.voters}
        for number, address in enumerate(config.bootstrap):
            self._configured[FIRST_BOOTSTRAP_ID - number] = address
        self._recorded: dict[int, Address] = {}
        self._told: dict[int, Address] = {}
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
            self._told.setdefault(leader_id, self._recorded[leader_id])
        recorded = {each.id: parse_address(each.endpoint) for each in voters.voters}
        found = {node_id: address for node_id, address in recorded.items() if address is not None}
        if found != self._recorded:
            self._recorded = found
            self._failures.clear()
        for node_id in [each for each in self._told if each not in (*voters.ids, leader_id)]:
            del self._told[node_id]

    @property
    def in_use(self) -> set[Address]:
        """Where those are that this replica may have to call."""
        ids = [*self._recorded, *self._told, *self._configured]
        return {address for each in ids if (address := self.get(each)) is not None}

    def tell(self, node_id: int | None, endpoint: str) -> None:
        """Another replica says that this node is there."""
        address = parse_address(endpoint)
        if node_id is not None and address is not None and self._told.get(node_id) != address:
            self._told[node_id] = address
            self._failures.pop(node_id, None)

    def failed(self, node_id: int) -> None:
        """It was not reached where it was thought to be."""
        self._failures[node_id] = self._failures.get(node_id, 0) + 1

    def get(self, node_id: int) -> Address | None:
        """None: nobody knows where this node is."""
        if node_id == self._own_id and self._own is not None:
            return self._own
        known = self._known(node_id)
        return known[self._failures.get(node_id, 0) % len(known)] if known else None

    def _known(self, node_id: int) -> list[Address]:
        known: list[Address] = []
        for source in (self._recorded, self._told, self._configured):
            address = source.get(node_id)
            if address is not None and address not in known:
                known.append(address)
        return known
