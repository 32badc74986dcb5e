"""The pages of a whole node, as a person uses them."""

from __future__ import annotations

from stele.aio import Consumer, Producer
from tests.support.console import TOKEN, Browser, console_of
from tests.support.one_node import on_a_node
from tests.support.thin_node import BOOTSTRAP, client_world
from world.world import World

HOSTILE = "<script>alert('1')</script>\u202e\x1b[2J"
SECURE = on_a_node.having(authorizer_class_name="stele", super_users="User:ANONYMOUS")


async def create(console: Browser, name: str = "orders", partitions: int = 2) -> None:
    await console.post(
        "/topics/create", name=name, partitions=str(partitions), replication_factor="1"
    )


async def produce(world: World, *values: bytes | None, topic: str = "orders") -> None:
    async with Producer(BOOTSTRAP, world=client_world(world)) as producer:
        for value in values:
            await (await producer.send(topic, value, key=b"k", partition=0))


@on_a_node
async def test_the_first_page_shows_nodes_and_says_that_nothing_is_wrong(world: World) -> None:
    async with console_of(world) as console:
        told = await console.text("/")
    assert "Cluster the-cluster" in told
    assert "brokers in service 1 of 1" in told
    assert "Nothing: every partition has a leader" in told
    assert "Leader 1 in epoch" in told


@on_a_node
async def test_a_topic_is_created_configured_and_deleted(world: World) -> None:
    async with console_of(world) as console:
        assert "There is no such topic" in await console.text("/topics")
        place = await console.post(
            "/topics/create",
            name="orders",
            partitions="3",
            replication_factor="1",
            configs="retention.ms=60000\n\n cleanup.policy = compact \n",
        )
        assert place == "/topic?name=orders"
        told = await console.text(place)
        assert "partitions 3" in told
        assert "retention.ms 60000 DYNAMIC_TOPIC" in told
        assert "cleanup.policy compact DYNAMIC_TOPIC" in told
        assert "orders 3 1 in sync" in await console.text("/topics")

        await console.post("/topic/config", topic="orders", config="retention.ms", value="90000")
        assert "retention.ms 90000 DYNAMIC_TOPIC" in await console.text(place)
        await console.post("/topic/config", topic="orders", config="retention.ms", restore="1")
        assert "retention.ms 604800000 DEFAULT" in await console.text(place)

        assert "Delete topic orders?" in await console.text("/topic/delete?name=orders")
        told = await console.post("/topic/delete", status=400, topic="orders", confirmation="order")
        assert "nothing was deleted" in told
        assert "orders" in await console.text("/topics")
        await console.post("/topic/delete", topic="orders", confirmation="orders")
        assert "There is no such topic" in await console.text("/topics")


