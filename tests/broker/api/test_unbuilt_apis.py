"""Access control without an authorizer, and who may ask for it and for quotas of clients."""

from __future__ import annotations

import pytest

from runtime.authorization.authorizer import CLUSTER, Operation
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    alter_client_quotas,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
)
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual


@pytest.mark.parametrize("version", [1, 2, 3])
@virtual
async def test_there_are_no_acls(version: int) -> None:
    client = Edges().client()
    described = await client.call(
        describe_acls.API, version, describe_acls.DescribeAclsRequest(1, None, 1, None, None)
    )
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name is not set" in (described.error_message or "")
    creations = [create_acls.AclCreation(2, name, 3, "User:a", "*", 3, 3) for name in "ab"]
    created = await client.call(create_acls.API, version, create_acls.CreateAclsRequest(creations))
    filters = [delete_acls.DeleteAclsFilter(2, name, 3, None, None, 1, 1) for name in "ab"]
    deleted = await client.call(delete_acls.API, version, delete_acls.DeleteAclsRequest(filters))
    told = [each.error_code for each in created.results]
    told += [each.error_code for each in deleted.filter_results]
    assert told == [ErrorCode.SECURITY_DISABLED] * 4


@pytest.mark.parametrize(
    "operation",
    [Operation.DESCRIBE, Operation.ALTER, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS],
)
@virtual
async def test_the_authorizer_is_asked_first(operation: Operation) -> None:
    edges = Edges()
    edges.authorizer.denied.add((operation, CLUSTER))
    client = edges.client()
    creation = create_acls.AclCreation()
    entry = alter_client_quotas.EntryData()
    told = {
        Operation.DESCRIBE: (
            await client.call(describe_acls.API, 3, describe_acls.DescribeAclsRequest())
        ).error_code,
        Operation.ALTER: (
            await client.call(create_acls.API, 3, create_acls.CreateAclsRequest([creation]))
        )
        .results[0]
        .error_code,
        Operation.DESCRIBE_CONFIGS: (
            await client.call(
                describe_client_quotas.API,
                1,
                describe_client_quotas.DescribeClientQuotasRequest(),
            )
        ).error_code,
        Operation.ALTER_CONFIGS: (
            await client.call(
                alter_client_quotas.API,
                1,
                alter_client_quotas.AlterClientQuotasRequest([entry]),
            )
        )
        .entries[0]
        .error_code,
    }
    denied = {each for each in told if told[each] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert denied == {operation}
