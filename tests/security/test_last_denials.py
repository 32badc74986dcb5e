"""The last denial of each client."""

from metadata.acl import Operation, Resource, ResourceType
from security.audit import NAME_MAX
from security.last_denials import REMEMBERED_MAX, LastDenial, LastDenials

TOPIC = Resource(ResourceType.TOPIC, "orders")
GROUP = Resource(ResourceType.GROUP, "readers")


class Bench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.denials = LastDenials()

    def note(
        self, client_id: str, operation: Operation, resource: Resource, *, user: str = "User:ann"
    ) -> None:
        self.denials.note(user, client_id, operation, resource, "10.0.0.9", self.now_s)
        self.now_s += 1


def test_the_last_denial_of_a_client_is_told_with_the_number_of_all() -> None:
    bench = Bench()
    bench.note("app", Operation.READ, TOPIC)
    bench.note("app", Operation.READ, GROUP)
    bench.note("app", Operation.WRITE, TOPIC, user="User:bob")
    assert bench.denials.of("User:ann", "app") == LastDenial(
        2, Operation.READ, GROUP, "10.0.0.9", 1.0
    )
    assert bench.denials.of("User:bob", "app") == LastDenial(
        1, Operation.WRITE, TOPIC, "10.0.0.9", 2.0
    )
    assert bench.denials.of("User:ann", "other") is None


def test_the_client_whose_denial_is_the_oldest_is_forgotten() -> None:
    bench = Bench()
    for number in range(REMEMBERED_MAX):
        bench.note(str(number), Operation.READ, TOPIC)
    bench.note("0", Operation.READ, TOPIC)
    bench.note("new", Operation.READ, TOPIC)
    assert bench.denials.of("User:ann", "1") is None
    first = bench.denials.of("User:ann", "0")
    assert first is not None
    assert first.times == 2
    assert bench.denials.of("User:ann", "2") is not None


def test_long_names_are_cut_off() -> None:
    bench = Bench()
    long = "x" * (NAME_MAX + 1)
    bench.note(long, Operation.READ, TOPIC._replace(name=long))
    told = bench.denials.of("User:ann", long)
    assert told is not None
    assert told.resource.name == long[:NAME_MAX]
