"""A program of Quix Streams: counts by key with a state store, exactly once."""

import sys

from quixstreams import Application, State

servers, state_directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
application = Application(
    broker_address=servers,
    consumer_group="quix-counts",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=state_directory,
)


def counted(_value: str, state: State) -> str:
    number = state.get("count", default=0) + 1
    state.set("count", number)
    return str(number)


text = {"key_deserializer": "str", "value_deserializer": "str"}
frame = application.dataframe(application.topic("quix-in", **text))
frame = frame.apply(counted, stateful=True)
frame.to_topic(application.topic("quix-out", key_serializer="str", value_serializer="str"))
application.run(count=count, timeout=120)
