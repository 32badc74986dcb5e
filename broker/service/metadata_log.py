"""The history of the metadata, from this broker's own replica of the log."""

from __future__ import annotations

from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from runtime.quorum.log import HistoryPiece
from stele.errors import ApiError, ErrorCode, SteleError


async def read_metadata_log(context: BrokerContext, caller: Caller, offset: int) -> HistoryPiece:
    """A part of the log. A caller that may read it sees the names of all topics, and all
    settings.

    Raises ApiError: the caller may not DESCRIBE_CONFIGS of the cluster, the log cannot be read.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
    if why is not None:
        raise why
    if offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the offset {offset} is negative")
    try:
        return await context.metadata_log.read_history(offset)
    except ApiError:
        raise
    except SteleError as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
