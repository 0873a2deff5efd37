"""A real Kafka broker for tests: one process in KRaft mode, from artifacts of Maven Central.

It needs Java 17 and Maven; if they are missing, or nothing can be downloaded, tests are skipped and
say so. The jars (Apache-2.0) are downloaded once, checked against ``kafka/checksums.txt``, and
cached outside the repository by version and checksums.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import admin

from tests.support.redisserver import free_port
from tests.support.tlsfiles import Authority
from tests.support.waiting import wait_until
from tools.devcluster import cache

HERE = Path(__file__).resolve().parent / "kafka"
VERSION = "4.1.0"
USER, PASSWORD = "writer", "canary-kafka-81c4"
_START_SECONDS = 120


class Broker:
    """A broker with three listeners: plain text, SASL without TLS, SASL with TLS."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self._jars = jars
        self._folder = folder
        # Like Strimzi's authority, which newer Pythons refuse by default.
        self.authority = Authority(folder / "tls", is_old=True)
        self.plain, self.sasl, self.tls, self._controller = (free_port() for _ in range(4))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with its stored data."""
        settings = self._folder / "server.properties"
        if not settings.exists():
            settings.write_text(self._settings())
            identity = str(uuid.uuid4())
            self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", settings)
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", settings), stdout=log, stderr=log, cwd=self._folder
            )
        wait_until(self._listens, f"Kafka answers; see {self._folder}/broker.log", _START_SECONDS)

    def stop(self) -> None:
        """Stop it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def make_topic(self, name: str, **settings: str) -> None:
        """Create a topic with three partitions."""
        asking = admin.AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.plain}")
        await asking.start()
        try:
            await asking.create_topics(
                [admin.NewTopic(name, 3, 1, topic_configs=settings)], timeout_ms=20_000
            )
        finally:
            await asking.close()

    async def records(self, topic: str, count: int) -> list[Any]:
        """Return the first ``count`` records of a topic, oldest first within each partition."""
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=f"127.0.0.1:{self.plain}", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                return [await consumer.getone() for _ in range(count)]
        finally:
            await consumer.stop()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "broker.log").read_text()[-2000:]
        for port in (self.plain, self.sasl, self.tls):
            with contextlib.closing(socket.socket()) as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def _java(self, main: str, *arguments: object) -> None:
        done = subprocess.run(
            self._command(main, *arguments),
            check=False,
            capture_output=True,
            text=True,
            cwd=self._folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _command(self, main: str, *arguments: object) -> list[str]:
        return [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            f"{self._jars}/*", main, *map(str, arguments),
        ]  # fmt: skip

    def _settings(self) -> str:
        issued = self.authority.issue("broker", "127.0.0.1")
        chain = issued.certificate.read_text().strip().replace("\n", "\\n")
        key = issued.key.read_text().strip().replace("\n", "\\n")
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        )
        ports = {"PLAINTEXT": self.plain, "SASL_PLAINTEXT": self.sasl, "SASL_SSL": self.tls}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        protocols = ",".join(("CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ports)))
        return "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{self._controller}",
                f"listeners={listeners},CONTROLLER://127.0.0.1:{self._controller}",
                f"advertised.listeners={listeners}",
                "controller.listener.names=CONTROLLER",
                f"listener.security.protocol.map={protocols}",
                "sasl.enabled.mechanisms=PLAIN",
                f"listener.name.sasl_plaintext.plain.sasl.jaas.config={login}",
                f"listener.name.sasl_ssl.plain.sasl.jaas.config={login}",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.certificate.chain={chain}",
                f"ssl.keystore.key={key}",
                f"log.dirs={self._folder}/data",
                "auto.create.topics.enable=false",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "num.io.threads=2",
                "num.network.threads=1",
            )
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yield a listening broker."""
    broker = Broker(_jars(), tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _jars() -> Path:
    """Return the folder with the expected jars; skip the test if they cannot be downloaded."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"no Kafka broker here: {program} is not installed")
    expected = (HERE / "checksums.txt").read_text()
    name = f"kafka-{VERSION}-{hashlib.sha256(expected.encode()).hexdigest()[:12]}"
    folder = cache.directory() / "kafka" / name
    if not folder.is_dir():
        _fetch(folder)
    assert _sums(folder) == expected, f"{folder} does not hold what kafka/checksums.txt says"
    return folder


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        jars = Path(made) / "jars"
        done = subprocess.run(
            [
                "mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies",
                f"-DoutputDirectory={jars}", "-DincludeScope=runtime",
            ],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no word"]
            pytest.skip(f"no Kafka broker here: Maven could not fetch it ({last[0][:200]})")
        with contextlib.suppress(OSError):  # another process was quicker
            jars.rename(folder)


def _sums(folder: Path) -> str:
    return "".join(
        f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n"
        for jar in sorted(folder.glob("*.jar"))
    )
