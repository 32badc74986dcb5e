"""``python -m tests.fuzz``: changed requests without end."""

from __future__ import annotations

import argparse
import pickle
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

from cli.output import note, print_table
from tests.fuzz.cost import TURN_MAX_S, Judge
from tests.fuzz.targets import TARGETS

_NOTE_EVERY_S: Final = 60.0
_TURN_S: Final = 5.0
"""Targets take turns of this length."""


def main() -> int:
    options = _options()
    if options.again is not None:
        name, data = pickle.loads(options.again.read_bytes())
        judge = Judge(TARGETS[name](random.Random(options.seed)), memory_every=1)
        print(judge.check(data))
        _print_costs([judge])
        return 0
    rng = random.Random(options.seed)
    names = options.target or TARGETS
    judges = [Judge(make(rng)) for name, make in TARGETS.items() if name in names]
    outcomes: Counter[tuple[str, str]] = Counter()
    defects = 0
    began = noted = time.monotonic()
    while time.monotonic() - began < options.seconds:
        for judge in judges:
            defects += _turn(judge, rng, outcomes, options.directory)
        if time.monotonic() - noted > _NOTE_EVERY_S:
            noted = time.monotonic()
            note(f"{noted - began:.0f} s: {outcomes.total()} inputs, {defects} defects")
    rows = [(name, what, str(count)) for (name, what), count in sorted(outcomes.items())]
    print_table(("target", "outcome", "inputs"), rows)
    _print_costs(judges)
    print(f"{outcomes.total()} inputs, {defects} defects, {time.process_time():.0f} s of CPU")
    return 1 if defects else 0


def _print_costs(judges: list[Judge]) -> None:
    rows = [
        (
            judge.target.name,
            f"{1000 * judge.longest_turn_s:.1f} ms",
            f"{judge.memory_bytes / 2**20:.1f} MiB",
        )
        for judge in judges
    ]
    print_table(("target", "longest turn", "memory of a request"), rows)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"A turn may take {1000 * TURN_MAX_S:.0f} ms. This process used {peak_mib:.0f} MiB.")


def _turn(
    judge: Judge, rng: random.Random, outcomes: Counter[tuple[str, str]], directory: Path
) -> int:
    """Returns how many inputs showed a defect. Each is kept in a file."""
    defects = 0
    end = time.monotonic() + _TURN_S
    while time.monotonic() < end:
        data = judge.target.draw(rng)
        kept = pickle.dumps((judge.target.name, data))
        try:
            outcomes[judge.target.name, judge.check(data)] += 1
        except Exception:
            outcomes[judge.target.name, "defect"] += 1
            defects += 1
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{judge.target.name}-{outcomes[judge.target.name, 'defect']}.pickle"
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
