"""What a load needs: at least what it writes, and enough brokers when one is down."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import main
from cli.size import Load, size_of

LOADS = st.builds(
    Load,
    mb_per_s=st.floats(0.01, 5_000),
    retention_s=st.floats(1, 10_000_000),
    replication_factor=st.integers(1, 5),
    batch_kib=st.floats(0.1, 1024),
    groups=st.integers(0, 20),
)


@given(LOADS)
def test_what_is_written_fits(load: Load) -> None:
    found = size_of(load)
    assert found.brokers >= load.replication_factor
    written = load.mb_per_s * load.replication_factor
    assert found.brokers * found.disk_write_mb_per_s_per_broker == pytest.approx(written)
    stored_gb = written * load.retention_s / 1000
    assert found.brokers * found.disk_gb_per_broker == pytest.approx(stored_gb / 0.75)


@given(LOADS)
def test_the_brokers_carry_the_load_without_one_of_them(load: Load) -> None:
    found = size_of(load)
    assert found.brokers >= 2 * found.cores
    assert (found.brokers - 1) * 0.7 >= found.cores * (1 - 1e-9) or found.brokers == math.ceil(
        found.cores / 0.7
    )


@given(LOADS)
def test_larger_batches_never_need_more(load: Load) -> None:
    larger = Load(
        load.mb_per_s, load.retention_s, load.replication_factor, load.batch_kib * 2, load.groups
    )
    assert size_of(larger).cores <= size_of(load).cores


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["size", "--mb-per-s", "50", "--retention", "3d", "--batch-kib", "16"]
    assert main.run(command) == 0
    table = capsys.readouterr().out
    assert main.run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["brokers"] == size_of(Load(50, 3 * 86_400, batch_kib=16)).brokers
    assert f"brokers (one core each)                {found['brokers']}\n" in table


def test_a_retention_that_is_no_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["size", "--mb-per-s", "5", "--retention", "3x"]) == 2
    assert "'3x' is no length of time" in capsys.readouterr().err
