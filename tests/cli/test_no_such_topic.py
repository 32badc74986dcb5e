"""A topic that a command does not find: it does not exist, or the user may not DESCRIBE it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.client_properties import choose
from cli.connection import no_such_topic


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    choose(None)
    yield
    choose(None)


def test_without_a_login_the_topic_does_not_exist() -> None:
    error = no_such_topic("order", ["orders"], " Create it with: stele topic create order")
    assert str(error) == (
        "there is no topic 'order'. Did you mean 'orders'? Create it with: stele topic create order"
    )


def test_a_user_is_told_that_rules_may_hide_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "ann.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=ann\nsasl.password=secret\n"
    )
    choose(str(file))
    assert str(no_such_topic("orders", [])) == (
        "there is no topic 'orders' that User:ann may DESCRIBE. If there is one, an administrator "
        "can allow it: stele acls add User:ann DESCRIBE topic:orders"
    )
