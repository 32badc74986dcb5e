"""Which changes are made of a function, and what they are called."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutation.sites import changed, sites


def results(source: str) -> dict[str, str]:
    """The body of the only function ``f`` after each change of it, by the change's name."""
    text = dedent(source)
    found = {}
    for position, site in enumerate(sites(ast.parse(text))):
        tree = ast.parse(text)
        changed(tree, sites(tree)[position])
        compile(tree, "f.py", "exec")
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        found[site.change] = "\n".join(map(ast.unparse, function.body))
    return found


@pytest.mark.parametrize(
    ("expression", "changes"),
    [
        ("a < b", {"`<` to `<=` in `a < b`": "a <= b"}),
        ("a is b", {"`is` to `is not` in `a is b`": "a is not b"}),
        ("a == b", {"`==` to `!=` in `a == b`": "a != b"}),
        ("a not in b", {"`not in` to `in` in `a not in b`": "a in b"}),
        (
            "0 <= a < b",
            {
                "`<=` to `<` in `0 <= a < b`": "0 < a < b",
                "`<` to `<=` in `0 <= a < b`": "0 <= a <= b",
            },
        ),
        (
            "a and b()",
            {"drop operand `a` of `a and b()`": "b()", "drop operand `b()` of `a and b()`": "a"},
        ),
        (
            "a or b or c",
            {
                "drop operand `a` of `a or b or c`": "b or c",
                "drop operand `b` of `a or b or c`": "a or c",
                "drop operand `c` of `a or b or c`": "a or b",
            },
        ),
        ("max(a, b)", {"`max` to `min` in `max(a, b)`": "min(a, b)"}),
        ("min(a, default=0)", {"`min` to `max` in `min(a, default=0)`": "max(a, default=0)"}),
        ("a + 1", {"drop one of `a + 1`": "a"}),
        ("a - 1", {"drop one of `a - 1`": "a"}),
        ("1 + a", {"drop one of `1 + a`": "a"}),
        ("1 - a", {}),
        ("a + 1.0", {}),
        ("a + True", {}),
    ],
)
def test_an_expression(expression: str, changes: dict[str, str]) -> None:
    expected = {name: f"return {after}" for name, after in changes.items()}
    assert results(f"def f(a, b, c):\n    return {expression}") == expected


def test_a_guard_goes_and_what_else_there_was_stays() -> None:
    source = """
        def f(a, b):
            for _ in a:
                if a:
                    continue
            if b:
                raise ValueError
            elif a:
                b()
    """
    found = results(source)
    assert set(found) == {"drop guard `a`", "drop guard `b`"}
    assert "if a:\n        pass" in found["drop guard `a`"]
    assert "if b:\n    pass\nelif a:\n    b()" in found["drop guard `b`"]


def test_counting_goes() -> None:
    assert results("def f(a):\n    a += 1") == {"drop `a += 1`": "pass"}


def test_what_asserts_what_defaults_and_what_a_class_holds_stay() -> None:
    source = """
        class C:
            limit = 1 + 1

            def f(self, a: int = 1 + 1) -> None:
                assert a < 1
                b: "1 < 2" = a
    """
    assert sites(ast.parse(dedent(source))) == []


def test_the_same_change_at_another_place_has_a_number() -> None:
    found = results("def f(a):\n    return (a < 1) + (a < 1)")
    assert set(found) == {"`<` to `<=` in `a < 1`", "`<` to `<=` in `a < 1` (2)"}


def test_names_do_not_depend_on_the_layout() -> None:
    flat = "class C:\n    def f(self, a):\n        return a < 1 and self.g(a)"
    tall = "class C:\n    def f(self, a):\n        # why\n        return (a < 1\n and self.g( a))"
    one, other = (
        [(site.function, site.change) for site in sites(ast.parse(text))] for text in (flat, tall)
    )
    assert one == other
    assert one[0][0] == ("C", "f")


def test_a_change_knows_its_lines() -> None:
    text = "def f(a):\n    return (\n        a\n        < 1\n    )\n"
    (site,) = sites(ast.parse(text))
    assert site.lines == range(3, 5)
