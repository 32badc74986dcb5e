"""Which operations a rule may have, by the type of its resource."""

from __future__ import annotations

import pytest

from metadata.acl import OPERATIONS as OF_CLUSTER
from metadata.acl import Operation, ResourceType
from stele.admin.acls import OPERATIONS, OPERATIONS_OF, RESOURCE_TYPES, Acl
from stele.errors import ConfigError
from tests.support.stele import Stage, on_stage


def test_the_client_knows_what_the_cluster_knows() -> None:
    known = {
        ResourceType(RESOURCE_TYPES[kind]): {Operation(OPERATIONS[name]) for name in names}
        for kind, names in OPERATIONS_OF.items()
    }
    assert known == {kind: set(operations) for kind, operations in OF_CLUSTER.items()}


@pytest.mark.parametrize(
    ("operation", "kind", "said"),
    [
        ("WRITE", "GROUP", "GROUP has no operation WRITE: it has READ, DELETE, DESCRIBE, "),
        ("read", "transactional_id", "TRANSACTIONAL_ID has no operation READ: it has WRITE, "),
        ("READ", "CLUSTER", "CLUSTER has no operation READ: it has CREATE, "),
    ],
)
@on_stage
async def test_an_operation_that_the_type_does_not_have(
    stage: Stage, operation: str, kind: str, said: str
) -> None:
    """It is refused before anybody is asked."""
    async with stage.admin() as admin:
        stage.cluster.alive = dict.fromkeys(stage.cluster.alive, False)
        with pytest.raises(ConfigError, match=said):
            await admin.create_acls([Acl("User:ann", operation, kind, "g")])
        with pytest.raises(ConfigError, match=said):
            await admin.test_access("User:ann", operation, kind, "g")
