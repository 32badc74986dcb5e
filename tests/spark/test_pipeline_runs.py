"""What pipelines share, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from spark.pipelines import PIPELINES, base, main_of


def progress(**changes: Any) -> dict[str, Any]:
    return {
        "name": "checks",
        "batchId": 3,
        "numInputRows": 12_000,
        "processedRowsPerSecond": 4_000.4,
        "durationMs": {"triggerExecution": 3_000},
        "sources": [
            {
                "endOffset": '{"topics": {"t": {"id": "", "offsets": {"0": 5, "1": 7}}}}',
                "latestOffset": '{"topics": {"t": {"id": "", "offsets": {"0": 9, "1": 7}}}}',
            }
        ],
        "stateOperators": [],
        **changes,
    }


def test_progress_tells_rows_rate_time_and_how_far_behind() -> None:
    line = base.describe(progress())
    assert line.split() == [
        "checks", "batch", "3", "12,000", "rows", "4,000", "rows/s", "3.0", "s", "lag", "4",
    ]  # fmt: skip
    late = base.describe(progress(stateOperators=[{"numRowsDroppedByWatermark": 2}]))
    assert late.endswith("late 2")


@pytest.mark.parametrize("topic", ["t", "topics"])
def test_it_says_how_far_behind_sparks_own_source_is(topic: str) -> None:
    offsets = {"endOffset": {topic: {"0": 5, "1": 7}}, "latestOffset": {topic: {"0": 9, "1": 8}}}
    texts = {name: json.dumps(value) for name, value in offsets.items()}
    assert base.describe(progress(sources=[texts])).endswith("lag 5")


def test_it_does_not_say_how_far_behind_a_source_is_that_does_not_tell() -> None:
    assert base.describe(progress(sources=[{"endOffset": None}])).endswith("lag ?")


def test_tables_have_numbers_on_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    base.show("Title", ("name", "count"), [("a", 1_234), ("long name", 5)])
    assert capsys.readouterr().out.splitlines() == [
        "", "Title", "name       count", "---------  -----", "a          1,234",
        "long name      5",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_every_pipeline_has_a_command_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main_of(name)(["--help"])
    assert ended.value.code == 0
    assert f"stele spark run {name}" in capsys.readouterr().out


def test_settings_follow_the_command_line() -> None:
    arguments = ["--prefix", "x-", "--follow", "--at-least-once", "--checkpoints", "here"]
    found = base.settings(base.parser("orders", "").parse_args(arguments))
    assert (found.topic("orders"), found.follow, found.exactly_once) == ("x-orders", True, False)
    assert found.checkpoints == Path("here")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "writes without transactions"),
        (["--at-least-once", "--command-config", "client.properties"], "no --command-config"),
    ],
)
def test_what_sparks_own_sink_does_not_do_is_refused(
    more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main_of("orders")(["--format", "kafka", *more])
    assert words in capsys.readouterr().err


def test_the_command_knows_its_pipelines() -> None:
    listed = CliRunner().invoke(app, ["spark", "list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in PIPELINES)
