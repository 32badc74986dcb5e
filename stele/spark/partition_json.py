"""JSON of options about partitions: which ones, and a number for each. Pure.

Nothing is rounded, and nothing is chosen among values that contradict each other: the error names
the option, the topic and the partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from stele.ids import TopicPartition
from stele.spark.option_error import OptionError

_MOST_PARTITION = 2**31 - 1
_MOST_NUMBER = 2**63 - 1
_PARTITION = re.compile("0|[1-9][0-9]*")


def partitions_of(option: str, value: str) -> tuple[TopicPartition, ...]:
    """``{"orders": [0, 1]}``, each once. Raises OptionError."""
    example = f'option "{option}" is JSON such as {{"orders": [0, 1]}}'
    found: list[TopicPartition] = []
    for topic, numbers in _object(option, value, example).items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError(f"{example}, but topic {topic!r} has {json.dumps(numbers)}")
        for number in numbers:
            if type(number) is not int or not 0 <= number <= _MOST_PARTITION:
                raise OptionError(
                    f'option "{option}": topic {topic!r} has no partition {json.dumps(number)}'
                )
            found.append(TopicPartition(topic, number))
    if not found:
        raise OptionError(f"{example}, not {value!r}")
    return tuple(dict.fromkeys(found))


def numbers_of(
    option: str, value: str, example: str, check: Callable[[int], str]
) -> dict[TopicPartition, int]:
    """``{"orders": {"0": 23}}``. ``check`` says what is wrong with a number; empty: nothing. Raises
    OptionError."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(option, value, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{example}, but topic {topic!r} has {json.dumps(partitions)}")
        for partition, number in partitions.items():
            is_number = _PARTITION.fullmatch(partition) is not None
            if not is_number or int(partition) > _MOST_PARTITION:
                raise OptionError(
                    f'option "{option}": topic {topic!r} has no partition {partition!r}'
                )
            name = TopicPartition(topic, int(partition))
            if type(number) is not int or number > _MOST_NUMBER:
                raise OptionError(
                    f'option "{option}": {json.dumps(number)} of {name} is no whole number'
                )
            if wrong := check(number):
                raise OptionError(f'option "{option}": {number} of {name}: {wrong}')
            found[name] = number
    return found


def _object(option: str, value: str, example: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, each in pairs:
            if name in found:
                raise OptionError(f'option "{option}" names {name!r} twice: {value}')
            found[name] = each
        return found

    try:
        parsed = json.loads(value, object_pairs_hook=once)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"{example}, not {value!r}: {error}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"{example}, not {value!r}")
    return parsed
