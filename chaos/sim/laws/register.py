"""Decides whether reads of one register, beside its writes, are linearizable.

The test is exact (Gibbons and Korach, Testing Shared Memories, 1997). If no value is written twice,
each value with its write and its reads is one block of the order. Only the block's zone matters: it
lies between the first end and the last beginning of the block's operations. If the first end comes
before the last beginning, the register held the value throughout the zone. Example: a write of
``a`` ends at 3 and a read of ``a`` begins at 7, so the register held ``a`` from 3 to 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

_ALWAYS = -1
_NEVER = 1 << 62


@dataclass(slots=True)
class _Block:
    """A value's write and its reads. Moments are numbers from a counter, so no two are equal."""

    written_from: int
    is_confirmed: bool = False
    is_refused: bool = False
    is_read: bool = False
    first_end: int = _NEVER
    last_beginning: int = _ALWAYS

    def __post_init__(self) -> None:
        self.last_beginning = max(self.last_beginning, self.written_from)

    @property
    def has_lasted(self) -> bool:
        """Whether the register held it throughout, from ``first_end`` to ``last_beginning``."""
        return self.first_end < self.last_beginning

    def excludes(self, other: _Block) -> bool:
        """Whether the register held this value at a moment at which it must have held the other."""
        if not self.has_lasted:
            return False
        if other.has_lasted:
            return max(self.first_end, other.first_end) < min(
                self.last_beginning, other.last_beginning
            )
        return self.first_end < other.last_beginning and other.first_end < self.last_beginning


def _read(block: _Block, began: int, ended: int) -> _Block:
    """The block with one more read."""
    return replace(
        block,
        is_read=True,
        first_end=min(block.first_end, ended),
        last_beginning=max(block.last_beginning, began),
    )


@dataclass(slots=True)
class Register:
    """A value that anybody changes and reads.

    A write that is neither confirmed nor refused may take effect at any later time, or never. No
    value is written twice.
    """

    initial: str
    _confirmed: str = ""  # the value confirmed last
    _blocks: dict[str, _Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._confirmed = self.initial
        self._blocks[self.initial] = _Block(_ALWAYS, is_confirmed=True, first_end=_ALWAYS)

    def __contains__(self, value: str) -> bool:
        return value in self._blocks

    def write(self, value: str, began: int) -> None:
        assert value not in self._blocks, f"{value} is written twice"
        self._blocks[value] = _Block(began)

    def confirm(self, value: str, ended: int) -> None:
        """The write has taken effect."""
        block = self._blocks[value]
        block.is_confirmed = True
        block.first_end = min(block.first_end, ended)
        self._confirmed = value

    def refuse(self, value: str) -> str | None:
        """The write has no effect and never will. Returns what contradicts that."""
        block = self._blocks[value]
        block.is_refused = True
        return f"{value} was refused, and has been read before" if block.is_read else None

    def read(self, value: str, began: int, ended: int) -> str | None:
        """The fault of a read, by the facts so far. A correct read is remembered."""
        wrong = self.wrong_with(value, began, ended)
        if wrong is None:
            self._blocks[value] = _read(self._blocks[value], began, ended)
        return wrong

    def wrong_with(self, value: str, began: int, ended: int) -> str | None:
        """The same, and nothing is remembered."""
        block = self._blocks.get(value)
        if block is None or ended < block.written_from:
            return f"{value} was read, which nobody had asked for"
        if block.is_refused:
            return f"{value} was read, which had been refused"
        with_it = _read(block, began, ended)
        for name, other in self._blocks.items():
            if name != value and (with_it.excludes(other) or other.excludes(with_it)):
                return f"{value} was read where only {name} can have been"
        return None

    def own_read(self, value: str) -> str | None:
        """What is wrong with a read that need only be as new as the last confirmed write, if only
        one client writes, one change at a time."""
        block = self._blocks.get(value)
        if block is None or block.is_refused:
            return f"{value} was read, which nobody had asked for, or which had been refused"
        if block.is_confirmed and value != self._confirmed:
            return f"{value} was read, and {self._confirmed} was confirmed"
        return None
