"""The commands on tutorials and how-tos, run as a reader would.

One installation serves all pages (``tests.support.pagescene``). A test is a block; those of a page
run in their order, in a folder with the files that it speaks of. What a page says is not run is a
skip with its reason, where nothing of the block is left.
"""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from duepoint.client import Client, NothingThere
from tests.support import background, pagecommands, pagereader, pagescene
from tests.support.controlplane import ControlPlane
from tests.support.pagecommands import PageBlock
from tests.support.pagereader import Reader
from tests.support.pagescene import Scene
from tests.support.redisserver import RedisServer
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.timeout(300)]

BLOCKS = [block for page in pagecommands.PAGES for block in pagecommands.blocks_of(page)]
KEY = "duepoint-blob-key -n duepoint-system"
BLOB_KEY = (
    f"kubectl get secret {KEY} || kubectl create secret generic {KEY} --from-literal=blob-key=key"
)
RELEASE = (
    "helm upgrade duepoint charts/duepoint --install -n duepoint-system --reset-values"
    " --set image.repository=a.example/a --set redis.url=redis://redis/0"
)
#: A command of a page -> what must be so before its block, beside what the scene has.
BEFORE = {
    "kubectl get cronjob report": [
        "kubectl delete schedule report -n reports --ignore-not-found",
        "kubectl apply -n reports -f cronjob.yaml",
    ],
    "kubectl get cronjobs -A": ["kubectl apply -n reports -f cronjob.yaml"],
    "kubectl patch configmap argocd-cm": ["kubectl create configmap argocd-cm -n argocd"],
    "kubectl delete schedule greeting ping": ["kubectl apply -f ping.yaml"],
    "duepoint logs report": ["duepoint trigger report -n team-a --wait"],
    "kubectl get secret -n duepoint-system duepoint-blob-key": [BLOB_KEY],
    "--from-file=blob-key=<(": [f"kubectl delete secret {KEY} --ignore-not-found"],
    "kubectl create -f duepoint-objects.json": [
        "kubectl delete schedules,schedulesets --all -n shop"
    ],
    "helm install": ["helm uninstall duepoint -n duepoint-system --ignore-not-found"],
    "helm upgrade": [RELEASE],
    "duepoint load probe": [
        "kubectl apply -f load.yaml",
        "kubectl wait --for=condition=Ready scheduleset/probe --timeout=1m",
    ],
    "consumer.py": ["kubectl apply -f ticks.yaml"],
}
#: A command that goes on until Ctrl-C -> what is on its output when it works.
ENDLESS = {
    "duepoint run -f examples": "Succeeded",
    "duepoint run -f greeting.yaml ": "good morning",
    "duepoint run -f ticks.yaml -o text": "Succeeded",
    ".venv/bin/duepoint operator": "term begins",
    ".venv/bin/duepoint worker": "claiming",
    "python examples/03-stream/consumer.py": "Z ",
    'redis-cli -u "$REDIS_URL" MONITOR': "OK",
    "kubectl get lease duepoint-operator -n duepoint-system -o yaml -w": "holderIdentity",
}
#: A command of a page -> words of what it says.
SAID = {"kubectl duepoint suspend report -n team-a": "moving the bucket"}

Pages = tuple[Scene, Reader, background.Run]


