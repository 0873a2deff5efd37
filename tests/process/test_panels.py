"""A real Prometheus answers each query of the Grafana dashboard, and its panels are drawn.

The pictures on the page come from an installation (``make panels``, minutes); here one page of
metrics stands for it, with every series that our processes and kube-state-metrics serve.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import pytest_asyncio

from tests.panels import answers, drawing, prometheus
from tests.support import promexpressions
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="needs Prometheus: Debian's package prometheus has it",
)
#: Every series is of one namespace, which is that of the installation too.
VARIABLES = {"installation": "shop", "namespace": "shop"}
VALUES = {
    "namespace": ["shop"],
    "outcome": ["Started", "Missed"],
    "result": ["Failed"],
    "type": ["Overdue"],
    "le": ["0.1", "1", "+Inf"],
}
FROM_THE_SCRAPE = {"job", "instance", "component", "container"}
SVG = "{http://www.w3.org/2000/svg}"


def exposition(value: int) -> str:
    """Each series of ours with this value; a condition is always true."""
    lines = []
    for name, labels in promexpressions.known().items():
        own = sorted(labels - FROM_THE_SCRAPE)
        choices = [VALUES.get(label, [f"some-{label}"]) for label in own]
        for chosen in itertools.product(*choices):
            pairs = zip(own, chosen, strict=True)
            written = ",".join(f'{label}="{text}"' for label, text in pairs)
            lines.append(f"{name}{{{written}}} {1 if name.endswith('_condition') else value}")
    return "\n".join(lines) + "\n"


class Page(BaseHTTPRequestHandler):
    """A page of metrics whose values grow with each scrape."""

    scrapes = itertools.count(1)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(exposition(next(self.scrapes)).encode())

    def log_message(self, *_: object) -> None:
        """Scrapes are of no interest."""


@contextmanager
def served() -> Iterator[prometheus.Target]:
    # In a thread: a scrape that no loop answers would end every series for a moment.
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield prometheus.Target(url=f"http://127.0.0.1:{listening.server_port}", labels={})
        listening.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory) -> AsyncIterator[prometheus.Prometheus]:
    """It has scraped the page; Prometheus begins to scrape five seconds after its start."""
    folder = tmp_path_factory.mktemp("prometheus")
    with served() as target:
        async with prometheus.scraping([target], folder, every="1s") as started:

            async def has_scraped() -> bool:
                return bool(await started.now("duepoint_leader > 2", time.time()))

            await eventually(has_scraped, "Prometheus has scraped some times")
            yield started


async def test_each_panel_is_drawn_from_the_answers_of_a_prometheus(server):
    ended = time.time()
    began = ended - 3
    rows = await answers.of_rows(server, VARIABLES, began, ended)

    assert [shown.empty for _, panels in rows for shown in panels if shown.empty] == []
    assert len(rows) == 7
    events = [drawing.Event(began + 1, "A worker <ends>")]
    for row, panels in rows:
        tree = ET.fromstring(drawing.picture(row, panels, began, ended, events))
        texts = {each.text for each in tree.iter(f"{SVG}text")}
        assert {row.title, *(each.panel.title for each in panels)} <= texts
        assert drawing.NO_DATA not in texts
        graphs = [each for each in panels if each.panel.kind == "timeseries"]
        marks = [each.text for each in tree.iter(f"{SVG}title")]
        assert marks.count("A worker <ends>") == len(graphs)


async def test_a_query_without_data_is_named_and_its_panel_says_so(server):
    ended = time.time()
    elsewhere = {**VARIABLES, "namespace": "elsewhere"}
    rows = await answers.of_rows(server, elsewhere, ended - 3, ended)

    [(row, panels)] = [each for each in rows if each[0].title == "Runs"]
    empty = {each.panel.title for each in panels if each.empty}
    assert empty == {"Slots that started", "Missed and skipped slots", "Failed runs", "Attempts"}
    drawn = drawing.picture(row, panels, ended - 3, ended, [])
    assert drawn.count(drawing.NO_DATA) == len(empty)


async def test_a_query_that_prometheus_refuses_is_an_error(server):
    with pytest.raises(ValueError, match=r"^rate\(x\): .*expected type range vector"):
        await server.now("rate(x)", time.time())
