"""The order of a consumer's commits."""

from __future__ import annotations

import asyncio


class Turn:
    """The place of one commit. It comes when all commits that began earlier are over."""

    def __init__(self, before: asyncio.Future[None] | None) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._before = before

    async def come(self) -> None:
        if self._before is not None:
            await asyncio.shield(self._before)

    def end(self) -> None:
        """Let the next commit come, unless an earlier one is still under way. A second call changes
        nothing."""
        if self._before is None or self._before.done():
            self._finish()
        else:
            self._before.add_done_callback(lambda _: self._finish())

    def _finish(self) -> None:
        self._before = None
        if not self.over.done():
            self.over.set_result(None)


class CommitOrder:
    """A later commit must not be overtaken by an earlier one, which would set the group's offset
    back. A call of the application begins a commit, and the commit's task may run much later. So
    the call takes the turn."""

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    def join(self) -> Turn:
        """Take the next turn. Whoever takes a turn must end it, in any case."""
        turn = Turn(self._last)
        self._last = turn.over
        return turn
