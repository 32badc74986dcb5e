"""Every API of Kafka's protocol refuses a caller that may do nothing, and serves one that may do
exactly what is needed."""

from __future__ import annotations

import re

import pytest

from broker.api import OF_TELEMETRY, SERVED
from tests.broker.service.asked import DENIALS, Asked
from tests.broker.service.kafka_needs import ASKED, BEFORE_AUTHORIZATION
from tests.support.authorization import edges_with_coordinators, told_errors
from tests.support.authorizer import Need, WithAcls
from tests.support.worlds import virtual

API = {each.api.key: each.api for each in (*SERVED, *OF_TELEMETRY)}
THERE, MISSING = "there", "gone!"


async def answer_to(asked: Asked, name: str, *allowed: Need) -> object:
    authorizer = WithAcls()
    authorizer.only = frozenset(allowed)
    edges = await edges_with_coordinators(authorizer)
    client = edges.client()
    client.protocol.log_in(asked.principal, by_delegation_token=False)
    return await client.call(API[asked.key], asked.version, asked.request(name))


def test_every_served_api_is_entered() -> None:
    assert {each.key for each in ASKED} | BEFORE_AUTHORIZATION == set(API)


CASES = pytest.mark.parametrize(
    "asked", ASKED, ids=lambda each: f"{each.key.name}-{each.what}".rstrip("-")
)


@CASES
@virtual
async def test_a_caller_that_may_do_nothing(asked: Asked) -> None:
    answer = await answer_to(asked, THERE)
    told = set(told_errors(answer))
    assert told == (set() if asked.denied is None else {asked.denied})


@CASES
@virtual
async def test_a_caller_that_may_do_what_is_needed(asked: Asked) -> None:
    """And nothing less: each permission of a way is needed."""
    for way in asked.ways(THERE):
        assert not DENIALS.intersection(told_errors(await answer_to(asked, THERE, *way)))
        for need in way:
            others = [each for each in way if each != need]
            denied = DENIALS.intersection(told_errors(await answer_to(asked, THERE, *others)))
            assert denied, f"{need} is not needed"


@CASES
@virtual
async def test_names_leak_nowhere(asked: Asked) -> None:
    """The answer to a caller that may not know does not depend on whether the topic exists."""
    there, missing = [repr(await answer_to(asked, name)) for name in (THERE, MISSING)]
    assert re.sub(_VARYING, "", there) == re.sub(_VARYING, "", missing)


_VARYING = re.compile(f"{THERE}|{MISSING}|0x[0-9a-f]+|[0-9]{{13}}")
