"""``python -m tests.fuzz``: changed requests without end."""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from cli.output import note, print_table
from tests.fuzz.brokers import GrpcTarget, KafkaTarget
from tests.fuzz.codec import CodecTarget
from tests.fuzz.contents import BatchTarget, SubscriptionTarget
from tests.fuzz.live import LiveTarget
from tests.fuzz.live_grpc import LiveGrpcTarget

_TOLD_EVERY_S: Final = 60.0
_TURN_S: Final = 5.0
"""Targets take turns of this length."""


class Target(Protocol):
    name: str

    def draw(self, rng: random.Random) -> Any: ...

    def check(self, data: Any) -> str:
        """What came of it. Raises anything for a defect."""
        ...


TARGETS: Final[dict[str, Callable[[random.Random], Target]]] = {
    each.name: each
    for each in (
        CodecTarget,
        KafkaTarget,
        GrpcTarget,
        BatchTarget,
        SubscriptionTarget,
        LiveTarget,
        LiveGrpcTarget,
    )
}


def main() -> int:
    options = _options()
    if options.again is not None:
        name, data = pickle.loads(options.again.read_bytes())
        print(TARGETS[name](random.Random(options.seed)).check(data))
        return 0
    rng = random.Random(options.seed)
    targets = [make(rng) for name, make in TARGETS.items() if name in (options.target or TARGETS)]
    outcomes: Counter[tuple[str, str]] = Counter()
    defects = 0
    began = told = time.monotonic()
    while time.monotonic() - began < options.seconds:
        for target in targets:
            defects += _turn(target, rng, outcomes, options.directory)
        if time.monotonic() - told > _TOLD_EVERY_S:
            told = time.monotonic()
            note(f"{told - began:.0f} s: {outcomes.total()} inputs, {defects} defects")
    rows = [(name, what, str(count)) for (name, what), count in sorted(outcomes.items())]
    print_table(("target", "outcome", "inputs"), rows)
    print(f"{outcomes.total()} inputs, {defects} defects, {time.process_time():.0f} s of CPU")
    return 1 if defects else 0


def _turn(
    target: Target, rng: random.Random, outcomes: Counter[tuple[str, str]], directory: Path
) -> int:
    """Returns how many inputs showed a defect. Each is kept in a file."""
    defects = 0
    end = time.monotonic() + _TURN_S
    while time.monotonic() < end:
        data = target.draw(rng)
        kept = pickle.dumps((target.name, data))
        try:
            outcomes[target.name, target.check(data)] += 1
        except Exception:
            outcomes[target.name, "defect"] += 1
            defects += 1
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{target.name}-{outcomes[target.name, 'defect']}.pickle"
            path.write_bytes(kept)
            note(f"{path}:\n{traceback.format_exc()}")
    return defects


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/fuzz", description="Send changed requests to decoders and handlers."
    )
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="Only this one.")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long.")
    parser.add_argument("--seed", type=int, default=0, help="Of all that is drawn.")
    parser.add_argument(
        "--directory", type=Path, default=Path(".fuzz"), help="Where inputs with a defect are kept."
    )
    parser.add_argument("--again", type=Path, metavar="FILE", help="Check a kept input once more.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
