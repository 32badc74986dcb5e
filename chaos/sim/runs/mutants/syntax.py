"""Finds code in a syntax tree and puts other code in its place. Layout does not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

Substitutes = Mapping[ast.AST, ast.AST | list[ast.AST] | None]
"""What takes the place of nodes. Of statements, several or none can take the place of one."""

_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NAMED: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def replaced(tree: ast.Module, substitutes: Substitutes) -> ast.Module:
    """``tree`` with the substitutes in the places of its nodes. Changes ``tree``."""
    _Replacer(substitutes).visit(tree)
    return ast.fix_missing_locations(tree)


def substituted(tree: ast.Module, function: str, old: str, new: str) -> ast.Module:
    """``tree`` with ``new`` in the place of ``old`` in a function (see ``Edit``). Changes ``tree``.

    Raises ValueError if ``old`` does not stand there exactly once.
    """
    found = list[Substitutes]()
    for scope in _scopes(tree, function):
        wanted, substitute = _expression(old), _expression(new)
        if wanted is not None and substitute is not None:
            found += [{node: substitute} for node in _uses(scope, wanted)]
        elif wanted is not None and not new and (operands := list(_operands(scope, wanted))):
            found += operands
        else:
            statements = ast.parse(new).body
            found += [_in_place_of(run, block, statements) for run, block in _runs(scope, old)]
    if len(found) != 1:
        where = function or "the module"
        raise ValueError(f"not once but {len(found)} times in {where}: {old.strip()[:60]!r}")
    return replaced(tree, found[0])


class _Replacer(ast.NodeTransformer):
    def __init__(self, substitutes: Substitutes) -> None:
        self._substitutes = substitutes

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST] | None:
        if node not in self._substitutes:
            return super().generic_visit(node)
        substitute = self._substitutes[node]
        if isinstance(substitute, ast.AST):
            ast.copy_location(substitute, node)
        return substitute


def _scopes(tree: ast.Module, function: str) -> list[_Scope]:
    """Everything of this name: the setter of a property has the name of its getter."""
    found: list[_Scope] = [tree]
    for name in function.split(".") if function else ():
        found = [inner for scope in found for inner in _within(scope) if inner.name == name]
    return found


def _within(node: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The classes and functions in a node, but not those in one another."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _NAMED):
            yield child
        else:
            yield from _within(child)


def _expression(text: str) -> ast.expr | None:
    """None: these are statements."""
    body = ast.parse(text).body
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None


def _uses(scope: _Scope, wanted: ast.expr) -> list[ast.AST]:
    kind, content = type(wanted), ast.dump(wanted)
    return [node for node in ast.walk(scope) if type(node) is kind and ast.dump(node) == content]


def _operands(scope: _Scope, wanted: ast.expr) -> Iterator[Substitutes]:
    """Conditions with this operand, without it."""
    content = ast.dump(wanted)
    for node in ast.walk(scope):
        if isinstance(node, ast.BoolOp):
            for operand in node.values:
                if ast.dump(operand) == content:
                    others = [each for each in node.values if each is not operand]
                    yield {node: others[0] if len(others) == 1 else ast.BoolOp(node.op, others)}


def _runs(scope: _Scope, wanted: str) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """Statements that follow each other as wanted, and all that are in the same block."""
    content = [ast.dump(statement) for statement in ast.parse(wanted).body]
    for node in ast.walk(scope):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                for start in range(len(block) - len(content) + 1):
                    run = block[start : start + len(content)]
                    if [ast.dump(statement) for statement in run] == content:
                        yield run, block


def _in_place_of(
    run: list[ast.stmt], block: list[ast.stmt], statements: list[ast.stmt]
) -> Substitutes:
    if not statements and len(run) == len(block):
        statements = [ast.Pass()]
    return {run[0]: [*statements], **dict.fromkeys(run[1:])}
