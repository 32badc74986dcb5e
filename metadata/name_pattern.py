"""Regular expressions over names, matched in time that a client cannot make long.

The syntax is RE2's, which Kafka's coordinator uses (KIP-848): no back references, no look-around. A
name matches if all of it does. An expression becomes an automaton whose states are all followed
together, so no name takes more than its length times the size of the expression. Sets of states
that were seen are remembered, so most characters take one look-up.

Not supported, and refused: word boundaries, Unicode classes (``\\pL``), and flags other than ``i``
and ``s`` at the beginning. Names of topics have only ASCII letters, digits and ``._-``.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Final

TOPIC_CHARS: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names. No other one is ever matched in them."""

_PRINTABLE: Final = frozenset(map(chr, range(32, 127)))
_OTHER: Final = "\ufffd"
"""Stands for all characters that neither the expression names nor ``_PRINTABLE`` has."""

EXPRESSION_MAX: Final = 4_000
"""Characters. Reading them all takes some 60 ms at most, in one turn of the event loop."""

STATES_MAX: Final = 500
"""The size of an automaton, after repetitions like ``{3}`` were written out, as often as
1,000 times in RE2."""

_REPEATS_MAX: Final = 1_000
_DEPTH_MAX: Final = 50
_HELD_MAX: Final = 100_000
"""States in all remembered sets together. Beyond that the sets are forgotten."""

WORK_MAX: Final = 3_000_000
"""States that may be followed, for all names together: about a second. Usual expressions need some
thousands, because sets of states are remembered."""

_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset("\t\n\f\r "),
}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": frozenset(string.digits),
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "punct": frozenset(string.punctuation),
    "word": frozenset(string.ascii_letters + string.digits + "_"),
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class PatternError(ValueError):
    """The expression cannot be read, or it is too large. The text says why."""


