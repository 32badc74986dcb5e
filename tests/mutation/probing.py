"""Finds the seeds in which a mutant could be noticed at all, in one run of the true source each.

A run of the simulator follows from the source and the seed. So a mutant that never decides anything
otherwise than the source does in a seed has exactly the run of the source, and no law can tell them
apart. Probes stand at the places of all mutants at once. Each evaluates what the source says, goes
on with that, and notes when the mutant would have said something else. Where that cannot be known
without doing what only the mutant does, the place counts as soon as it is reached.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

from tests.mutation.mutants import ROOT, Mutant
from tests.mutation.sites import Site, sites

_NAME: Final = "_mutation_probes"
_OPERATORS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_KINDS: Final = list(_OPERATORS)
_PURE_CALLS: Final = frozenset(
    {"all", "any", "bool", "int", "isinstance", "len", "max", "min", "set", "sorted", "tuple"}
)
_BOUND_TO_ITS_FRAME: Final = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


class Probes:
    """What the functions with probes call. Counts by the number of the mutant."""

    def __init__(self) -> None:
        self.differed: Counter[int] = Counter()

    def reached(self, numbers: Sequence[int], value: Any) -> Any:
        self.differed.update(numbers)
        return value

    def guard(self, number: int, test: Any) -> bool:
        """A guard is dropped: that matters if it would have left."""
        passes = bool(test)
        if passes:
            self.differed[number] += 1
        return passes

    def compare(
        self, marks: Sequence[tuple[int, int, int]], kinds: Sequence[int], *values: Any
    ) -> Any:
        """``marks``: the mutant, the position of the operator that it changes, and to what."""
        said = _compared(kinds, values)
        for number, position, kind in marks:
            others = [*kinds]
            others[position] = kind
            try:
                if _compared(others, values) == said:
                    continue
            except Exception:
                pass
            self.differed[number] += 1
        return said

    def extremum(self, number: int, is_least: bool, *values: Any, **options: Any) -> Any:
        """``min`` becomes ``max``, or the reverse."""
        if len(values) == 1:
            values = ([*values[0]],)
        one, other = (min, max) if is_least else (max, min)
        said = one(*values, **options)
        if other(*values, **options) != said:
            self.differed[number] += 1
        return said

    def operands(
        self,
        marks: Sequence[tuple[int, int]],
        is_all: bool,
        is_pure: Sequence[bool],
        *operands: Callable[[], Any],
    ) -> Any:
        """``marks``: the mutant, and the position of the operand that it drops."""
        known: list[Any] = []
        for each in operands:
            known.append(each())
            if bool(known[-1]) is not is_all:
                break
        for number, dropped in marks:
            try:
                if not self._differs(known, dropped, is_all, is_pure, operands):
                    continue
            except Exception:  # such as an array's, which is neither true nor false
                pass
            self.differed[number] += 1
        return known[-1]

    def _differs(
        self,
        known: Sequence[Any],
        dropped: int,
        is_all: bool,
        is_pure: Sequence[bool],
        operands: Sequence[Callable[[], Any]],
    ) -> bool:
        if dropped >= len(known):
            return False  # it was not evaluated, and what was decides
        if not is_pure[dropped]:
            return True  # what it does, besides saying something, would not be done
        value: Any = None
        for position, each in enumerate(operands):
            if position == dropped:
                continue
            if position < len(known):
                value = known[position]
            elif not is_pure[position]:
                return True
            else:
                try:
                    value = each()
                except Exception:
                    return True
            if bool(value) is not is_all:
                break
        said = known[-1]
        return bool(value) is not bool(said) or (value is not said and value != said)


def _compared(kinds: Sequence[int], values: Sequence[Any]) -> Any:
    """What a chain of comparisons is. One alone may be an array."""
    said: Any = True
    for kind, left, right in zip(kinds, values, values[1:], strict=False):
        said = _OPERATORS[_KINDS[kind]](left, right)
        if len(kinds) > 1 and not said:
            break
    return said


class Probed(NamedTuple):
    """The code of one module with the probes of some mutants in it."""

    path: str
    code: CodeType
    functions: frozenset[str]  # the outermost functions that have probes, by their names


def probed(mutants: Sequence[Mutant]) -> list[Probed]:
    """The modules of these mutants. Probes go by the mutants' places in the sequence."""
    by_path: dict[str, dict[tuple[tuple[str, ...], str], int]] = defaultdict(dict)
    for number, mutant in enumerate(mutants):
        by_path[mutant.path][mutant.function, mutant.change] = number
    found = []
    for path, numbers in by_path.items():
        tree = ast.parse((ROOT / path).read_text())
        marks = [
            (numbers[site.function, site.change], site)
            for site in sites(tree)
            if (site.function, site.change) in numbers
        ]
        functions = frozenset(
            ".".join(site.function[:end])
            for _, site in marks
            for end in range(1, len(site.function) + 1)
        )
        code = compile(with_probes(tree, marks), str(ROOT / path), "exec", dont_inherit=True)
        found.append(Probed(path, code, functions))
    return found


