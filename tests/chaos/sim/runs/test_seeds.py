"""Seeds whose runs broke a law once, each with what was wrong.

A change of the source makes another run of a seed; the bugs have tests of their own, too.
"""

import pytest

from chaos.sim.runs.swarm import Plan, run, silent

SEEDS = [
    # A power loss that left the later of two batches kept a voter from starting.
    Plan(1017, seconds=60),
    # A follower told a new leader an end that was not on its disk.
    Plan(15, seconds=20),
    # A leader of the quorum that could not read its log for others went on leading.
    Plan(54, seconds=20),
    # Batches in flight over an orderly restart passed for out of order.
    Plan(95, seconds=20),
    Plan(110, seconds=20),
    # A corrupt batch in a segment that recovery does not look at was served.
    Plan(2006, seconds=20, light=True),
    # Brokers that had just started told a consumer that its topic was gone.
    Plan(4075, seconds=30, light=True),
    # The controller's answer about an ISR reached a replica whose disk had failed meanwhile.
    Plan(7002, seconds=25),
    # A client asked a broker that it had just learned to be gone.
    Plan(7035, seconds=25),
    # Who had led an epoch without a record in it could not follow a leader of earlier ones.
    Plan(10061, light=True),
    # Batches that a full disk had no room for passed for records of the log.
    Plan(10299, light=True),
    # What a leader that was none any more acknowledged with acks=1 was looked for on its disk.
    Plan(40037),
    # A law took a header for true that the storm had damaged after a clean shutdown.
    Plan(30630, light=True),
    # A producer sent more than five batches past one whose answer was late, and repeated that.
    Plan(40048),
    # A controller went on deciding in the turn in which its metadata log had failed.
    Plan(10393, light=True),
    # A log whose first segment was lost began behind it, and led others to that.
    Plan(20006, light=True),
    # A corrupt log that had lost its topic id could not be reported, and was left leading.
    Plan(30763, light=True),
    # A change without an answer took effect after the success of one that was asked for later.
    Plan(60361, light=True),
    # A bit flipped after a clean shutdown passed for a torn write after the crash that followed.
    Plan(103904, light=True),
    # A law read a metadata log that the storm had damaged after its snapshot was made.
    Plan(107975, light=True),
    Plan(105619, light=True),
    # Laws went by the metadata of a controller cut off, when all who knew newer ones were down.
    Plan(107776, light=True),
    Plan(103396, light=True),
    # A law looked for what a member had on the disk that its broker got when it was another one.
    Plan(107419, light=True),
    # A voter was lost while the removal of another was under way: two of three were gone.
    Plan(105676, light=True),
    # The same, by a copy of the request that came after the voter had been added again.
    Plan(404760, light=True),
    # A voter was lost that was needed, for a deposed leader that stood still knew of one more.
    Plan(406781, light=True),
    # Disks stayed slow after the storm, and votes took longer than an election.
    Plan(512177, light=True),
    # A consumer asked for offsets where a broker had just left the cluster.
    Plan(406593, light=True),
    # Of a torn write the offset was missing and nothing else: a broker took that for corruption.
    Plan(408475, light=True),
    # Damage passed for sure by a checkpoint that a power loss then took back.
    Plan(707749, light=True),
    # A producer went back to a leader older than the one that had acknowledged its last batch.
    Plan(721520, light=True),
    # An unclean leader showed consumers what it had not on its disk yet.
    Plan(720821, light=True),
    # A sector was spoiled while the only other replica was on a disk that failed reads.
    Plan(900126, light=True),
    # A topic was gone for a minute: when it came back, a consumer still took it for missing.
    Plan(900043, light=True),
    # A start that came to disk while the leader's answer was on its way was never told to it.
    Plan(912051, light=True),
    # The one file was lost that told which records of a log's first segment were deleted.
    Plan(900117, light=True),
    # A broker that lagged brought back the topic that had the name before: a batch came twice.
    Plan(930757, seconds=30, light=True),
    # A deletion that had no answer was passed on when the topic had been made anew.
    Plan(930558, seconds=30, light=True),
    # Retention went on while a law read a topic back.
    Plan(930873, seconds=30, light=True),
    # A topic was deleted for whose log there had been no file handle: its directory stayed.
    Plan(955307, seconds=30, light=True),
    # A broker that was starting found no file handles.
    Plan(940178, seconds=30, light=True),
]


@pytest.mark.parametrize("plan", SEEDS, ids=lambda plan: str(plan.seed))
def test_a_seed_that_failed_once(plan: Plan) -> None:
    with silent():
        outcome = run(plan)
    assert outcome.ok, outcome.violations
