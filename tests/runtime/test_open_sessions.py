"""Sessions that end with what their login rests on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from metadata.delegation_tokens import DelegationToken, DelegationTokens
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.scram_credentials import ScramUser, secret_record
from runtime.logins.sessions import OpenSessions
from security.sasl.dialogue import Basis, HeldToken
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, ScramMechanism
from storage.turns import SLICE_STEPS
from tests.support.scram import SALT
from tests.support.timing import LoopClock
from tests.support.tokens import token
from tests.support.worlds import virtual

BOB, BOB_512 = (ScramUser("bob", each.number) for each in (SCRAM_SHA_256, SCRAM_SHA_512))
ANN = ScramUser("ann", SCRAM_SHA_256.number)
HELD = HeldToken("id")


class Credentials:
    def __init__(self) -> None:
        self.is_loaded = True
        self.users = {BOB, BOB_512, ANN}

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        if ScramUser(user, mechanism.number) not in self.users:
            return None
        return ScramCredential(SALT, bytes(32), bytes(32), 4096)

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        raise AssertionError("nobody logs in")


class Tokens:
    def __init__(self) -> None:
        self.is_loaded = True
        self.clock = LoopClock()
        self.by_id: dict[str, DelegationToken] = {}

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms()

    def hmac_of(self, token_id: str) -> bytes:
        raise AssertionError("nobody logs in")

    def find(self, token_id: str) -> DelegationToken | None:
        return self.by_id.get(token_id)

    def expires_in(self, left_ms: int) -> None:
        self.by_id["id"] = token("id", expiry_ms=self.now_ms + left_ms)


class Served:
    """A session."""

    def __init__(self) -> None:
        self._whys: list[str] = []

    def revoke(self, why: str) -> None:
        self._whys.append(why)
        assert len(self._whys) == 1, "it is revoked once"

    def why(self) -> str | None:
        """Why it was ended; None: it is served."""
        return self._whys[0] if self._whys else None


class World:
    def __init__(self) -> None:
        self.credentials, self.tokens = Credentials(), Tokens()
        self.open = OpenSessions(self.credentials, self.tokens)
        self._changes = 0

    def session(self, basis: Basis | None) -> Served:
        session = Served()
        assert self.open.why_gone(basis) is None
        self.open.add(session, basis)
        return session

    def changed(self) -> Iterator[None]:
        """The steps of an image whose credentials have changed."""
        self._changes += 1
        delta = MetadataDelta(EMPTY)
        delta.replay(0, secret_record(bytes([self._changes])))
        steps = self.open.apply(delta, delta.apply())
        assert steps is not None
        return steps

    def change(self) -> None:
        for _ in self.changed():
            pass


@virtual
async def test_a_removed_credential_ends_the_sessions_of_this_user_and_mechanism() -> None:
    world = World()
    bobs = [world.session(BOB) for _ in range(2)]
    others = [world.session(each) for each in (BOB_512, ANN, None)]
    world.change()
    assert {each.why() for each in (*bobs, *others)} == {None}
    world.credentials.users.remove(BOB)
    world.change()
    said = "the SCRAM-SHA-256 credential of user 'bob' was removed"
    assert [each.why() for each in bobs] == [said, said]
    assert {each.why() for each in others} == {None}
    assert world.open.why_gone(BOB) == said
    assert len(world.open) == 2, "nothing in the metadata ends the session of a listed user"


@virtual
async def test_a_session_that_is_over_is_not_ended_again() -> None:
    world = World()
    gone, stays = world.session(BOB), world.session(BOB)
    world.open.remove(gone, BOB)
    world.open.remove(gone, BOB)
    world.credentials.users.clear()
    world.change()
    world.change()
    assert (gone.why(), stays.why() is not None, len(world.open)) == (None, True, 0)


@virtual
async def test_nothing_ends_by_metadata_that_are_not_known() -> None:
    world = World()
    session, held = world.session(BOB), world.session(ANN)
    world.credentials.users.clear()
    world.credentials.is_loaded = world.tokens.is_loaded = False
    world.change()
    assert (session.why(), held.why(), world.open.why_gone(HELD)) == (None, None, None)
    assert OpenSessions(world.credentials).why_gone(HELD) is None, "there are no tokens"


@virtual
async def test_a_removed_token_ends_its_sessions() -> None:
    world = World()
    world.tokens.expires_in(10_000)
    session = world.session(HELD)
    del world.tokens.by_id["id"]
    world.change()
    assert session.why() == "the delegation token 'id' was removed"
    await asyncio.sleep(100)  # its timer is gone, too


@virtual
async def test_a_token_that_expires_ends_its_sessions_at_once() -> None:
    world = World()
    world.tokens.expires_in(5_000)
    session = world.session(HELD)
    await asyncio.sleep(4.9)
    assert session.why() is None
    await asyncio.sleep(0.2)
    assert session.why() == "the delegation token 'id' of User:ann has expired"
    assert len(world.open) == 0


@pytest.mark.parametrize(("left_ms", "ends_after_s"), [(200_000, 200), (1_000, 1)])
@virtual
async def test_a_token_whose_expiry_changes_ends_its_sessions_then(
    left_ms: int, ends_after_s: float
) -> None:
    world = World()
    world.tokens.expires_in(100_000)
    session = world.session(HELD)
    world.tokens.expires_in(left_ms)
    world.change()
    await asyncio.sleep(ends_after_s - 0.1)
    assert session.why() is None
    await asyncio.sleep(0.2)
    assert session.why() is not None


@virtual
async def test_a_renewed_token_holds_though_the_metadata_come_late() -> None:
    """The timer asks the newest metadata, and not only those of the login."""
    world = World()
    world.tokens.expires_in(5_000)
    session = world.session(HELD)
    world.tokens.expires_in(50_000)
    await asyncio.sleep(10)
    assert session.why() is None
    await asyncio.sleep(41)
    assert session.why() is not None


@virtual
async def test_many_sessions_end_in_many_turns() -> None:
    world = World()
    sessions = [world.session(BOB) for _ in range(3 * SLICE_STEPS)]
    world.credentials.users.clear()
    steps = world.changed()
    ended = [sum(each.why() is not None for each in sessions) for _ in steps]
    assert ended == [SLICE_STEPS, 2 * SLICE_STEPS, 3 * SLICE_STEPS]
    world.tokens.expires_in(1_000)
    held = [world.session(HELD) for _ in range(2 * SLICE_STEPS)]
    await asyncio.sleep(1.1)
    assert all(each.why() is not None for each in held)


@virtual
async def test_other_changes_look_at_no_session() -> None:
    world = World()
    world.session(BOB)
    delta = MetadataDelta(EMPTY)
    delta.advance_to(3)
    assert world.open.apply(delta, delta.apply()) is None
    after = MetadataImage(delegation_tokens=DelegationTokens({"id": token("id")}))
    assert world.open.apply(MetadataDelta(EMPTY), after) is not None
