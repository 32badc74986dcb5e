"""Gives the synchronous clients the docstrings of the asyncio ones, so that help() and editors show
both.

A docstring is written once, at the method of ``stele.aio``. This program copies it to the method of
that name in ``stele/sync``, without ``await`` and ``async``. A method in ``OWN_WORDS`` has a
docstring of its own there, because it does something else. The test suite compares.

Usage: python -m deploy.sync_docs
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Client(NamedTuple):
    """A synchronous client and the classes whose docstrings it takes, by file and name."""

    path: str
    name: str
    sources: tuple[tuple[str, str], ...]


CLIENTS: Final = (
    Client(
        "stele/sync/admin.py",
        "Admin",
        (
            ("stele/admin/admin.py", "Admin"),
            ("stele/admin/maintenance.py", "MaintenanceAdmin"),
            ("stele/admin/partitions.py", "PartitionAdmin"),
            ("stele/admin/features.py", "FeatureAdmin"),
            ("stele/admin/transactions.py", "TransactionAdmin"),
            ("stele/admin/share_groups.py", "ShareGroupAdmin"),
            ("stele/admin/share_windows.py", "ShareWindowAdmin"),
        ),
    ),
    Client(
        "stele/sync/access_admin.py",
        "AccessAdmin",
        (
            ("stele/admin/acls.py", "AclAdmin"),
            ("stele/admin/users.py", "UserAdmin"),
            ("stele/admin/client_quotas.py", "QuotaAdmin"),
            ("stele/admin/client_metrics.py", "ClientMetricsAdmin"),
            ("stele/admin/client_connections.py", "ConnectionAdmin"),
            ("stele/admin/delegation_tokens.py", "TokenAdmin"),
        ),
    ),
    Client("stele/sync/consumer.py", "Consumer", (("stele/consumer/consumer.py", "Consumer"),)),
    Client("stele/sync/producer.py", "Producer", (("stele/producer/producer.py", "Producer"),)),
    Client(
        "stele/sync/share_consumer.py",
        "ShareConsumer",
        (("stele/share_consumer/consumer.py", "ShareConsumer"),),
    ),
    Client("stele/sync/topic_view.py", "TopicView", (("stele/topic_view/view.py", "TopicView"),)),
)

OWN_WORDS: Final = frozenset(
    {
        "Consumer.__next__",
        "Consumer.close",
        "Consumer.commit_async",
        "Consumer.poll",
        "Consumer.poll_batches",
        "Consumer.subscribe",
        "Producer.abort",
        "Producer.commit_transaction",
        "Producer.send",
        "Producer.send_all",
        "Producer.send_offsets",
        "ShareConsumer.close",
        "ShareConsumer.poll",
        "TopicView.evict_expired",
    }
)


def synchronous(text: str) -> str:
    """The docstring of an asyncio method, for the synchronous method."""
    return re.sub(r"\b(await|async) ", "", text)


def with_docstrings(client: Client) -> str:
    """The text of the client's file, with the docstrings as they should be."""
    text = (ROOT / client.path).read_text()
    known = dict(_docstrings(client))
    lines = text.splitlines(keepends=True)
    for method in reversed(list(_methods(ast.parse(text), client.name))):
        name = f"{client.name}.{method.name}"
        if name in OWN_WORDS or method.name not in known:
            continue
        first = method.body[0]
        begin = end = first.lineno - 1
        if ast.get_docstring(method) is not None:
            assert first.end_lineno is not None
            end = first.end_lineno
        lines[begin:end] = _literal(synchronous(known[method.name]), " " * first.col_offset)
    return "".join(lines)


def _docstrings(client: Client) -> Iterator[tuple[str, str]]:
    """By method of the asyncio client: its docstring."""
    for path, name in client.sources:
        for method in _methods(ast.parse((ROOT / path).read_text()), name):
            text = ast.get_docstring(method)
            if text is not None:
                yield method.name, text


def _methods(tree: ast.Module, class_name: str) -> Iterator[Definition]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            yield from (each for each in node.body if isinstance(each, Definition))


def _literal(text: str, indent: str) -> list[str]:
    """The lines of a docstring's literal."""
    cleaned = inspect.cleandoc(text).splitlines()
    if len(cleaned) == 1:
        return [f'{indent}"""{cleaned[0]}"""\n']
    middle = [f"{indent}{line}\n" if line else "\n" for line in cleaned[1:]]
    # One paragraph ends with its quotes, as ruff's format leaves it; several end on a line more.
    if "" not in cleaned and len(f"{indent}{cleaned[-1]}") <= 97:
        middle[-1] = middle[-1].rstrip("\n") + '"""\n'
        return [f'{indent}"""{cleaned[0]}\n', *middle]
    return [f'{indent}"""{cleaned[0]}\n', *middle, f'{indent}"""\n']


def main() -> int:
    for client in CLIENTS:
        path = ROOT / client.path
        wanted = with_docstrings(client)
        if path.read_text() != wanted:
            path.write_text(wanted)
            print(f"wrote the docstrings of {client.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
