"""The laws of consumer groups: committed offsets, and who owns a partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chaos.sim.laws.committed_offsets import CommittedOffsetsStay, Place
from chaos.sim.laws.generations import Membership, PartitionsHaveOneOwner

PLACE = Place("g", "t", 0)


class Reported(list[str]):
    """A scene that only collects reports."""

    @property
    def scene(self) -> Any:
        return cast(Any, SimpleNamespace(report=self.append))


def offsets() -> tuple[CommittedOffsetsStay, Reported]:
    reported = Reported()
    return CommittedOffsetsStay.of(reported.scene), reported


def committed(law: CommittedOffsetsStay, value: str, place: Place = PLACE) -> None:
    law.commit_asked(place, value).confirmed()


def removed(law: CommittedOffsetsStay) -> None:
    law.removal_asked(PLACE).confirmed()


def fetched(law: CommittedOffsetsStay, value: str | None, place: Place = PLACE) -> None:
    law.fetched(place, value, law.fetch_asked())


# ---------------------------------------------------------------------------- offsets


def test_an_acknowledged_commit_is_seen_and_never_goes_back() -> None:
    law, reported = offsets()
    fetched(law, None)
    committed(law, "1")
    fetched(law, "1")
    committed(law, "2")
    fetched(law, "2")
    assert not reported
    fetched(law, "1")
    assert reported == ["group g, t-0: 1 was read where only 2 can have been"]
    assert law.looked == 4


def test_an_acknowledged_commit_is_not_forgotten() -> None:
    law, reported = offsets()
    committed(law, "1")
    fetched(law, None)
    assert len(reported) == 1


def test_a_commit_of_unknown_outcome_may_take_effect_late_and_once() -> None:
    law, reported = offsets()
    law.commit_asked(PLACE, "late")
    committed(law, "1")
    fetched(law, "1")
    fetched(law, "late")
    assert not reported
    fetched(law, "1")
    assert len(reported) == 1


def test_a_refused_commit_is_never_seen() -> None:
    law, reported = offsets()
    law.commit_asked(PLACE, "1").refused()
    fetched(law, "1")
    assert "refused" in reported[0]
    change = law.commit_asked(PLACE, "2")
    fetched(law, "2")
    change.refused()
    assert "has been read before" in reported[1]


def test_what_was_removed_does_not_come_back() -> None:
    law, reported = offsets()
    committed(law, "1")
    removed(law)
    fetched(law, None)
    assert not reported
    fetched(law, "1")
    assert len(reported) == 1


def test_no_offset_is_the_value_of_whichever_removal_can_have_been() -> None:
    law, reported = offsets()
    committed(law, "1")
    law.removal_asked(PLACE)  # of unknown outcome
    fetched(law, "1")
    fetched(law, None)  # by this one
    committed(law, "2")
    assert not reported
    fetched(law, None)  # and it takes effect only once
    assert len(reported) == 1


def test_places_have_nothing_to_do_with_each_other() -> None:
    law, reported = offsets()
    committed(law, "1")
    other = Place("other", "t", 0)
    fetched(law, None, other)
    committed(law, "1", other)
    fetched(law, "1", other)
    assert not reported


def test_offsets_of_a_topic_that_is_made_anew_may_vanish_but_do_not_go_back() -> None:
    law, reported = offsets()
    law.may_vanish("t")
    committed(law, "1")
    fetched(law, None)
    committed(law, "2")
    fetched(law, "2")
    fetched(law, None)
    assert not reported
    fetched(law, "1")
    assert len(reported) == 1


# ---------------------------------------------------------------------------- owners


def owners() -> tuple[PartitionsHaveOneOwner, Reported]:
    reported = Reported()
    return PartitionsHaveOneOwner.of(reported.scene), reported


def test_a_partition_has_one_owner_in_a_generation() -> None:
    law, reported = owners()
    one, other = Membership("g", 3, "one", None), Membership("g", 3, "other", None)
    law.assigned(one, [("t", 0)], law.asks())
    law.assigned(other, [("t", 1)], law.asks())
    law.assigned(one, [("t", 0)], law.asks())  # the answer came twice
    law.assigned(other._replace(generation=4), [("t", 0)], law.asks())
    law.assigned(other._replace(group_id="h"), [("t", 0)], law.asks())
    assert not reported
    law.assigned(other, [("t", 0)], law.asks())
    assert len(reported) == 1
    assert law.looked == 6


def test_a_new_process_of_a_static_member_owns_what_the_former_owned() -> None:
    law, reported = owners()
    former = Membership("g", 3, "first", "static")
    law.assigned(former, [("t", 0)], law.asks())
    law.assigned(former._replace(member_id="second"), [("t", 0)], law.asks())
    assert not reported
    assert law.is_over(former)
    assert not law.is_over(former._replace(member_id="second"))
    law.assigned(
        former._replace(member_id="second", group_instance_id="else"), [("t", 0)], law.asks()
    )
    assert len(reported) == 1


def test_nobody_acts_in_a_generation_after_another_one_has_begun() -> None:
    law, reported = owners()
    member = Membership("g", 3, "one", None)
    law.assigned(member, [], law.asks())
    assert not law.is_over(member)
    law.accepted(member, "a commit", was_over=False)
    assert law.looked == 0
    law.assigned(member._replace(member_id="other", generation=4), [], law.asks())
    assert law.is_over(member)
    assert not law.is_over(member._replace(group_id="h"))
    law.refused(was_over=True)
    assert not reported
    law.accepted(member, "a commit", was_over=True)
    assert len(reported) == 1
    assert law.looked == 2
