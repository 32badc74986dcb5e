"""Client quotas, which are not built, and the answers of a broker to requests for them.

Kafka's tools ask every broker for them. They accept the answer that there are none.
"""

from __future__ import annotations

from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode


def check_quotas_described(context: BrokerContext, caller: Caller) -> None:
    """There are none. Raises ApiError CLUSTER_AUTHORIZATION_FAILED."""
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
    if why is not None:
        raise why


def quota_refusal(context: BrokerContext, caller: Caller) -> ApiError:
    """Why quotas cannot be changed."""
    return refusal(context.authorizer, caller, Operation.ALTER_CONFIGS, CLUSTER) or ApiError(
        ErrorCode.UNSUPPORTED_VERSION, "client quotas are not built: nothing was changed"
    )
