"""What the APIs of ACLs, quotas, credentials and tokens need, as lines of ``kafka_needs``."""

from __future__ import annotations

from typing import Final

from runtime.authorization.authorizer import Operation
from stele.wire.kafka import ApiKey
from stele.wire.kafka.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
)
from tests.broker.service.asked import ANN, BOB, C31, D64, D65, Asked
from tests.broker.service.ways import (
    ALTER,
    ALTER_CONFIGS,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    both,
    nothing,
    of_cluster,
)

K = ApiKey
OF_SECURITY: Final = (
    Asked(
        K.DESCRIBE_ACLS, 3,
        lambda _: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        of_cluster(DESCRIBE), C31,
    ),
    Asked(
        K.CREATE_ACLS, 3,
        lambda name: create_acls.CreateAclsRequest(
            [create_acls.AclCreation(2, name, 3, "User:a", "*", 3, 3)]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.DELETE_ACLS, 3,
        lambda name: delete_acls.DeleteAclsRequest(
            [delete_acls.DeleteAclsFilter(2, name, 3, None, None, 1, 1)]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.DESCRIBE_CLIENT_QUOTAS, 1,
        lambda _: describe_client_quotas.DescribeClientQuotasRequest(),
        of_cluster(DESCRIBE_CONFIGS), C31,
    ),
    Asked(
        K.ALTER_CLIENT_QUOTAS, 1,
        lambda _: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.EntryData(
                    [alter_client_quotas.EntityData("client-id", "c")],
                    [alter_client_quotas.OpData("producer_byte_rate", 1.0)],
                )
            ]
        ),
        of_cluster(ALTER_CONFIGS), C31,
    ),
    Asked(
        K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0,
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None),
        of_cluster(DESCRIBE), C31,
    ),
    Asked(
        K.ALTER_USER_SCRAM_CREDENTIALS, 0,
        lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion("ann", 1)]
        ),
        of_cluster(ALTER), C31,
    ),
    Asked(
        K.CREATE_DELEGATION_TOKEN, 3,
        lambda _: create_delegation_token.CreateDelegationTokenRequest("User", "ann"),
        nothing, None, "of the caller", ANN,
    ),
    Asked(
        K.CREATE_DELEGATION_TOKEN, 3,
        lambda _: create_delegation_token.CreateDelegationTokenRequest("User", "bob"),
        both((Operation.CREATE_TOKENS, BOB)), D65, "of another user", ANN,
    ),
    Asked(
        K.CREATE_DELEGATION_TOKEN, 3,
        lambda _: create_delegation_token.CreateDelegationTokenRequest(),
        nothing, D64, "without a login",
    ),
    Asked(
        K.RENEW_DELEGATION_TOKEN, 2,
        lambda _: renew_delegation_token.RenewDelegationTokenRequest(),
        nothing, D64, "without a login",
    ),
    Asked(
        K.EXPIRE_DELEGATION_TOKEN, 2,
        lambda _: expire_delegation_token.ExpireDelegationTokenRequest(),
        nothing, D64, "without a login",
    ),
    Asked(
        K.DESCRIBE_DELEGATION_TOKEN, 3,
        lambda _: describe_delegation_token.DescribeDelegationTokenRequest(),
        nothing, None, "", ANN,
    ),
    Asked(
        K.DESCRIBE_DELEGATION_TOKEN, 3,
        lambda _: describe_delegation_token.DescribeDelegationTokenRequest(),
        nothing, D64, "without a login",
    ),
)  # fmt: skip
