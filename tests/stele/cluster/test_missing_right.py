"""A refusal without a text names the user, the right, and the command that gives it."""

from __future__ import annotations

import pytest

from stele.cluster.missing_right import allowing, missing_right, principal_of
from stele.security.client_security import PLAINTEXT, ClientSecurity, SaslCredentials

ANN = ClientSecurity(sasl=SaslCredentials(mechanism="SCRAM-SHA-512", username="ann", password="x"))
TOKEN = ClientSecurity(
    sasl=SaslCredentials(mechanism="SCRAM-SHA-512", username="t1", is_delegation_token=True)
)
BEARER = ClientSecurity(sasl=SaslCredentials(mechanism="OAUTHBEARER"))


def test_the_words_are_those_of_a_broker_and_the_command_mends_it() -> None:
    assert missing_right(ANN, "WRITE", "topic", "orders") == (
        "User:ann may not WRITE the topic orders: allow it "
        "(stele acls add User:ann WRITE topic:orders)"
    )


@pytest.mark.parametrize("security", [PLAINTEXT, TOKEN, BEARER])
def test_a_user_that_only_the_broker_knows_has_no_name(security: ClientSecurity) -> None:
    assert principal_of(security) == ""
    assert allowing(security, "READ", "topic", "t") == "stele acls add PRINCIPAL READ topic:t"
    assert missing_right(security, "READ", "topic", "t").startswith(
        "the client's user may not READ"
    )
