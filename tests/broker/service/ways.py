"""The ways to be allowed a request about a topic, for the lines of ``kafka_needs``."""

from __future__ import annotations

from collections.abc import Callable

from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from tests.broker.service.asked import Way
from tests.support.authorizer import Need

READ, WRITE, DESCRIBE, DELETE = (
    Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE,
)  # fmt: skip
CREATE, ALTER, ACTION = Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def of_topic(*operations: Operation) -> Callable[[str], tuple[Way, ...]]:
    return lambda name: (tuple((each, topic_resource(name)) for each in operations),)


def of_cluster(*operations: Operation) -> Callable[[str], tuple[Way, ...]]:
    """Any of them."""
    return lambda _: tuple(((each, CLUSTER),) for each in operations)


def both(*needs: Need) -> Callable[[str], tuple[Way, ...]]:
    return lambda _: (needs,)


def with_topic(operation: Operation, *needs: Need) -> Callable[[str], tuple[Way, ...]]:
    return lambda name: ((*needs, (operation, topic_resource(name))),)


def nothing(_: str) -> tuple[Way, ...]:
    return ()
