"""Every operation of the served OpenAPI document, with requests made of it by schemathesis.

Half of the requests keep to the document, half break it. None may end in an error of the server,
every answer has the shape that the document says, and what is refused stores nothing.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 12  # of each operation, and of each kind
LONGEST_SECONDS = 40
#: What some request is answered with: it is carried out, is wrong, or names nothing that is there.
WANTED = {200, 400, 404}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
]
CHANGES = ("Created", "Replaced", "Unchanged")


@schemathesis.serializer("application/x-ndjson")
def a_row_on_a_line(ctx, value):
    return json.dumps(value).encode()


class Tried:
    """Sends cases, and keeps which members were said to be stored."""

    def __init__(self, scene):
        self.scene = scene
        self.headers = {"Authorization": f"Bearer {scene.tokens['editor']}"}
        self.stored = {"kept"}
        self.sent = 0
        self.until = math.inf
        self.statuses = set()

    def send(self, case):
        """Send it, unless enough was sent for long enough, from the first request on."""
        if time.monotonic() > self.until and self.statuses >= WANTED:
            return
        if not self.sent:
            self.until = time.monotonic() + LONGEST_SECONDS
        # Of another namespace nothing would be seen; every seventh keeps what was made up.
        if self.sent % 7:
            case.path_parameters["namespace"] = self.scene.namespace
            case.path_parameters["set"] = self.scene.record.name
        self.sent += 1
        response = case.call(base_url=f"http://127.0.0.1:{self.scene.port}", headers=self.headers)
        self.statuses.add(response.status_code)
        (kind,) = response.headers.get("content-type", [""])
        is_stream = "ndjson" in kind
        checks = CHECKS if is_stream else [*CHECKS, response_schema_conformance]
        case.validate_response(response, checks=checks)
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            assert kind == "application/problem+json"
            assert re.fullmatch("[A-Z][A-Za-z]+", response.json()["code"])
        elif case.method in ("PUT", "POST", "PATCH"):
            self._note(response, is_stream)

    def _note(self, response, is_stream):
        answers = response.text.splitlines() if is_stream else [response.text]
        for answer in map(json.loads, answers):
            if answer.get("outcome") in CHANGES:
                self.stored.add(answer["id"])


async def test_no_request_breaks_the_server_and_none_that_is_refused_stores_anything(scene):
    await scene.ask("PUT", scene.member("kept"), {"at": "2090-12-24T18:00:00Z"})
    document = (await scene.ask("GET", "/openapi.json", as_="")).json
    tried = Tried(scene)
    await asyncio.to_thread(try_all, schemathesis.openapi.from_dict(document), tried)
    assert tried.statuses >= WANTED
    assert set(await scene.members()) <= tried.stored
    assert await scene.process.troubles() == ""
    said = scene.process.log.read_text()
    assert "request failed" not in said
    assert "Traceback" not in said


def try_all(schema, tried):
    tested = [result.ok() for result in schema.get_all_operations()]
    assert len(tested) == 13
    for operation in tested:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
                phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode))
            def attempt(case):
                tried.send(case)

            attempt()