@pytest.fixture(scope="module")
def pages(
    duepoint_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    server = RedisServer("valkey", folder)
    server.start()
    try:
        with background.living(lambda: pagescene.installed(duepoint_plane, server, folder)) as (
            scene,
            run,
        ):
            reader = Reader(scene, folder)
            try:
                run(scene.give_up_a_webhook())
                wait_until_in_order(reader)
                yield scene, reader, run
            finally:
                reader.end()
    finally:
        server.stop()


def wait_until_in_order(reader: Reader) -> None:
    """What the operator knows of Redis and the workers is on its Lease within some seconds."""
    reader.wait_until(
        "duepoint doctor", lambda said: "unknown" not in said.partition("workers")[2][:40]
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_the_commands_of_a_block_succeed(block: PageBlock, pages: Pages) -> None:
    commands = block.commands
    if not commands:
        pytest.skip("; ".join(dict.fromkeys(block.left_out.values())))
    if lacking := missing(block):
        pytest.skip(f"needs {', '.join(lacking)}")
    folder = prepared(block, pages)
    _, reader, _ = pages
    if " is invalid: " in block.shown:
        [command] = commands
        refusal = " ".join(reader.refused(command, folder).split())
        assert refusal == " ".join(block.shown.partition("\n")[2].split())
    elif block.shown.startswith("$ ") and (text := text_of(commands[0])):
        reader.run_until(text, commands[0], folder, beside=commands[1:])
    else:
        said = said_by(commands, reader, folder)
        for words, expected in SAID.items():
            assert words not in block.shown or expected in said


def missing(block: PageBlock) -> list[str]:
    """Programs that this machine does not have, of the block and of those before it on its page."""
    before = [each for each in pagecommands.blocks_of(block.page) if each.number <= block.number]
    commands = itertools.chain.from_iterable(each.commands for each in before)
    named = set(itertools.chain.from_iterable(map(pagecommands.programs_of, commands)))
    return [name for name in sorted(named) if shutil.which(name) is None]


def prepared(block: PageBlock, pages: Pages) -> Path:
    """The folder of the block's reader; what the block speaks of is there."""
    scene, reader, run = pages
    if run(scene.revive()):
        wait_until_in_order(reader)
    if reader.is_new_to(block.page):
        run(scene.furnish())
    if pagereader.A_LETTER in block.shown:  # another page may have purged the one before
        run(scene.give_up_a_webhook())
    folder = reader.folder_of(block)
    before = [commands for words, commands in BEFORE.items() if words in block.shown]
    if script := "\n".join(itertools.chain.from_iterable(before)):
        reader.run(script, folder)
    return folder


def said_by(commands: Sequence[str], reader: Reader, folder: Path) -> str:
    said = ""
    for is_endless, some in itertools.groupby(commands, key=lambda each: bool(text_of(each))):
        if not is_endless:
            said += reader.run("\n".join(some), folder)
            continue
        for command in some:
            reader.run_until(text_of(command), command, folder)
    return said


def text_of(command: str) -> str:
    """What is on the output of a command that goes on until Ctrl-C; empty = it ends by itself."""
    return next((text for words, text in ENDLESS.items() if command.startswith(words)), "")


def test_the_shop_of_the_tutorial_reminds_its_customers(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, reader, run = pages
    run(scene.furnish())
    for name in ("DUEPOINT_API_URL", "DUEPOINT_API_TOKEN"):
        monkeypatch.setenv(name, reader.environment[name])
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (number, state)")
    database.execute("CREATE TABLE outbox (event PRIMARY KEY, text)")
    database.execute("INSERT INTO orders VALUES (18, 'open')")
    names: dict[str, Any] = {"database": database, "customers": [("bob", "Asia/Tokyo")]}

    page = pagecommands.ROOT / "docs/tutorial/a-reminder-per-customer.md"
    for block in pagecommands.python_of(page):
        exec(block.replace('"default"', repr(scene.namespaces["default"])), names)

    reminders = names["reminders"]
    names["order_placed"](18)
    assert reminders.get("order-18").payload == {"order": 18}
    names["order_paid"](18)
    with pytest.raises(NothingThere):
        reminders.get("order-18")
    for name, zone in (("ada", "Europe/Rome"), ("bob", "Asia/Tokyo")):
        assert reminders.get(f"newsletter-{name}").time_zone == zone
    assert names["refused"] == []
    for _ in range(2):
        names["receive"]({"id": "event-1", "payload": {"order": 18}})
    assert [row[0] for row in database.execute("SELECT event FROM outbox")] == ["event-1"]


def test_the_client_of_the_reference_writes_members(
    pages: Pages, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scene, _, run = pages
    run(scene.furnish())
    log = logging.getLogger("client")
    names = {"token": scene.token, "log": log, "customers": [(7, "Europe/Rome"), (8, "Mars/Here")]}
    one, rows = pagecommands.python_of(pagecommands.ROOT / "docs/reference/client.md")
    server, shop = scene.stack.api_url, scene.namespaces["shop"]

    exec(re.sub('https://[^"]+', server, one).replace('"shop"', repr(shop)), names)
    with Client(server, token=scene.token) as client:
        names["reminders"] = reminders = client.schedule_set(shop, "reminders")
        exec(rows, names)

        assert reminders.get("customer-7").time_zone == "Europe/Rome"
    assert capsys.readouterr().out.startswith("20")
    assert "customer-8" in caplog.text


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 100
