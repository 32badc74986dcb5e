"""To whom a leader of the quorum without room hands leadership over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raft.api import LeaderAndEpoch, NotLeaderError
from runtime.quorum.room import hand_over
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcCode, RpcError


class _Voters:
    ids = (1, 2, 3, 4)


class _Quorum:
    """Peers with prepared answers, and the transfers that began."""

    def __init__(self, **answers: object) -> None:
        self.answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.transfers: list[int] = []
        self.outcome: Exception | None = None

    async def ask(self, node_id: int, method: str, request: bytes) -> bytes:
        answer = self.answers[node_id]
        if isinstance(answer, Exception):
            raise answer
        fields: dict[str, Any] = {"node_id": node_id, **(answer if answer is not None else {})}  # type: ignore[dict-item]
        return pb.SupportedFeaturesResponse(**fields).SerializeToString()

    async def transfer_leadership(self, to: int) -> None:
        self.transfers.append(to)
        if self.outcome is not None:
            outcome, self.outcome = self.outcome, None
            raise outcome

    def hand_over(self) -> list[int]:
        asyncio.run(hand_over(1, "c", _Voters, self, self))  # type: ignore[arg-type]
        return self.transfers


FULL = {"out_of_room": True}
FOREIGN = {"error": ErrorCode.INCONSISTENT_CLUSTER_ID}
SILENT = RpcError(RpcCode.UNAVAILABLE, "nobody")


@pytest.mark.parametrize(
    ("answers", "transfers"),
    [
        ({"v2": None, "v3": None, "v4": None}, [2]),
        ({"v2": FULL, "v3": None, "v4": None}, [3]),
        ({"v2": SILENT, "v3": FULL, "v4": None}, [4]),
        (
            {"v2": FOREIGN, "v3": {"node_id": 9}, "v4": FULL},
            [],
        ),
        ({"v2": FULL, "v3": FULL, "v4": SILENT}, []),
    ],
)
def test_only_a_voter_with_room_is_tried(answers: dict[str, Any], transfers: list[int]) -> None:
    assert _Quorum(**answers).hand_over() == transfers


def test_the_next_is_tried_when_one_does_not_catch_up() -> None:
    quorum = _Quorum(v2=None, v3=None, v4=None)
    quorum.outcome = ApiError(ErrorCode.REQUEST_TIMED_OUT, "it did not catch up")
    assert quorum.hand_over() == [2, 3]


def test_who_leads_no_more_stops() -> None:
    quorum = _Quorum(v2=None, v3=None, v4=None)
    quorum.outcome = NotLeaderError(LeaderAndEpoch(3, 7))
    assert quorum.hand_over() == [2]
