"""Reads a broker's replica of the metadata log, which explains why something is as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stele.admin.grpc_calls import Message
from stele.wire.v1 import admin_pb2 as pb

Ask = Callable[[str, Message, Callable[[bytes], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One committed batch. ``records``: values of ``stele.v1.MetadataRecord``."""

    base_offset: int
    epoch: int  # of the controller that decided
    timestamp_ms: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LoggedSnapshot:
    """The records of a snapshot: the image of everything below ``end_offset``."""

    end_offset: int
    timestamp_ms: int  # of the last decision in it
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """What a broker's replica of the metadata log contains: a snapshot of the past, and the
    decisions since.
    """

    snapshot: LoggedSnapshot | None  # None: the decisions begin with the first one ever
    decisions: tuple[LoggedDecision, ...]


async def read_metadata_log(ask: Ask) -> MetadataLog:
    """Everything that is still known, up to what is committed now."""
    snapshot: LoggedSnapshot | None = None
    decisions: list[LoggedDecision] = []
    offset = 0
    while True:
        answer: pb.ReadMetadataLogResponse = await ask(
            "ReadMetadataLog",
            pb.ReadMetadataLogRequest(offset=offset),
            pb.ReadMetadataLogResponse.FromString,
        )
        if answer.HasField("snapshot"):
            told = answer.snapshot
            snapshot = LoggedSnapshot(told.end_offset, told.timestamp_ms, tuple(told.records))
            decisions.clear()  # another broker answered, whose log begins later
        decisions += [
            LoggedDecision(each.base_offset, each.epoch, each.timestamp_ms, tuple(each.records))
            for each in answer.decisions
        ]
        # A broker that is a little behind ends it, too: it lacks only decisions of this moment.
        if answer.next_offset <= offset or answer.next_offset >= answer.high_watermark:
            return MetadataLog(snapshot, tuple(decisions))
        offset = answer.next_offset
