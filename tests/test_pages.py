"""The pages are true: the names and links in them exist, and they stay short and plain."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from metadata.config_keys import NODE_KEYS, TOPIC_KEYS
from tests.support import permissions_page
from tests.test_structure import ROOMS, ROOT

ROOM_PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for room in (*ROOMS, "native")
    for path in (ROOT / room).rglob("README.md")
)
PAGES: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", *ROOM_PAGES)
"""Pages for developers: they name code."""

USER_PAGES: Final = (
    "README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
)  # fmt: skip
WORD_LIMITS: Final = {"ARCHITECTURE.md": 2000}
ROOM_WORD_LIMIT: Final = 2500
FORBIDDEN: Final = re.compile(r"\b(of which|whom|stirs?|minds?)\b", re.IGNORECASE)
"""Words that hide the noun: the sentence is clearer with it."""

OTHERS_NAMES: Final = {
    # Names of Python and of Kafka, and examples.
    "asyncio.to_thread", "asyncio.wait", "datetime.now", "os.urandom", "uuid.uuid4",
    "bootstrap.servers", "timeout_ms", "x.b", "x_b",
    # The metrics page adds the end.
    "stele_event_loop_long_turns_total",
}  # fmt: skip


def names_in(page: str) -> Iterator[str]:
    """Everything in backquotes that looks like a path or a name, without arguments."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"`([^`]+)`", text):
        name = quoted.partition("(")[0]
        if re.fullmatch(r"[\w./]+", name) and re.search(r"[._/]|^[A-Z]\w*[a-z]", name):
            yield name


def definitions(tree: ast.AST) -> Iterator[str]:
    """Classes, functions, attributes that something is assigned to, and strings such as metrics."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    """By dotted name of each module: the names in it."""
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = set(definitions(ast.parse(path.read_text())))
    return found


def is_defined(name: str, modules: dict[str, set[str]]) -> bool:
    """Whether ``name`` is a module, a name in a module, or a module and names in it.

    The page may leave out outer rooms. Example: ``cluster.view`` for ``stele.cluster.view``.
    """
    parts = name.split(".")
    return any(name in members for members in modules.values()) or any(
        members.issuperset(parts[count:])
        for count in range(len(parts) + 1)
        for known, members in modules.items()
        if f".{known}".endswith("." + ".".join(parts[:count])) or count == 0
    )


def is_file(name: str) -> bool:
    return (ROOT / name).exists() or any(
        path for room in ROOMS for path in (ROOT / room).glob(f"**/{name}")
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_names_in_a_page_exist(page: str, modules: dict[str, set[str]]) -> None:
    known = {*OTHERS_NAMES, *NODE_KEYS, *TOPIC_KEYS}
    missing = [
        name
        for name in names_in(page)
        if name not in known and not is_defined(name, modules) and not is_file(name.lstrip("/"))
    ]
    assert not missing


def test_missing_names_are_found(modules: dict[str, set[str]]) -> None:
    for name in ("storage.log.PartitionLog", "log.PartitionLog", "PartitionLog", "storage.log"):
        assert is_defined(name, modules)
    for name in ("storage.log.PartitionLogs", "storage.logs", "logs.PartitionLog", "NoSuchName"):
        assert not is_defined(name, modules)
    assert is_file("stele/wire/batch.py")
    assert is_file("laws/")
    assert not is_file("stele/wire/batches.py")


def test_the_table_of_floors_agrees_with_import_linter() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| `(\w+)/` \|", page, flags=re.MULTILINE)
    floors: dict[str, set[str]] = {}
    for floor, room in rows:
        floors.setdefault(floor, set()).add(room)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["name"] == "floors")
    assert list(floors.values()) == [set(layer.split(" | ")) for layer in layers]


@pytest.mark.parametrize("page", [*PAGES, *USER_PAGES])
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = [each for each in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in each]
    assert [each for each in targets if not leads_somewhere(page, each)] == []


def test_the_page_of_permissions_agrees_with_the_tables() -> None:
    page = (ROOT / "docs/permissions.md").read_text()
    assert page == permissions_page.page(), "run scripts/permissions-page"


def test_the_tests_that_a_page_names_exist() -> None:
    for page in USER_PAGES:
        for file, name in re.findall(
            r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / page).read_text()
        ):
            assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{page}: {name}"


def leads_somewhere(page: str, target: str) -> bool:
    """Whether the file exists, and the heading in it if the target names one."""
    path, _, heading = target.partition("#")
    file = (ROOT / page).parent / path if path else ROOT / page
    if not heading:
        return file.exists()
    return file.is_file() and heading in headings(file.read_text())


def headings(text: str) -> set[str]:
    """As GitHub makes anchors of them."""
    found = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


def test_links_that_lead_nowhere_are_found() -> None:
    assert leads_somewhere("storage/README.md", "../ARCHITECTURE.md#rooms")
    assert not leads_somewhere("storage/README.md", "ARCHITECTURE.md")
    assert not leads_somewhere("storage/README.md", "../ARCHITECTURE.md#room")


def test_the_page_of_each_room_is_linked() -> None:
    linked = re.findall(r"\]\((\S+/README\.md)\)", (ROOT / "ARCHITECTURE.md").read_text())
    assert sorted(linked) == ROOM_PAGES


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", *ROOM_PAGES])
def test_a_page_is_short(page: str) -> None:
    words = len((ROOT / page).read_text().split())
    assert words <= WORD_LIMITS.get(page, ROOM_WORD_LIMIT)


@pytest.mark.parametrize("page", [*PAGES, *USER_PAGES])
def test_a_page_names_the_noun(page: str) -> None:
    lines = enumerate((ROOT / page).read_text().splitlines(), start=1)
    assert [(number, line) for number, line in lines if FORBIDDEN.search(line)] == []
