"""The history of the metadata, from this broker's own replica of the log."""

from __future__ import annotations

from dataclasses import replace

from broker.service.context import BrokerContext
from metadata.secrets import without_secrets
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from runtime.quorum.log import HistoryPiece
from stele.errors import ApiError, ErrorCode, SteleError
from storage.turns import in_slices


async def read_metadata_log(context: BrokerContext, caller: Caller, offset: int) -> HistoryPiece:
    """A part of the log. A caller that may read it sees the names of all topics and users, all
    settings and all ACLs, but no password and no key.

    Raises ApiError: the caller may not DESCRIBE or not DESCRIBE_CONFIGS of the cluster, the log
    cannot be read.
    """
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.DESCRIBE):
        why = refusal(context.authorizer, caller, operation, CLUSTER)
        if why is not None:
            raise why
    if offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the offset {offset} is negative")
    try:
        piece = await context.metadata_log.read_history(offset)
    except ApiError:
        raise
    except SteleError as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    return await _shown(piece)


async def _shown(piece: HistoryPiece) -> HistoryPiece:
    """Without secrets."""
    snapshot = piece.snapshot
    if snapshot is not None:
        records = await in_slices(without_secrets, snapshot.records)
        snapshot = replace(snapshot, records=tuple(records))
    batches = [
        replace(batch, records=tuple(await in_slices(without_secrets, batch.records)))
        for batch in piece.batches
    ]
    return piece._replace(snapshot=snapshot, batches=batches)
