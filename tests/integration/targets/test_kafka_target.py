"""Records in a real broker's topics; and brokers that are none, denied, or refuse."""

from __future__ import annotations

import pytest

from duepoint.model.webhook import SecretRefFields
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import memory, outcome
from tests.support import builders, firings, kafkabroker, listeners, othertargets, proxy, vaults
from tests.support.kafkabroker import kafka as broker

__all__ = ["broker"]

# One broker for all of them: it takes a JVM, and its jars may have to be fetched.
pytestmark = pytest.mark.xdist_group("kafka")

ACTION = actions.KafkaAction(topic="ticks", connection_secret_ref=SecretRefFields(name="brokers"))


@pytest.fixture
async def api():
    return await vaults.api_with()


@pytest.fixture
async def target(api, monkeypatch):
    monkeypatch.setattr(memory, "ASK_AGAIN_SECONDS", 0.0)
    made = othertargets.a_kafka_target(api, othertargets.a_dialler())
    yield made
    await made.close()


async def put(api, **values):
    await api.apply("secrets", vaults.a_secret("brokers", **values))


def a_firing(action=ACTION, **changes):
    return firings.a_firing(action, seconds_left=60.0, **changes)


async def delivered(target, **changes):
    given = await target.fire(a_firing(**changes))
    assert isinstance(given, outcome.Delivered), given
    return given


async def plain(api, broker):
    await put(api, bootstrap__servers=f"127.0.0.1:{broker.plain}", security__protocol="PLAINTEXT")


