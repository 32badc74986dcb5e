"""Seeds whose runs broke a law once, each with the bug.

A change of the source changes the run of a seed, so the bugs also have tests of their own.
"""

import pytest

from chaos.sim.runs.swarm import Plan, run, silent

pytestmark = pytest.mark.apart

SEEDS = [
    # A power loss that left the later of two batches kept a voter from starting.
    Plan(1017, seconds=60),
    # A follower reported to a new leader an end that was not on its disk.
    Plan(15, seconds=20),
    # A leader of the quorum that could not read its log for others stayed leader.
    Plan(54, seconds=20),
    # Batches in flight over an orderly restart counted as out of order.
    Plan(95, seconds=20),
    Plan(110, seconds=20),
    # A corrupt batch was served from a segment that recovery does not check.
    Plan(2006, seconds=20, light=True),
    # Brokers that had just started told a consumer that its topic was gone.
    Plan(4075, seconds=30, light=True),
    # The controller's answer about an ISR reached a replica whose disk had failed meanwhile.
    Plan(7002, seconds=25),
    # A client asked a broker that it had just found to be gone.
    Plan(7035, seconds=25),
    # A replica that had led an epoch without records could not follow a leader of earlier epochs.
    Plan(10061, light=True),
    # Batches for which a full disk had no room counted as records of the log.
    Plan(10299, light=True),
    # A law looked for records on the disk of a deposed leader, which had acknowledged them with
    # acks=1.
    Plan(40037),
    # A law believed a header that the storm had damaged after a clean shutdown.
    Plan(30630, light=True),
    # A producer sent more than five batches after one with a late answer, and repeated that one.
    Plan(40048),
    # A controller went on deciding in the turn in which its metadata log had failed.
    Plan(10393, light=True),
    # A log that had lost its first segment began after it, and led others to do the same.
    Plan(20006, light=True),
    # A corrupt log that had lost its topic id could not be reported, and its replica went on
    # leading.
    Plan(30763, light=True),
    # A change without an answer took effect after the success of a later one.
    Plan(60361, light=True),
    # A bit that flipped after a clean shutdown looked like a torn write after the next crash.
    Plan(103904, light=True),
    # A law read a metadata log that the storm had damaged after its snapshot was made.
    Plan(107975, light=True),
    Plan(105619, light=True),
    # Laws used the metadata of a controller that was cut off, while all that knew newer ones were
    # down.
    Plan(107776, light=True),
    Plan(103396, light=True),
    # A law looked for a member's records on the disk that its broker got later.
    Plan(107419, light=True),
    # A voter was lost while the removal of another was under way: two of three were gone.
    Plan(105676, light=True),
    # The same, by a copy of the request that came after the voter had been added again.
    Plan(404760, light=True),
    # A voter was lost that was needed, because a deposed leader that stood still knew of one more.
    Plan(406781, light=True),
    # Disks stayed slow after the storm, and votes took longer than an election.
    Plan(512177, light=True),
    # A consumer asked for offsets at a broker that had just left the cluster.
    Plan(406593, light=True),
    # Only the offset of a torn write was missing: a broker took that for corruption.
    Plan(408475, light=True),
    # Damage counted as noticeable because of a checkpoint that a power loss then took back.
    Plan(707749, light=True),
    # A producer went back to a leader older than the one that had acknowledged its last batch.
    Plan(721520, light=True),
    # An unclean leader showed consumers records that were not on its disk yet.
    Plan(720821, light=True),
    # A sector was spoiled while the only other replica was on a disk that failed reads.
    Plan(900126, light=True),
    # A topic was gone for a minute. When it came back, a consumer still took it for missing.
    Plan(900043, light=True),
    # A leader was never told a start that reached the disk while its answer was under way.
    Plan(912051, light=True),
    # The only file was lost that knew which records of a log's first segment were deleted.
    Plan(900117, light=True),
    # A lagging broker brought back the former topic of a name: a batch was written twice.
    Plan(930757, seconds=30, light=True),
    # A deletion without an answer was forwarded after the topic had been created again.
    Plan(930558, seconds=30, light=True),
    # Retention went on while a law read a topic back.
    Plan(930873, seconds=30, light=True),
    # A topic was deleted whose log had got no file handle: its directory stayed.
    Plan(955307, seconds=30, light=True),
    # A broker that was starting found no file handles.
    Plan(940178, seconds=30, light=True),
    # A consumer never took a partition over, and a law took it for the owner when it was back.
    Plan(22, seconds=30),
    # A process wrote into the prepared transaction that the next one had kept, and a law minded.
    Plan(1040001, seconds=8, light=True),
]


@pytest.mark.parametrize("plan", SEEDS, ids=lambda plan: str(plan.seed))
def test_a_seed_that_failed_once(plan: Plan) -> None:
    with silent():
        outcome = run(plan)
    assert outcome.ok, outcome.violations
