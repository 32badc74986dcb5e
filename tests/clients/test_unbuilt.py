"""Unmodified clients that use transactions, which are not built, get an error at once.

No client may spin, hang or wait for its own timeout: the answer must be final for each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
SOON_S = 15.0  # far below any client's own time-out


def test_confluent_kafka_with_transactions(bootstrap: str) -> None:
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(SOON_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert "transactions are not supported" in error.str()


def test_kafka_python_with_transactions(bootstrap: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="t", max_block_ms=SOON_S * 1000
    )
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


async def test_aiokafka_with_transactions(bootstrap: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TransactionalIdAuthorizationFailed

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await producer.start()
    finally:
        await producer.stop()
