"""A voter's upkeep of its own entry in the record of the voters."""

from __future__ import annotations

import asyncio
import logging

from raft.membership import UpdateVoter
from raft.quorum import ReplicaKey, Voter
from runtime.config.addresses import first_address
from runtime.quorum.changes import QuorumChanges
from runtime.quorum.config import QuorumConfig
from runtime.quorum.driver import Driver
from runtime.quorum.messages import UPDATE_VOTER, MessageError, features_to_wire, parse
from runtime.quorum.peers import Peers
from stele.errors import ApiError
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcError

_log = logging.getLogger(__name__)


class OwnRecord:
    """Reports the address and the levels of this voter to the leader, whenever the record
    differs."""

    def __init__(
        self, config: QuorumConfig, driver: Driver, peers: Peers, changes: QuorumChanges
    ) -> None:
        self._config = config
        self._driver = driver
        self._peers = peers
        self._changes = changes
        self._true = Voter(
            ReplicaKey(config.node_id, config.directory_id), config.own_endpoint, config.features
        )
        self._news = asyncio.Event()

    def voters_changed(self) -> None:
        """There are other voters, or another leader."""
        self._news.set()

    async def keep_true(self) -> None:
        """Look at once, after every change, and again as long as the record is not true."""
        while True:
            self._news.clear()
            await self._correct()
            try:
                async with asyncio.timeout(self._config.fetch_timeout_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _correct(self) -> None:
        core, leader_id = self._driver.core, self._driver.leader.leader_id
        recorded = None if core is None else core.voters.get(self._true.id)
        if recorded is None or recorded.key != self._true.key or leader_id is None:
            return
        if recorded == self._true:
            return
        try:
            if leader_id == self._true.id:
                await self._changes.change_voters(UpdateVoter(self._true))
                return
            message = await self._ask(leader_id)
        except (ApiError, RpcError, MessageError) as error:
            message = str(error)
        if message:  # asked again later
            _log.warning("the quorum does not know this voter's address or levels: %s", message)

    async def _ask(self, leader_id: int) -> str:
        """Why the leader does not correct the record; "" when it has. Raises RpcError,
        MessageError."""
        request = pb.UpdateVoterRequest(
            cluster_id=self._config.cluster_id,
            voter_id=self._true.id,
            voter_directory_id=self._true.key.directory_id,
            endpoint=first_address(self._true.endpoint),
            listeners=self._true.endpoint,
            features=features_to_wire(self._true.features),
        )
        data = await self._peers.ask(leader_id, UPDATE_VOTER, request.SerializeToString())
        answer: pb.VoterChangeResponse = parse(pb.VoterChangeResponse, data)
        return answer.message