@pytest.mark.timeout(300)
async def test_a_record_arrives_with_key_headers_and_payload(api, target, broker):
    await plain(api, broker)
    topic = "arrives"
    await broker.make_topic(topic)
    action = actions.KafkaAction(topic=topic, connection_secret_ref=SecretRefFields(name="brokers"))
    for number in range(3):
        given = await delivered(
            target, action=action, payload={"a": "hé"}, slot_us=number * 1_000_000
        )
        assert given.message.endswith(f"offset {number} of {topic}")
    records = await broker.records(topic, 3)
    assert {record.key for record in records} == {builders.UID.encode()}
    assert len({record.partition for record in records}) == 1
    assert {record.value for record in records} == {'{"a":"hé"}'.encode()}
    headers = dict(records[1].headers)
    assert headers.pop("generated_at").endswith(b"Z")
    assert headers == {
        "id": f"{builders.UID}-1".encode(),
        "schedule_id": builders.UID.encode(),
        "slot": b"1",
        "scheduled_time": b"1970-01-01T00:00:01Z",
        "version": b"3",
        "attempt": b"1",
        "trigger": b"Schedule",
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("tls", [False, True], ids=["sasl", "sasl and tls"])
async def test_login_and_tls_are_those_of_the_secret(api, target, broker, tls):
    topic = f"login-{int(tls)}"
    await broker.make_topic(topic)
    action = actions.KafkaAction(topic=topic, connection_secret_ref=SecretRefFields(name="brokers"))
    values = {
        "bootstrap__servers": f"127.0.0.1:{broker.tls if tls else broker.sasl}",
        "username": kafkabroker.USER,
        **({"ca__crt": broker.authority.file.read_text()} if tls
           else {"security__protocol": "SASL_PLAINTEXT"}),
    }  # fmt: skip
    await put(api, **values, password="canary-wrong-word")
    given = await target.fire(a_firing(action))
    assert isinstance(given, outcome.Retry), given
    assert "canary-wrong-word" not in given.message
    await put(api, **values, password=kafkabroker.PASSWORD)
    target._reader.forget("default")
    await delivered(target, action=action)


@pytest.mark.timeout(300)
async def test_a_broker_that_the_guard_denies_gets_no_connection(api, broker):
    """Neither the one of the Secret nor the one that it advertises."""
    await plain(api, broker)
    target = othertargets.a_kafka_target(api, othertargets.a_dialler(allowed=()))
    given = await target.fire(a_firing())
    assert isinstance(given, outcome.Rejected), given
    assert given.reason is Reason.BLOCKED_ADDRESS
    await target.close()


@pytest.mark.timeout(300)
async def test_an_advertised_address_is_judged_like_the_first(api, broker):
    def lookup(name, _):
        return ("192.0.2.7",) if name == "seed.example.com" else (name,)

    allowed = othertargets.networks("127.0.0.2/32")
    target = othertargets.a_kafka_target(
        api, othertargets.a_dialler(allowed=allowed, lookup=lookup)
    )
    async with proxy.between("127.0.0.1", broker.plain, at="127.0.0.2") as relay:
        await put(api, bootstrap__servers=f"127.0.0.2:{relay.port}", security__protocol="PLAINTEXT")
        given = await target.fire(firings.a_firing(ACTION, seconds_left=6.0))
    assert relay.connections
    assert isinstance(given, outcome.Rejected), given
    assert given.reason is Reason.BLOCKED_ADDRESS
    await target.close()


@pytest.mark.timeout(300)
async def test_an_advertised_broker_gets_the_login_with_the_owners_word_only(api, broker):
    allowed = othertargets.networks("127.0.0.1/32", "127.0.0.2/32")
    target = othertargets.a_kafka_target(api, othertargets.a_dialler(allowed=allowed))
    async with proxy.between("127.0.0.1", broker.plain, at="127.0.0.2") as relay:
        servers = f"127.0.0.2:{relay.port}"
        await put(
            api, send_to="127.0.0.2", bootstrap__servers=servers, security__protocol="PLAINTEXT"
        )
        given = await target.fire(firings.a_firing(ACTION, seconds_left=6.0))
    assert isinstance(given, outcome.Retry), given
    assert relay.connections, given
    assert given.reason is Reason.SECRET_UNAVAILABLE
    assert "a server that it names is not allowed" in given.message
    assert "127.0.0.1" not in given.message
    await target.close()


# -- without a broker ------------------------------------------------------------------------------


@pytest.mark.parametrize("send_to", [None, "", "kafka.example", "127.0.0.1:1"])
async def test_a_connection_goes_nowhere_without_its_owners_word(api, target, send_to):
    called = []

    async def note(reader, _):
        called.append(await reader.read(65_536))

    async with listeners.listening(note) as port:
        servers = f"127.0.0.1:{port}"
        await put(api, send_to=send_to, bootstrap__servers=servers, password="canary")
        checked = await target.check(a_firing())
        given = await target.fire(firings.a_firing(ACTION, seconds_left=2.0))
    assert (checked.reason, given.reason) == (Reason.SECRET_UNAVAILABLE,) * 2
    assert "kubectl annotate" in given.message
    assert "canary" not in given.message
    assert called == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"username": "x"}, "has no key bootstrap.servers"),
        ({"bootstrap__servers": "kafka"}, "write host:port,host:port"),
        ({"bootstrap__servers": "kafka:70000"}, "write host:port,host:port"),
        ({"bootstrap__servers": "k:9092", "security__protocol": "TLS"}, "write PLAINTEXT or SSL"),
        ({"bootstrap__servers": "k:9092", "sasl__mechanism": "GSSAPI"}, "write PLAIN or SCRAM"),
        ({"bootstrap__servers": "k:9092", "security__protocol": "SASL_SSL"}, "username"),
        ({"bootstrap__servers": "k:9092", "ca__crt": "junk"}, "holds no PEM certificates"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_a_secret_that_holds_no_connection_says_what_to_write(api, target, values, told):
    await put(api, **values)
    found = await target.check(a_firing())
    assert found.reason is Reason.SECRET_UNAVAILABLE
    assert told in found.message
    given = await target.fire(a_firing())
    assert isinstance(given, outcome.Retry)
    assert not given.started
