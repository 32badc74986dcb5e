"""``stele whatif`` for people: what matters, and a sentence at the end."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from cli import main
from cli.options import EXIT_NOT_WELL
from controller.whatif import Consequence, Quorum, WhatIf
from stele.ids import TopicPartition


def consequence(topic: str, number: int, *, loses_writes: bool = False) -> Consequence:
    return Consequence(TopicPartition(topic, number), 103, False, loses_writes, False, 2)


HARMLESS = WhatIf(
    (*(consequence("__consumer_offsets", n) for n in range(50)), consequence("orders", 0)),
    Quorum(3, 3),
    (),
)
HARMFUL = WhatIf(
    (consequence("__consumer_offsets", 0), consequence("__x", 1, loses_writes=True)),
    Quorum(3, 3),
    (),
)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[WhatIf]:
    """The first one is what the next command finds."""
    answers: list[WhatIf] = []
    topics = [SimpleNamespace(name=name) for name in ("__consumer_offsets", "orders")]
    image = SimpleNamespace(sorted_topics=lambda: topics)
    quorum = SimpleNamespace(voters_heard=dict)
    admin = SimpleNamespace(describe_quorum=lambda: quorum)
    monkeypatch.setattr("cli.whatif.connect", lambda *_: nullcontext(admin))
    monkeypatch.setattr("cli.whatif.fetch_history", lambda _: SimpleNamespace(image=image))
    monkeypatch.setattr("controller.whatif.what_if", lambda *_, **__: answers[0])
    return answers


def test_internal_partitions_that_lose_nothing_are_summed_up(
    found: list[WhatIf], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(HARMLESS)
    assert main.run(["whatif", "--kill", "102"]) == 0
    out = capsys.readouterr().out
    assert "orders-0" in out
    assert "__consumer_offsets" not in out
    assert "50 partitions of internal topics lose copies or their leader, nothing more" in out
    assert out.splitlines()[-1] == (
        "Without 102 every partition can be read and written, and the metadata can change."
    )


def test_internal_partitions_that_lose_something_are_shown(
    found: list[WhatIf], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(HARMFUL)
    assert main.run(["whatif", "--kill", "103,102"]) == EXIT_NOT_WELL
    out = capsys.readouterr().out
    assert "__x-1" in out
    assert "1 partitions of internal topics" in out
    assert out.splitlines()[-1] == "Without 102, 103 the cluster loses more than copies."


def test_a_topic_that_is_asked_for_is_shown_whole(
    found: list[WhatIf], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(HARMLESS)
    assert main.run(["whatif", "--kill", "102", "--topic", "__consumer_offsets"]) == 0
    out = capsys.readouterr().out
    assert out.count("__consumer_offsets-") == 50
    assert "Without 102 every partition of __consumer_offsets can be read" in out
