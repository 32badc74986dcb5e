"""The registry of drills: names, expectations and controls fit together."""

from __future__ import annotations

import pytest

from chaos.drills.drill import Drill
from chaos.drills.registry import DRILLS, by_name
from chaos.drills.run import varied
from metadata.config_keys import TOPIC_KEYS
from runtime.config.node import check_key


def test_names_are_names_of_one_drill() -> None:
    assert len(by_name()) == len(DRILLS)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_settings_are_known(drill: Drill) -> None:
    for key in drill.settings:
        check_key(key)
    for configs in (drill.topic_configs, drill.control and drill.control.topic_configs):
        assert set(configs or ()) <= set(TOPIC_KEYS)


@pytest.mark.parametrize(
    "drill", [each for each in DRILLS if each.control], ids=lambda drill: drill.name
)
def test_a_control_changes_something(drill: Drill) -> None:
    changed = varied(drill, drill.control)
    assert changed != drill
    assert changed.expectations == drill.expectations
