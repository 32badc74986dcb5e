"""Whether what was read of one value, while it was changed, is linearizable.

Decided exactly, after Gibbons and Korach (Testing Shared Memories, 1997): if no value is written
twice, each value with its write and its reads is one block of the order, and all that matters of a
block is its zone, from the first end to the last beginning of an operation in it. Where the end is
before the beginning, the value has been there all that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

_ALWAYS = -1
_NEVER = 1 << 62


@dataclass(slots=True)
class _Block:
    """A value's write and its reads. Moments are counted, not timed: no two are the same."""

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
        """For sure, from ``first_end`` to ``last_beginning``."""
        return self.first_end < self.last_beginning

    def excludes(self, other: _Block) -> bool:
        """Whether this value was there for sure at a moment at which the other had to be."""
        if not self.has_lasted:
            return False
        if other.has_lasted:
            return max(self.first_end, other.first_end) < min(
                self.last_beginning, other.last_beginning
            )
        return self.first_end < other.last_beginning and other.first_end < self.last_beginning


@dataclass(slots=True)
class Register:
    """A value that one client changes, one change at a time, and that anybody reads.

    A write that is neither confirmed nor refused may take effect at any later time, or never. No
    value is written twice.
    """

    initial: str
    _confirmed: str = ""  # last
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
        """The write has no effect, and never will have; what is wrong with that."""
        block = self._blocks[value]
        block.is_refused = True
        return f"{value} was refused, and has been read before" if block.is_read else None

    def read(self, value: str, began: int, ended: int) -> str | None:
        """What is wrong with a read, by all that is known by now; one that is right is kept."""
        block = self._blocks.get(value)
        if block is None or ended < block.written_from:
            return f"{value} was read, which nobody had asked for"
        if block.is_refused:
            return f"{value} was read, which had been refused"
        with_it = replace(
            block,
            is_read=True,
            first_end=min(block.first_end, ended),
            last_beginning=max(block.last_beginning, began),
        )
        for name, other in self._blocks.items():
            if name != value and (with_it.excludes(other) or other.excludes(with_it)):
                return f"{value} was read where only {name} can have been"
        self._blocks[value] = with_it
        return None

    def own_read(self, value: str) -> str | None:
        """What is wrong with a read that need only be as new as the last confirmed write."""
        block = self._blocks.get(value)
        if block is None or block.is_refused:
            return f"{value} was read, which nobody had asked for, or which had been refused"
        if block.is_confirmed and value != self._confirmed:
            return f"{value} was read, and {self._confirmed} was confirmed"
        return None
