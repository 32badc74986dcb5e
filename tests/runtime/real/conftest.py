"""Fixtures of the tests of the real world."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runtime.real.disk import RealDisk


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk()
    yield disk
    disk.close()


@pytest.fixture
def process_disk() -> Iterator[RealDisk]:
    """A disk whose helper process makes all syncs."""
    disk = RealDisk(syncs_in_kernel=False)
    yield disk
    disk.close()
