"""Frameworks of Python, from PyPI, in an environment of their own."""

from __future__ import annotations

from typing import Final

from bench.ecosystem.stage import PROGRAMS, Stage, same

_COUNT: Final = 5_000
_MESSAGES: Final = 1_000
_KEYS: Final = 10


def quix_streams(stage: Stage) -> str:
    """Quix Streams, exactly-once, with a state store and its changelog topic; run in two parts."""
    stage.make_topics("quix-in", "quix-out")
    stage.write("quix-in", _COUNT, _KEYS)
    program = str(PROGRAMS / "quix_counts.py")
    for part in ("first", "second"):  # the second has no local state: the changelog gives it
        state = str(stage.directory / f"quix-{part}")
        arguments = (program, stage.servers, state, str(_COUNT // 2))
        stage.program(stage.python_command(*arguments))
    counts: dict[bytes, list[int]] = {}
    for record in stage.read("quix-out"):
        counts.setdefault(record.key or b"", []).append(int(record.value or b""))
    expected = {b"k%d" % key: list(range(1, _COUNT // _KEYS + 1)) for key in range(_KEYS)}
    same(counts, expected, "counts by key")
    return f"{_COUNT} records in two runs, each counted once, in order"


def faststream(stage: Stage) -> str:
    """FastStream by confluent-kafka: a subscriber that publishes."""
    stage.make_topics("faststream-in", "faststream-out")
    stage.write("faststream-in", _MESSAGES)
    program = str(PROGRAMS / "faststream_answers.py")
    stage.program(stage.python_command(program, stage.servers, str(_MESSAGES)))
    values = sorted(record.value or b"" for record in stage.read("faststream-out"))
    same(values, sorted(b"handled %d" % number for number in range(_MESSAGES)), "answers")
    return f"{_MESSAGES} messages handled and answered, each once"
