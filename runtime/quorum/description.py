"""A leader's description of the quorum's replicas."""

from __future__ import annotations

import logging

from raft.api import NotLeaderError
from raft.core import ReplicaView
from raft.quorum import Voter
from raft.ready import Role
from runtime.config.addresses import first_address
from runtime.quorum.driver import Driver
from runtime.quorum.messages import leader_to_wire
from runtime.quorum.read_index import confirm_leadership
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb

_log = logging.getLogger(__name__)


async def describe(driver: Driver) -> pb.DescribeQuorumResponse:
    """As this replica leads, once a majority confirms that it does; else NOT_LEADER."""
    if driver.core is not None and driver.core.role is Role.LEADER:
        try:
            await confirm_leadership(driver, driver.core.epoch)
        except NotLeaderError:
            _log.info("asked to describe the quorum while leadership went to another")
    (leader_id, epoch), core, now = driver.leader, driver.core, driver.now()
    response = pb.DescribeQuorumResponse(
        leader_id=leader_to_wire(leader_id),
        epoch=epoch,
        high_watermark=-1 if core is None else core.high_watermark,
    )
    if core is None or core.role is not Role.LEADER:
        response.error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return response
    now_ms = driver.clock.time_ms()
    for view in core.describe(now):
        states = response.voters if view.is_voter else response.observers
        voter = core.voters.get(view.key.id) if view.is_voter else None
        states.append(_replica_state(view, voter, now, now_ms))
    return response


def _replica_state(
    view: ReplicaView, voter: Voter | None, now: float, now_ms: int
) -> pb.ReplicaState:
    """``voter``: as the record has it, which knows more of one that has not been heard."""

    def wall_ms(moment: float | None) -> int:
        return -1 if moment is None else now_ms - round((now - moment) * 1000)

    return pb.ReplicaState(
        replica_id=view.key.id,
        directory_id=view.key.directory_id if voter is None else voter.key.directory_id,
        endpoint="" if voter is None else first_address(voter.endpoint),
        listeners="" if voter is None else voter.endpoint,
        log_end_offset=view.end_offset,
        last_fetch_time_ms=wall_ms(view.last_fetch_at),
        last_caught_up_time_ms=wall_ms(view.caught_up_at),
    )
