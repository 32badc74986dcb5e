"""Dialogues of logins that wait for their client's next call.

Their number and their time are bounded. When there are too many, the address that has the most
loses its oldest. So a stranger at one address who begins logins without end breaks off its own
dialogues, and not those of clients at other addresses whose next call is under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from security.sasl.dialogue import Dialogue

MAX_DIALOGUES: Final = 1024
"""The most dialogues under way."""

DEADLINE_S: Final = 30.0
"""How long a dialogue may take."""


@dataclass(slots=True)
class Pending:
    """A dialogue that waits for its client."""

    dialogue: Dialogue
    mechanism: str
    address: str
    """Where it began."""
    began_s: float


class PendingDialogues:
    """The dialogues under way on one listener."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Pending] = {}
        self._of_address: dict[str, dict[bytes, None]] = {}
        """The ids of each address, the oldest first. No address is here without an id."""

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, dialogue_id: bytes, pending: Pending) -> None:
        while len(self._by_id) >= MAX_DIALOGUES:
            most = max(self._of_address.values(), key=len)
            self._remove(next(iter(most)))
        self._by_id[dialogue_id] = pending
        self._of_address.setdefault(pending.address, {})[dialogue_id] = None

    def take(self, dialogue_id: bytes, now_s: float) -> Pending | None:
        """The dialogue, which nobody else can continue then; None if there is none in time."""
        if dialogue_id not in self._by_id:
            return None
        pending = self._remove(dialogue_id)
        return pending if now_s - pending.began_s < DEADLINE_S else None

    def _remove(self, dialogue_id: bytes) -> Pending:
        pending = self._by_id.pop(dialogue_id)
        ids = self._of_address[pending.address]
        del ids[dialogue_id]
        if not ids:
            del self._of_address[pending.address]
        return pending
