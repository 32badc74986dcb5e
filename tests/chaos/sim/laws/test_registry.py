"""The registry of laws: every law is in it, and each has a file of its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

from chaos.sim import laws
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.invariants import Invariants
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.registry import LAWS


def test_every_law_is_in_the_registry_once() -> None:
    for module in pkgutil.iter_modules(laws.__path__):
        importlib.import_module(f"{laws.__name__}.{module.name}")
    assert Counter(LAWS) == Counter(Law.__subclasses__())


def test_each_has_a_name_and_a_file_of_its_own() -> None:
    assert len({law.name for law in LAWS}) == len(LAWS)
    assert len({law.__module__ for law in LAWS}) == len(LAWS)


def test_each_looks_hears_or_is_told() -> None:
    for law in LAWS:
        looks = law.look is not Law.look
        hears = law.hear is not Law.hear
        assert looks or law.cadence is Cadence.TOLD, law.name
        assert hears == bool(law.hears), law.name


def test_before_anything_runs_no_law_has_looked_at_anything() -> None:
    invariants = Invariants(SimCluster(1))
    invariants.check_everything()
    assert list(invariants.looked) == [law.name for law in LAWS]
    assert not any(invariants.looked.values())
    assert not invariants.violations
