"""Feature levels and request ids as an operator uses them: real commands, real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.records import METADATA_VERSION_LEVEL

pytestmark = pytest.mark.processes

STELE = [sys.executable, "-m", "cli.main"]
REQUEST_ID = "00112233445566778899aabbccddeeff"


def stele(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STELE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "STELE_BOOTSTRAP_SERVER": bootstrap},
    )


def level(bootstrap: str) -> int:
    """The finalized metadata.version, once every controller has reported the levels that it
    supports."""
    for _ in range(20):
        features = json.loads(stele(bootstrap, "features", "describe", "--json").stdout)
        assert [each["name"] for each in features] == [
            "group.version",
            "metadata.version",
            "share.version",
            "transaction.version",
        ]
        feature = features[1]
        nodes = [*feature["brokers"], *feature["controllers"]]
        if all(
            (each["min_level"], each["max_level"]) == (1, METADATA_VERSION_LEVEL) for each in nodes
        ):
            break
    assert feature["controllers"]
    assert (feature["min_level"], feature["max_level"]) == (1, METADATA_VERSION_LEVEL)
    return int(feature["level"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["upgrade", "--metadata", str(METADATA_VERSION_LEVEL + 1)],
            f"metadata.version has no level {METADATA_VERSION_LEVEL + 1}: the active controller",
        ),
        (["upgrade", "--metadata", "-1"], "metadata.version has no level -1"),
        (["upgrade", "--feature", "rust.version=2"], "there is no feature 'rust.version'"),
        (["upgrade", "--metadata", "1"], "1 would be a downgrade, not an upgrade"),
        (["downgrade", "--metadata", "0"], "metadata.version cannot be disabled"),
        (["disable", "--feature", "metadata.version"], "metadata.version cannot be disabled"),
        (["disable", "--feature", "rust.version"], "there is no feature 'rust.version'"),
    ],
)
def test_what_cannot_be_changes_nothing(bootstrap: str, arguments: list[str], said: str) -> None:
    refused(bootstrap, arguments, said, code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["upgrade", "--feature", "metadata.version=x"], "the level is a whole number"),
        (["upgrade", "--feature", "metadata.version"], "is not of the form name=value"),
        (["upgrade"], "give --metadata LEVEL, --feature NAME=LEVEL or"),
        (["upgrade", "--metadata", "2", "--request-id", "ff"], "is not 32 hexadecimal digits"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    bootstrap: str, arguments: list[str], said: str
) -> None:
    refused(bootstrap, arguments, said, code=2)


def refused(bootstrap: str, arguments: list[str], said: str, *, code: int) -> None:
    done = stele(bootstrap, "features", *arguments)
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.startswith("stele: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr
    assert level(bootstrap) == METADATA_VERSION_LEVEL


def test_down_and_up_again(bootstrap: str) -> None:
    stele(bootstrap, "topic", "create", "remembered")
    refused = stele(bootstrap, "features", "downgrade", "--metadata", "1")
    assert refused.returncode == 1
    assert "would be forgotten" in refused.stderr
    assert "an unsafe downgrade does it anyway" in refused.stderr
    assert level(bootstrap) == METADATA_VERSION_LEVEL
    unsafe = ("features", "downgrade", "--metadata", "1", "--unsafe")
    dry = stele(bootstrap, *unsafe, "--dry-run")
    assert dry.stdout == f"metadata.version would go from {METADATA_VERSION_LEVEL} to 1\n"
    assert level(bootstrap) == METADATA_VERSION_LEVEL
    assert (
        stele(bootstrap, *unsafe).stdout
        == f"metadata.version went from {METADATA_VERSION_LEVEL} to 1\n"
    )
    assert level(bootstrap) == 1
    again = stele(bootstrap, *unsafe)
    assert again.stdout == "metadata.version is at 1: nothing to change\n"
    # Nothing is remembered now, so nothing would be lost.
    stele(bootstrap, "topic", "create", "forgotten")
    up = stele(bootstrap, "features", "upgrade", "--metadata", str(METADATA_VERSION_LEVEL))
    assert up.stdout == f"metadata.version went from 1 to {METADATA_VERSION_LEVEL}\n"
    assert level(bootstrap) == METADATA_VERSION_LEVEL


def test_a_feature_is_disabled_and_comes_back(bootstrap: str) -> None:
    down = stele(bootstrap, "features", "disable", "--feature", "group.version")
    assert down.stdout == "group.version went from 1 to 0\n"
    dry = stele(bootstrap, "features", "upgrade", "--highest", "--dry-run")
    assert dry.stdout == "group.version would go from 0 to 1\n"
    up = stele(bootstrap, "features", "upgrade", "--feature", "group.version=1")
    assert up.stdout == "group.version went from 0 to 1\n"


def test_all_features_go_as_high_as_all_nodes_support(bootstrap: str) -> None:
    stele(bootstrap, "features", "disable", "--feature", "group.version")
    stele(bootstrap, "features", "downgrade", "--metadata", "1", "--unsafe")
    up = stele(bootstrap, "features", "upgrade", "--highest")
    assert sorted(up.stdout.splitlines()) == [
        "group.version went from 0 to 1",
        f"metadata.version went from 1 to {METADATA_VERSION_LEVEL}",
    ]
    again = stele(bootstrap, "features", "upgrade", "--highest")
    assert again.stdout == "every feature is at the highest level that all nodes support\n"
    assert json.loads(stele(bootstrap, "features", "upgrade", "--highest", "--json").stdout) == []
    both = stele(bootstrap, "features", "upgrade", "--highest", "--metadata", "2")
    assert (both.returncode, "give --highest, or levels" in both.stderr) == (2, True)


def test_a_change_asked_for_twice_is_made_once_and_says_so(bootstrap: str) -> None:
    create = ("topic", "create", "once", "--request-id", REQUEST_ID)
    first = stele(bootstrap, *create, "--json")
    second = stele(bootstrap, *create, "--json")
    created, repeated = json.loads(first.stdout), json.loads(second.stdout)
    assert (created.pop("already_done"), repeated.pop("already_done")) == (False, True)
    assert created == repeated
    assert "when this request came first" in stele(bootstrap, *create).stdout
    other = stele(bootstrap, "topic", "delete", "once", "--request-id", REQUEST_ID)
    assert other.returncode == 1
    assert f"the request id {REQUEST_ID} belongs to another request" in other.stderr
    listed = stele(bootstrap, "topic", "list", "--local", "--json")
    assert "once" in [topic["name"] for topic in json.loads(listed.stdout)]


async def test_an_outcome_that_is_not_known_is_found_out_by_its_id(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, controllers=1, brokers=1)
    await cluster.start()
    try:
        (controller,) = cluster.controller_ids
        create = ("topic", "create", "t", "-p", "1", "-r", "1", "--timeout", "3")
        cluster.kill(controller)
        unsure = await asyncio.to_thread(stele, cluster.bootstrap_servers, *create)
        assert unsure.returncode == 1
        (line,) = [each for each in unsure.stderr.splitlines() if "REQUEST_TIMED_OUT" in each]
        found = re.search(
            r"may or may not have taken effect: repeat the request with the id ([0-9a-f]{32})", line
        )
        assert found, line
        assert line.count("may or may not have taken effect") == 1
        await cluster.restart(controller)
        again = (*create[:-1], "30", "--request-id", found[1])
        done = await asyncio.to_thread(stele, cluster.bootstrap_servers, *again)
        assert done.stdout.startswith("created topic t: 1 partitions"), done
    finally:
        await cluster.stop()
