"""What ``help()`` shows of the clients: every public name says what it means."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator

import pytest

import stele
from deploy.sync_docs import CLIENTS, OWN_WORDS, ROOT, Client, synchronous, with_docstrings
from stele import aio, column_decoder, column_encoder, errors, records, sync
from stele.admin import (
    descriptions,
    features,
    group_lag,
    groups,
    log_dirs,
    metadata_log,
    partitions,
    quorum,
    transactions,
)
from stele.config import ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from stele.consumer.polled import ConsumerRecords

MODULES = (records, errors, column_decoder, column_encoder)
VALUE_MODULES = (
    descriptions, features, group_lag, groups, log_dirs, metadata_log, partitions, quorum,
    transactions,
)  # fmt: skip
OTHERS = (ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig, ConsumerRecords)
BASE = "stele.sync.face"
"""Its class is no client: each client has its own ``__init__``."""
ALSO_PUBLIC = ("__init__", "__next__")


def is_value(value: object) -> bool:
    """Whether it is a class whose objects are data and no more."""
    is_tuple = isinstance(value, type) and issubclass(value, tuple)
    return is_tuple or (isinstance(value, type) and dataclasses.is_dataclass(value))


def public_names() -> Iterator[tuple[str, object]]:
    """The classes and functions that a user imports, and the methods of these classes."""
    found: dict[str, object] = {name: getattr(stele, name) for name in stele.__all__}
    for module in (aio, sync):
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    for module in MODULES:
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, type | types.FunctionType):
                continue
            if value.__module__ == module.__name__:
                found[f"{module.__name__}.{name}"] = value
    for module in VALUE_MODULES:  # the parts of Admin in them are no names of a user's
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") == module.__name__ and is_value(value):
                found[f"{module.__name__}.{name}"] = value
    found |= {each.__name__: each for each in OTHERS}
    for name, value in found.items():
        yield name, value
        if isinstance(value, type) and not issubclass(value, Exception):
            yield from ((f"{name}.{each}", member) for each, member in members_of(value))


def members_of(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties of the class that are ours, also inherited ones."""
    seen = set[str]()
    for base in owner.__mro__:
        if not base.__module__.startswith("stele"):
            continue
        for name, member in vars(base).items():
            if name == "__init__" and (dataclasses.is_dataclass(base) or base.__module__ == BASE):
                continue
            if name in seen or (name.startswith("_") and name not in ALSO_PUBLIC):
                continue
            seen.add(name)
            if isinstance(member, types.FunctionType | property | classmethod | staticmethod):
                yield name, member


def has_docstring(value: object) -> bool:
    return bool(inspect.cleandoc(value.__doc__ or "")) if hasattr(value, "__doc__") else False


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, value in public_names() if not has_docstring(value)] == []


def test_names_without_a_docstring_are_found() -> None:
    class Undescribed:
        def method(self) -> None: ...

    assert not has_docstring(Undescribed)
    assert not has_docstring(Undescribed.method)
    names = {name for name, _ in public_names()}
    assert {
        "Producer.send",
        "stele.aio.Admin.list_transactions",
        "stele.sync.Admin.create_topics",
        "stele.sync.Delivery.result",
        "stele.errors.ApiError",
        "Consumer.__next__",
    } <= names


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.name)
def test_synchronous_methods_have_the_docstrings_of_the_asyncio_ones(client: Client) -> None:
    is_up_to_date = with_docstrings(client) == (ROOT / client.path).read_text()
    assert is_up_to_date, "run: python -m deploy.sync_docs"


def test_own_words_are_of_methods_that_exist() -> None:
    for name in OWN_WORDS:
        owner, _, method = name.partition(".")
        assert method in vars(getattr(sync, owner))


def test_a_synchronous_docstring_waits_for_nothing() -> None:
    assert synchronous(">>> async with a() as b:\n...     await b.c()") == (
        ">>> with a() as b:\n...     b.c()"
    )


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer", "ShareConsumer", "TopicView"])
def test_a_synchronous_client_explains_itself(name: str) -> None:
    """Its page needs no other one, and shows no asyncio."""
    client = getattr(sync, name)
    pages = [client.__doc__, *(member.__doc__ for _, member in members_of(client))]
    for page in pages:
        assert "stele.aio" not in page
        assert "await " not in page