def names_for(probes: Probes) -> dict[str, Any]:
    """What the probed code needs among its globals."""
    return {_NAME: probes}


def with_probes(tree: ast.Module, marks: Iterable[tuple[int, Site]]) -> ast.Module:
    """``tree`` with a probe at each site. The sites are its own. Changes ``tree``."""
    wanted: dict[ast.AST, list[tuple[int, Site]]] = defaultdict(list)
    for number, site in marks:
        wanted[site.target].append((number, site))
    probing: ast.Module = _Prober(wanted).visit(tree)
    return ast.fix_missing_locations(probing)


class _Prober(ast.NodeTransformer):
    def __init__(self, wanted: dict[ast.AST, list[tuple[int, Site]]]) -> None:
        self._wanted = wanted

    def visit(self, node: ast.AST) -> Any:
        marks = self._wanted.get(node)
        if marks is None:
            return self.generic_visit(node)
        node = self.generic_visit(node)
        made = _probe(node, marks)
        return ast.copy_location(made, node)


def _probe(node: ast.AST, marks: list[tuple[int, Site]]) -> ast.AST:
    numbers = [number for number, _ in marks]
    match node:
        case ast.If(test, body, orelse):
            (number,) = numbers
            return ast.If(_call("guard", ast.Constant(number), test), body, orelse)
        case ast.AugAssign():
            reached = _call("reached", _constant(numbers), ast.Constant(True))
            return ast.If(reached, [node], [])
        case ast.Compare(left, ops, comparators) if _is_eager(comparators[1:]):
            kinds = [_KINDS.index(type(each)) for each in ops]
            changes = [(number, *_changed(ops, site)) for number, site in marks]
            return _call("compare", _constant(changes), _constant(kinds), left, *comparators)
        case ast.BoolOp(op, values) if not _holds(node, _BOUND_TO_ITS_FRAME):
            drops = [(number, _dropped(site)) for number, site in marks]
            pure = [_is_pure(each) for each in values]
            is_all = ast.Constant(isinstance(op, ast.And))
            return _call(
                "operands", _constant(drops), is_all, _constant(pure), *map(_delayed, values)
            )
        case ast.Call(ast.Name(name), args, keywords):
            (number,) = numbers
            call = _call("extremum", ast.Constant(number), ast.Constant(name == "min"), *args)
            call.keywords = keywords
            return call
    assert isinstance(node, ast.expr)
    return _call("reached", _constant(numbers), node)


def _changed(ops: Sequence[ast.cmpop], site: Site) -> tuple[int, int]:
    """Which operator is another one, and which one."""
    assert isinstance(site.substitute, ast.Compare)
    ((position, kind),) = [
        (position, _KINDS.index(type(other)))
        for position, (each, other) in enumerate(zip(ops, site.substitute.ops, strict=True))
        if type(each) is not type(other)
    ]
    return position, kind


def _dropped(site: Site) -> int:
    assert isinstance(site.target, ast.BoolOp)
    assert site.dropped is not None
    return site.dropped


def _is_eager(nodes: Iterable[ast.AST]) -> bool:
    """Whether the later operands of a chain may be evaluated in any case."""
    return all(_is_pure(node) for node in nodes)


def _is_pure(node: ast.AST) -> bool:
    return not _holds(node, _BOUND_TO_ITS_FRAME) and all(
        isinstance(each.func, ast.Name) and each.func.id in _PURE_CALLS
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )


def _holds(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(each, kinds) for each in ast.walk(node))


def _delayed(node: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Lambda(nothing, node)


def _call(name: str, *args: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(_NAME, ast.Load()), name, ast.Load())
    return ast.Call(function, [*args], [])


def _constant(value: object) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body
