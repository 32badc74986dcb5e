"""Seeds whose runs broke a law once, each with the bug.

A change of the source changes the run of a seed, so each bug has a test of its own, too. After many
changes a seed is like any other: only the seeds of the last bugs are here, and their
runs are short.
"""

from dataclasses import replace

import pytest

from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind

pytestmark = pytest.mark.apart

SECONDS = 8.0
SEEDS = [
    # A sector was spoiled while the only other replica was on a disk that failed reads.
    Plan(900126, load=LoadKind.LIGHT),
    # A topic was gone for a minute. When it came back, a consumer still took it for missing.
    Plan(900043, load=LoadKind.LIGHT),
    # A leader never heard of a start that reached the disk while its answer was under way.
    Plan(912051, load=LoadKind.LIGHT),
    # The only file was lost that knew which records of a log's first segment were deleted.
    Plan(900117, load=LoadKind.LIGHT),
    # A lagging broker brought back the former topic of a name: a batch was written twice.
    Plan(930757, load=LoadKind.LIGHT),
    # A deletion without an answer was forwarded after the topic had been created again.
    Plan(930558, load=LoadKind.LIGHT),
    # Retention went on while a law read a topic back.
    Plan(930873, load=LoadKind.LIGHT),
    # A topic was deleted whose log had got no file handle: its directory stayed.
    Plan(955307, load=LoadKind.LIGHT),
    # A broker that was starting found no file handles.
    Plan(940178, load=LoadKind.LIGHT),
    # A consumer never took a partition over, and a law took it for the owner when it was back.
    Plan(22),
    # A process wrote into the prepared transaction that the next one had kept, and a law minded.
    Plan(1040001, load=LoadKind.LIGHT),
]


@pytest.mark.parametrize("plan", SEEDS, ids=lambda plan: str(plan.seed))
def test_a_seed_that_failed_once(plan: Plan) -> None:
    with silent():
        outcome = run(replace(plan, seconds=SECONDS))
    assert outcome.ok, outcome.violations
