"""What the controller decides about each change that administrators make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller import (
    acls,
    client_quotas,
    cluster,
    configs,
    delegation_tokens,
    elections,
    features,
    partition_counts,
    reassignment,
    scram_credentials,
    topics,
)
from controller.machine import Context, ControllerResult
from runtime.administration import changes
from runtime.administration.changes import Change

Decide = Callable[[Context, Any], ControllerResult[Any]]

DECISIONS: Final[Mapping[Change, Decide]] = {
    changes.CREATE_TOPICS: topics.create_topics,
    changes.DELETE_TOPICS: topics.delete_topics,
    changes.CREATE_PARTITIONS: partition_counts.create_partitions,
    changes.UNREGISTER_BROKER: cluster.unregister,
    changes.ALTER_CONFIGS: configs.alter_configs,
    changes.ELECT_LEADERS: elections.elect_leaders,
    changes.ALTER_PARTITION_REASSIGNMENTS: reassignment.alter_partition_reassignments,
    changes.UPDATE_FEATURES: features.update_features,
    changes.CREATE_ACLS: acls.create_acls,
    changes.DELETE_ACLS: acls.delete_acls,
    changes.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter_user_scram_credentials,
    changes.ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
    changes.CREATE_DELEGATION_TOKEN: delegation_tokens.create_delegation_token,
    changes.RENEW_DELEGATION_TOKEN: delegation_tokens.renew_delegation_token,
    changes.EXPIRE_DELEGATION_TOKEN: delegation_tokens.expire_delegation_token,
}
"""Each decision is pure, raises ApiError for a request that is refused as a whole, and has a result
for each item of the request, in its order. A test checks that every change has one."""
