"""How a kernel remembers and tells the errors of writes in the background: Linux's errseq_t."""

from __future__ import annotations


class WriteErrors:
    """The errors of one file, or of one file system."""

    def __init__(self) -> None:
        self.count = 0
        self.is_told = True  # somebody was told of the last one

    def add(self) -> None:
        self.count += 1
        self.is_told = False


class WriteErrorHandle:
    """An open file description. It gets each error since it was opened once, and an earlier one if
    no description has got it."""

    def __init__(self, errors: WriteErrors) -> None:
        self._errors = errors
        self._told = errors.count if errors.is_told else errors.count - 1

    def tell(self) -> bool:
        """Whether there is an error to tell."""
        if self._told == self._errors.count:
            return False
        self._told = self._errors.count
        self._errors.is_told = True
        return True