class NamePattern:
    """A compiled expression."""

    def __init__(self, expression: str, *, of_topics: bool = True) -> None:
        """``of_topics``: it is for names of topics, otherwise for names of any characters. Raises
        PatternError."""
        if len(expression) > EXPRESSION_MAX:
            raise PatternError(f"it has more than {EXPRESSION_MAX} characters")
        self.alphabet: Final = (
            TOPIC_CHARS if of_topics else _PRINTABLE | frozenset(expression) | {_OTHER}
        )
        self._has_others = not of_topics
        self._chars: list[frozenset[str]] = []  # what leads out of each state
        self._next: list[int] = []  # where to
        # Likewise, but only at the start of a name, and only at its end.
        self._skips_at_start: dict[int, int] = {}
        self._skips_at_end: dict[int, int] = {}
        # So far: at most WORK_MAX. If it is used for long, its owner sets this to 0 now and then.
        self.work = 0
        self._skips: list[tuple[int, ...]] = []  # states that are reached without a character
        end = self._state()
        self._end = end
        start = _Parser(expression, self).parse(end)
        self._start = self._closure((start,), at_start=True)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._sets: dict[frozenset[int], frozenset[int]] = {}  # so that equal ones are shared
        self._held = 0

    def matches(self, name: str) -> bool:
        """Whether the expression stands for the whole name. Raises PatternError: it takes too
        long."""
        states = self._start
        self.count(1 + len(name) // 16)  # also if all of it was seen before
        for each in name:
            char = _OTHER if self._has_others and each not in self.alphabet else each
            key = states, char
            found = self._steps.get(key)
            if found is None:
                found = self._steps[key] = self._remembered(self._step(states, char))
            states = found
            if not states:
                return False
        if self._skips_at_end:
            states = self._closure(tuple(states), at_start=not name, at_end=True)
        return self._end in states

    def _remembered(self, states: frozenset[int]) -> frozenset[int]:
        if self._held > _HELD_MAX:
            self._steps.clear()
            self._sets.clear()
            self._held = 0
        self._held += 1 + (0 if states in self._sets else len(states))
        return self._sets.setdefault(states, states)

    def count(self, work: int) -> None:
        """Raises PatternError if there is too much of it."""
        self.work += work
        if self.work > WORK_MAX:
            raise PatternError("it takes too long")

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        return self._closure(
            tuple(self._next[each] for each in states if char in self._chars[each])
        )

    def _closure(
        self, states: tuple[int, ...], *, at_start: bool = False, at_end: bool = False
    ) -> frozenset[int]:
        found = set(states)
        self.count(1)
        waiting = list(found)
        while waiting:
            self.count(1)
            state = waiting.pop()
            skips = self._skips[state]
            if at_start and state in self._skips_at_start:
                skips = (*skips, self._skips_at_start[state])
            if at_end and state in self._skips_at_end:
                skips = (*skips, self._skips_at_end[state])
            for each in skips:
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        return frozenset(found)

    # ------------------------------------------------------------------------- building

    def _state(self, *skips: int) -> int:
        if len(self._next) >= STATES_MAX:
            raise PatternError(f"it needs more than {STATES_MAX} states")
        self._chars.append(frozenset())
        self._next.append(0)
        self._skips.append(skips)
        return len(self._next) - 1

    def one_of(self, chars: frozenset[str], then: int) -> int:
        """A state that one of the characters leads out of."""
        state = self._state()
        self._chars[state], self._next[state] = chars, then
        return state

    def either(self, *states: int) -> int:
        return self._state(*states)

    def anchor(self, then: int, *, at_start: bool) -> int:
        state = self._state()
        (self._skips_at_start if at_start else self._skips_at_end)[state] = then
        return state

    def loop(self, make: Part, then: int) -> int:
        """Any number of times."""
        again = self._state(then)
        self._skips[again] = (make(again), then)
        return again


Part = Callable[[int], int]
"""Builds the states of a part of an expression, given the state behind it. Returns the first."""


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str, pattern: NamePattern) -> None:
        self._text = text
        self._pattern = pattern
        self._alphabet = pattern.alphabet
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self, end: int) -> int:
        self._flags()
        part = self._alternatives()
        if self._position < len(self._text):
            raise PatternError(f"unexpected ) at {self._position}")
        return part(end)

    def _flags(self) -> None:
        for flags in ("(?i)", "(?s)", "(?is)", "(?si)"):
            if self._text.startswith(flags):
                self._position = len(flags)
                self._ignores_case = "i" in flags

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("it ends early")
        self._position += 1
        return char

    def _takes(self, text: str) -> bool:
        if self._text.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _alternatives(self) -> Part:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError(f"more than {_DEPTH_MAX} groups are nested")
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        self._depth -= 1
        if len(branches) == 1:
            return branches[0]
        return lambda then: self._pattern.either(*(each(then) for each in branches))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._one()))

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    # ------------------------------------------------------------------------- repetition

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._takes("?")  # a lazy one matches the same names
        if self._bounds() is not None:
            raise PatternError("a repetition cannot be repeated")
        least, most = bounds

        def build(then: int) -> int:
            if most is None:
                then = self._pattern.loop(part, then)
            else:
                for _ in range(most - least):
                    then = self._pattern.either(part(then), then)
            for _ in range(least):
                self._pattern.count(100)  # a part may have no states
                then = part(then)
            return then

        return build

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._takes("*"):
            return 0, None
        if self._takes("+"):
            return 1, None
        if self._takes("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        inside, brace, _ = self._text[self._position + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not brace or not _is_number(low) or (high and not _is_number(high)):
            return None  # then the brace stands for itself, as in RE2
        self._position += len(inside) + 2
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _REPEATS_MAX or (most is not None and most < least):
            raise PatternError(f"the repetition {{{inside}}}")
        return least, most

    # ------------------------------------------------------------------------- single characters

    def _one(self) -> Part:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._chars(self._class())
            case ".":
                return self._chars(self._alphabet)
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise PatternError(f"{char} has nothing before it to repeat")
            case "^":
                return self._anchor(at_start=True)
            case "$":
                return self._anchor(at_start=False)
        return self._chars(frozenset(char))

    def _chars(self, chars: frozenset[str]) -> Part:
        """One of these."""
        folded = self._folded(chars)
        return lambda then: self._pattern.one_of(folded, then)

    def _folded(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return chars
        return frozenset(both for each in chars for both in (each.lower(), each.upper()))

    def _anchor(self, *, at_start: bool) -> Part:
        return lambda then: self._pattern.anchor(then, at_start=at_start)

    def _group(self) -> Part:
        if self._takes("?"):
            named = self._takes("P<") or (
                self._peek() == "<" and self._text[self._position + 1 :][:1] not in ("=", "!")
            )
            if named:
                self._position = self._text.find(">", self._position) + 1
                if not self._position:
                    raise PatternError("the name of a group is not closed")
            elif not self._takes(":"):
                raise PatternError("groups with flags and look-around are not supported")
        part = self._alternatives()
        if not self._takes(")"):
            raise PatternError("a group is not closed")
        return part

    def _escaped(self) -> Part:
        char = self._take()
        if char in ("A", "z"):
            return self._anchor(at_start=char == "A")
        return self._chars(self._escaped_set(char))

    def _escaped_set(self, char: str) -> frozenset[str]:
        if char.lower() in _CLASSES:
            chars = _CLASSES[char.lower()]
            return chars if char.islower() else self._alphabet - chars
        if char in _CONTROLS:
            return frozenset(_CONTROLS[char])
        if char == "x":
            digits = self._take() + self._take()
            if not set(digits) <= set(string.hexdigits):
                raise PatternError(f"\\x{digits}")
            return frozenset(chr(int(digits, 16)))
        if char.isalnum():
            raise PatternError(f"the escape \\{char} is not supported")
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        is_negated = self._takes("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            found |= self._range()
        self._take()
        chars = self._folded(frozenset(found))
        return self._alphabet - chars if is_negated else chars

    def _range(self) -> frozenset[str]:
        if self._takes("[:"):
            name, end, _ = self._text[self._position :].partition(":]")
            self._position += len(name) + 2
            chars = _POSIX.get(name.removeprefix("^"))
            if not end or chars is None:
                raise PatternError(f"the class [:{name}:]")
            return self._alphabet - chars if name.startswith("^") else chars
        first = self._take()
        chars = self._escaped_set(self._take()) if first == "\\" else frozenset(first)
        behind = self._text[self._position + 1 : self._position + 2]
        if self._peek() != "-" or behind in ("", "]"):
            return chars
        self._take()
        last = self._take()
        ends = self._escaped_set(self._take()) if last == "\\" else frozenset(last)
        if len(chars) != 1 or len(ends) != 1 or min(ends) < min(chars):
            raise PatternError("a character range is backwards")
        return frozenset(each for each in self._alphabet if min(chars) <= each <= min(ends))


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 4 and text.isascii() and text.isdigit()
