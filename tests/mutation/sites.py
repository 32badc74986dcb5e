"""Where a function can be changed a little, and how.

A change takes away what somebody wrote for a reason: a guard, one operand of a condition, the side
on which a bound lies, the lesser of two, one. What asserts is left alone: it holds in any case.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from chaos.sim.runs.mutants.syntax import replaced

_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_SWAPPED = {"min": "max", "max": "min"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LONGEST_TEXT = 80


@dataclass(frozen=True, slots=True)
class Site:
    """One possible change of a syntax tree."""

    function: tuple[str, ...]  # its name, after the names of the classes and functions around it
    change: str  # in words; unique within the function
    lines: range  # a run that passes none of them does not notice the change
    target: ast.AST
    substitute: ast.AST
    dropped: int | None = None  # the place of an operand


def sites(tree: ast.Module) -> list[Site]:
    """All of a module's functions, in the order of the source."""
    finder = _Finder()
    finder.visit(tree)
    return finder.found


def changed(tree: ast.Module, site: Site) -> ast.Module:
    """``tree`` with the change of ``site``, which is its own, made in place."""
    return replaced(tree, {site.target: site.substitute})


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Site] = []
        self._scope: list[str] = []
        self._functions = 0  # how many of the scope are functions
        self._named: Counter[tuple[tuple[str, ...], str]] = Counter()

    def _add(
        self,
        change: str,
        target: ast.stmt | ast.expr,
        substitute: ast.AST,
        dropped: int | None = None,
    ) -> None:
        if not self._functions:
            return
        function = tuple(self._scope)
        self._named[function, change] += 1
        count = self._named[function, change]
        if count > 1:
            change += f" ({count})"
        seen = target.test if isinstance(target, ast.If) else target
        lines = range(seen.lineno, (seen.end_lineno or seen.lineno) + 1)
        self.found.append(Site(function, change, lines, target, substitute, dropped))

    # ------------------------------------------------------------------------------- scopes

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._enter(node)
        else:
            super().visit(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        is_function = not isinstance(node, ast.ClassDef)
        self._scope.append(node.name)
        self._functions += is_function
        for statement in node.body:  # decorators and defaults are evaluated at the import
            self.visit(statement)
        self._functions -= is_function
        self._scope.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    # ------------------------------------------------------------------------------ changes

    def visit_If(self, node: ast.If) -> None:
        if all(isinstance(statement, _LEAVES) for statement in node.body):
            idle = ast.If(node.test, [ast.Pass()], node.orelse)
            self._add(f"drop guard `{_text(node.test)}`", node, idle)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for position, operand in enumerate(node.values):
            others = [value for value in node.values if value is not operand]
            rest = others[0] if len(others) == 1 else ast.BoolOp(node.op, others)
            change = f"drop operand `{_text(operand)}` of `{_text(node)}`"
            self._add(change, node, rest, position)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for position, operator in enumerate(node.ops):
            ops = [*node.ops]
            ops[position] = _SHIFTED[type(operator)]()
            change = f"`{_SIGNS[type(operator)]}` to `{_SIGNS[type(ops[position])]}`"
            shifted = ast.Compare(node.left, ops, node.comparators)
            self._add(f"{change} in `{_text(node)}`", node, shifted)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _SWAPPED:
            name, other = node.func.id, _SWAPPED[node.func.id]
            swapped = ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)
            self._add(f"`{name}` to `{other}` in `{_text(node)}`", node, swapped)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and _is_one(node.right):
            self._add(f"drop one of `{_text(node)}`", node, node.left)
        elif isinstance(node.op, ast.Add) and _is_one(node.left):
            self._add(f"drop one of `{_text(node)}`", node, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and _is_one(node.value):
            self._add(f"drop `{_text(node)}`", node, ast.Pass())
        self.generic_visit(node)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 1


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
