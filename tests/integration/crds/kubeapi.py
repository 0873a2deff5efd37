"""A blocking client of the API server for tables of many small requests.

One kept-alive connection per client, the verbs of `kubectl create`, `replace` and `apply
--server-side`, dry run on request, answers as they came. It reads the kubeconfig of the test
cluster and uses nothing of the product: the product is what is tested.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

MANAGER = "duepoint-tests"

# What the server adds to a cause: that it has not looked at everything yet, and once more that a
# number does not fit its format.
NOTES = ("some validation rules were not checked", "Checked value must be of type integer")

#: A connection that was not used for so long is opened anew.
_REST_SECONDS = 20.0

PLURALS = {
    "Schedule": "schedules",
    "ScheduleRun": "scheduleruns",
    "ScheduleSet": "schedulesets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status code and decoded body of one request."""

    code: int
    body: Any

    @property
    def ok(self) -> bool:
        return self.code < 300

    def causes(self) -> list[tuple[str, str]]:
        """(field, message) of each thing that is wrong with the object."""
        causes = self.body.get("details", {}).get("causes", [])
        return [
            (cause.get("field", ""), cause.get("message", ""))
            for cause in causes
            if not any(note in cause.get("message", "") for note in NOTES)
        ]


class KubeApi:
    """Requests as the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        server = urlsplit(cluster["server"])
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._connection = http.client.HTTPSConnection(
            server.hostname or "", server.port, context=context, timeout=60
        )
        self._token = config["users"][0]["user"]["token"]
        self._used = time.monotonic()

    def close(self) -> None:
        self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        as_user: str = "",
        **query: str,
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        if as_user:
            headers["Impersonate-User"] = as_user
        # Other tests may take minutes in between: the server closes a connection that rests for
        # 90 s, which shows with the next request only.
        if time.monotonic() - self._used > _REST_SECONDS:
            self._connection.close()
        self._connection.request(
            method,
            f"{path}?{urlencode(query)}" if query else path,
            body=None if body is None else json.dumps(body),
            headers=headers,
        )
        response = self._connection.getresponse()
        self._used = time.monotonic()
        return Answer(code=response.status, body=json.loads(response.read()))

    def get(self, path: str) -> Any:
        return self.request("GET", path).body

    def create(self, thing: dict[str, Any], *, dry_run: bool = False) -> Answer:
        return self.request("POST", collection(thing), thing, **_options(dry_run))

    def replace(self, thing: dict[str, Any], *, dry_run: bool = False) -> Answer:
        return self.request("PUT", location(thing), thing, **_options(dry_run))

    def apply(self, thing: dict[str, Any], *, dry_run: bool = False) -> Answer:
        return self.request(
            "PATCH",
            location(thing),
            thing,
            content_type="application/apply-patch+yaml",
            force="true",
            **_options(dry_run),
        )

    def merge(self, path: str, patch: dict[str, Any]) -> Answer:
        return self.request("PATCH", path, patch, content_type="application/merge-patch+json")


def collection(thing: dict[str, Any]) -> str:
    namespace = thing["metadata"]["namespace"]
    plural = PLURALS.get(thing["kind"], thing["kind"].lower() + "s")
    version = thing["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{prefix}/namespaces/{namespace}/{plural}"


def location(thing: dict[str, Any]) -> str:
    return f"{collection(thing)}/{thing['metadata']['name']}"


def _options(dry_run: bool) -> dict[str, str]:
    # Strict, as kubectl asks for it: a misspelt field is an error, not a field that vanishes.
    options = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    return {**options, "dryRun": "All"} if dry_run else options
