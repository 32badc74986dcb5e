"""The configuration of a replica of the metadata quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raft.quorum import FeatureLevels, ReplicaKey, Voter, VoterSet
from runtime.config.addresses import CONTROLLER, NamedAddress, endpoint_text
from stele.addresses import Address
from stele.security.client_security import PLAINTEXT, ClientSecurity


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """One entry of ``controller.quorum.voters``: ``id@host:port``."""

    id: int
    host: str
    port: int


def _usual_listener() -> Mapping[str, ClientSecurity]:
    return {CONTROLLER: PLAINTEXT}


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Identity and timing of one replica. The log has the voters, once it has any record: a node
    that is no voter there is an observer.

    Defaults are Kafka's: ``controller.quorum.*``.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes
    voters: tuple[QuorumVoter, ...]  # the first ones; empty: not by configuration
    bootstrap: tuple[Address, ...] = ()  # host, port of controllers that may know more
    is_controller: bool = False  # it serves the quorum, as a voter or to become one
    endpoint: str = ""  # where the others reach this controller (endpoint_text); "": as in voters
    controllers: Mapping[str, ClientSecurity] = field(default_factory=_usual_listener)
    """How this node connects to controllers, by the name of their listener. It uses the first
    listener that a controller has. The configured addresses are of the first one."""
    features: tuple[FeatureLevels, ...] = ()  # that this node supports, by name
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    snapshot_after_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000  # 0: only by bytes

    @property
    def may_vote(self) -> bool:
        return self.is_controller or any(voter.id == self.node_id for voter in self.voters)

    @property
    def own_endpoint(self) -> str:
        """The endpoint at which others reach this node if it serves the quorum; else ""."""
        if self.endpoint:
            return self.endpoint
        own = (voter for voter in self.voters if voter.id == self.node_id)
        return next(map(self._configured_endpoint, own), "")

    @property
    def first_voters(self) -> VoterSet:
        """The voters that the configuration names. They vote until a record names voters."""
        return VoterSet(
            Voter(ReplicaKey(voter.id), self._configured_endpoint(voter)) for voter in self.voters
        )

    def _configured_endpoint(self, voter: QuorumVoter) -> str:
        first = next(iter(self.controllers))
        return endpoint_text([NamedAddress(first, voter.host, voter.port)])
