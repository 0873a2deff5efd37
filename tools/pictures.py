"""`python -m tools.pictures`: take docs/pictures again, from a running `make up DETACH=1`.

The live view is the one of `make up`. The dashboard is that of an HTTP API which is started for it,
as Chromium (Debian's package chromium) shows it to the cluster's administrator.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from rich.console import Console

from duepoint.cli.local import view
from tests.support import browser
from tools.devcluster import cluster, credentials, ports
from tools.devcluster import state as states
from tools.devcluster.state import REPOSITORY, Record, State
from tools.up import __main__ as up
from tools.up.applications import Workplace
from tools.up.installation import NAMESPACE
from tools.up.kubectl import Kubectl
from tools.up.watching import Watcher

FOLDER = REPOSITORY / "docs" / "pictures"
COLUMNS, LINES = 120, 34
#: Page of the dashboard -> its picture, and how high that is.
PAGES = {
    "schedules": ("dashboard.png", 620),
    "forecast?ns=billing": ("dashboard-forecast.png", 520),
}
#: The receiver that is away has failed often enough for its circuit.
SETTLING_SECONDS = 100
#: Of rich's SVG: it would fetch a font from another server.
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def live_view(watcher: Watcher) -> None:
    watcher.look()
    now = dt.datetime.now(dt.UTC)
    screen = view.screen(
        watcher.schedules, watcher.lines(), watcher.notices,
        now=now, size=(COLUMNS, LINES), end="leaves everything running",
    )  # fmt: skip
    console = Console(record=True, width=COLUMNS, height=LINES, file=io.StringIO())
    console.print(screen)
    drawn = console.export_svg(title="make up")
    (FOLDER / "live-view.svg").write_text(_FONT.sub("", drawn))


@contextlib.asynccontextmanager
async def api(state: State, record: Record) -> AsyncIterator[int]:
    """Run an HTTP API with the dashboard, without TLS; yield its port."""
    http, port = ports.any_free(), ports.any_free()
    settings = {
        "REDIS_URL": record.redis_url, "NAMESPACE": NAMESPACE, "LISTEN_ADDRESS": "127.0.0.1",
        "BLOB_KEY_FILE": str(Workplace(state).blob_key), "HTTP_PORT": str(http),
        "API_PORT": str(port), "TLS_CERT_FILE": "none", "API_DASHBOARD": "true",
    }  # fmt: skip
    environment = {f"DUEPOINT_{name}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "duepoint", "api"),
        env={**os.environ, **environment, "KUBECONFIG": record.kubeconfig},
    )
    try:
        while not await asyncio.to_thread(cluster.listens, port):  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.1)
        yield port
    finally:
        process.terminate()
        await process.wait()


async def dashboard(state: State, record: Record) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with api(state, record) as port, browser.opened(Path(folder)) as page:
            await page.open(f"http://127.0.0.1:{port}/dashboard/")
            await page.until("document.querySelector('#token')")
            await page.run("document.querySelector('#token').focus()")
            await page.type(credentials.admin_token(state))
            await page.press("Enter")
            await page.until("document.querySelector('nav a')")
            for name, (picture, height) in PAGES.items():
                await page.look(height=height)
                await page.run(f"location.hash = {json.dumps(f'#/{name}')}")
                await page.until("document.querySelector('main h1')")
                await asyncio.sleep(3)  # the page loads piece by piece
                shot = await page.send("Page.captureScreenshot", format="png")
                (FOLDER / picture).write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    state = states.default()
    record = state.read()
    if record is None or not record.applications:
        sys.exit("nothing runs here; `make up DETACH=1` first")
    watcher, _ = up.bring_up(state, record.kind)
    live_view(watcher)
    kubectl = Kubectl(record.kubeconfig)
    kubectl.apply("{apiVersion: v1, kind: Namespace, metadata: {name: billing}}")
    kubectl.apply(Path(__file__).with_suffix(".yaml").read_text())
    time.sleep(SETTLING_SECONDS)
    asyncio.run(dashboard(state, record))


if __name__ == "__main__":
    main()