@on_a_node
async def test_refusals_have_kafkas_name_and_advice(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        told = await console.post("/topics/create", status=409, name="orders", partitions="1")
        assert "TOPIC_ALREADY_EXISTS" in told
        assert "Choose another name" in told
        told = await console.post(
            "/topic/config", status=409, topic="orders", config="retention.ms", value="soon"
        )
        assert "INVALID_CONFIG" in told
        told = await console.post(
            "/topics/create", status=409, name="wide", partitions="9999999999"
        )
        assert "INVALID_PARTITIONS" in told
        assert "UNKNOWN_TOPIC_OR_PARTITION" in await console.text("/topic?name=nothing", 404)
        assert "GROUP_ID_NOT_FOUND" in await console.text("/group?group=nothing", 404)
        assert "TRANSACTIONAL_ID_NOT_FOUND" in await console.text("/transaction?id=nothing", 404)
        assert "no whole number" in await console.post(
            "/topics/create", status=400, name="a", partitions="many"
        )
        assert "SECURITY_DISABLED" in await console.text("/access")


@on_a_node
async def test_records_are_browsed_by_place(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        assert "There are no records here" in await console.text("/messages?topic=orders")
        await produce(world, *(b"value-%d" % number for number in range(5)))
        for query, expected in {
            "": [4, 3, 2, 1, 0],
            "&limit=2": [4],  # shared by two partitions
            "&partition=0&limit=2": [4, 3],
            "&partition=0&from=first&limit=3": [0, 1, 2],
            "&partition=0&from=offset&at=3": [3, 4],
            "&partition=0&from=offset&at=99": [],
            "&partition=0&from=time&at=1970-01-01T00:00": [0, 1, 2, 3, 4],
            "&partition=1": [],
            "&from=time&at=2999-01-01": [],
            "&committed=1&partition=0": [4, 3, 2, 1, 0],
        }.items():
            words = (await console.text(f"/messages?topic=orders{query}")).split()
            found = [int(each[6:]) for each in words if each.startswith("value-")]
            assert found == expected, query
        assert "has no partition 7" in await console.text("/messages?topic=orders&partition=7", 404)
        assert "is no time" in await console.text("/messages?topic=orders&from=time&at=noon", 400)


@on_a_node
async def test_a_record_is_produced_and_shown_whole(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        place = await console.post(
            "/produce",
            topic="orders",
            partition="1",
            key="a key",
            value='{"a": [1, 2]}\r\n',
            headers="trace: 17\nempty:",
        )
        assert place == "/message?topic=orders&partition=1&offset=0"
        told = await console.text(place)
        assert "orders-1 , offset 0" in told
        assert "key a key header trace 17 header empty" in told
        assert 'json) { "a": [ 1, 2 ] }' in told
        told = await console.text(f"{place}&as=hex")
        assert "00000000 7b 22 61 22" in told
        place = await console.post("/produce", topic="orders", partition="1", tombstone="1")
        assert "null" in await console.text(place)
        missing = "/message?topic=orders&partition=1&offset=9"
        assert "OFFSET_OUT_OF_RANGE" in await console.text(missing, 409)


@on_a_node
async def test_hostile_records_and_names_are_only_text(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        await produce(world, HOSTILE.encode(), b'{"a": "</pre><script>"}')
        async with Consumer(
            BOOTSTRAP, world=client_world(world), group_id=HOSTILE, client_id=HOSTILE,
            auto_offset_reset="earliest",
        ) as consumer:  # fmt: skip
            consumer.subscribe(["orders"])
            while not await consumer.poll():
                pass
            await consumer.commit()
            pages = [
                await console.get(path)
                for path in (
                    "/messages?topic=orders",
                    "/message?topic=orders&partition=0&offset=0&as=text",
                    "/groups",
                    "/connections",
                )
            ]
            listed = pages[2]
            link = listed.partition('href="/group?')[2].partition('"')[0].replace("&amp;", "&")
            pages.append(await console.get(f"/group?{link}"))
        fields = {"form_token": TOKEN, "group": HOSTILE}
        pages.append((await console.http.post("/group/delete", data=fields)).text)
    for page in pages:
        assert "<script>alert" not in page
        assert '<script>"' not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
    assert "Group &lt;script&gt;" in pages[4]


@on_a_node
async def test_a_group_is_reset_by_the_plan_that_was_shown(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        await produce(world, b"1", b"2", b"3")
        async with Consumer(
            BOOTSTRAP, world=client_world(world), group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            while not await consumer.poll():
                pass
            await consumer.commit()
            told = await console.text("/group?group=billing")
            assert "members 1" in told
            assert "when all members have stopped" in told
            refused = await console.post(
                "/group/reset/plan", status=409, group="billing", to="earliest"
            )
            assert "NON_EMPTY_GROUP" in refused
        assert "total lag 0" in await console.text("/group?group=billing")

        plan = await console.post("/group/reset/plan", status=200, group="billing", to="earliest")
        assert "Nothing is changed yet" in plan
        assert "orders-0 3 0" in plan
        assert "total lag 0" in await console.text("/group?group=billing")

        await console.post("/group/reset", group="billing", planned='[["orders", 0, 1]]')
        assert "total lag 2" in await console.text("/group?group=billing")
        assert (await console.http.get("/group/lag?group=billing")).json() == {"value": 2}
        for plan in ("", "[[1]]", "[" * 100_000, '[["orders", "x", 1]]'):
            told = await console.post("/group/reset", status=400, group="billing", planned=plan)
            assert "make it again" in told

        await console.post("/group/delete", group="billing", confirmation="billing")
        assert "There is no such group" in await console.text("/groups")


@on_a_node
async def test_a_transaction_is_shown_and_its_producer_fenced(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
        async with Producer(
            BOOTSTRAP, world=client_world(world), transactional_id="till"
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("orders", b"open", partition=0))
            assert "till Ongoing" in await console.text("/transactions")
            told = await console.text("/transaction?id=till")
            assert "state Ongoing" in told
            assert "orders-0" in told
            assert "open" in await console.text("/messages?topic=orders&partition=0")
            committed = await console.text("/messages?topic=orders&partition=0&committed=1")
            assert "There are no records here" in committed
            await producer.abort_transaction()
        told = await console.post("/transaction/fence", status=400, id="till", confirmation="")
        assert "nothing was done" in told
        await console.post("/transaction/fence", id="till", confirmation="till")
        assert "state Ongoing" not in await console.text("/transaction?id=till")


@SECURE
async def test_rules_and_users_are_added_and_removed(world: World) -> None:
    rule = {
        "principal": "User:ann", "permission": "ALLOW", "operation": "READ",
        "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL", "host": "*",
    }  # fmt: skip
    async with console_of(world) as console:
        await console.post("/access/rules/add", rule)
        await console.post("/access/rules/add", {**rule, "operation": "WRITE"})
        told = await console.text("/access")
        assert "User:ann ALLOW READ TOPIC orders *" in told
        assert "User:ann ALLOW WRITE TOPIC orders *" in told
        for name in rule:
            partial = {key: value for key, value in rule.items() if key != name}
            assert "is missing" in await console.post("/access/rules/remove", partial, 400)
        await console.post("/access/rules/remove", rule)
        told = await console.text("/access")
        assert "ALLOW READ" not in told
        assert "ALLOW WRITE" in told

        passwords = {"user": "bob", "password": "one", "mechanism": "SCRAM-SHA-512"}
        assert "differ" in await console.post("/access/users/password", passwords, 400, again="x")
        await console.post("/access/users/password", passwords, again="one")
        assert "bob SCRAM-SHA-512" in await console.text("/access")
        await console.post("/access/users/remove", user="bob", mechanism="SCRAM-SHA-512")
        assert "There is no such user" in await console.text("/access")


@on_a_node
async def test_quotas_are_set_and_removed(world: World) -> None:
    async with console_of(world) as console:
        await console.post("/quotas/set", user="*", key="producer_byte_rate", value="2048")
        told = await console.text("/quotas")
        assert "default user producer_byte_rate = 2048.0 (2.0 KiB/s)" in told
        for fields, said in (
            ({"value": "1"}, "name one"),
            ({"user": "a", "value": "nan"}, "no number"),
            ({"user": "a"}, "is missing"),
        ):
            told = await console.post("/quotas/set", fields, 400, key="producer_byte_rate")
            assert said in told
        await console.post("/quotas/set", user="*", key="producer_byte_rate", remove="1")
        assert "There is no such quota" in await console.text("/quotas")


@on_a_node
async def test_clients_are_listed(world: World) -> None:
    async with console_of(world) as console:
        assert "stele-console User:ANONYMOUS" in await console.text("/connections?q=console")
        assert "There is no such client" in await console.text("/connections?q=nobody")


@on_a_node
async def test_a_read_only_console_has_no_forms_for_changes(world: World) -> None:
    async with console_of(world) as console:
        await create(console)
    async with console_of(world, is_read_only=True) as console:
        for path in ("/", "/topics", "/topic?name=orders", "/messages?topic=orders", "/quotas"):
            assert 'method="post"' not in await console.get(path)


@on_a_node
async def test_a_page_of_large_records_is_bounded_and_says_so(world: World) -> None:
    async with console_of(world) as console:
        await create(console, partitions=1)
        await produce(world, *[b"x" * 900_000] * 40)
        told = await console.get("/messages?topic=orders&from=first&limit=500")
        assert 8 * 1024 * 1024 / 900_000 < told.count('class="number"><a') < 40
        assert "a page has 8 MiB of records at most" in told
