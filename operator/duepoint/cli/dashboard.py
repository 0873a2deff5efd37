"""``duepoint dashboard``: opens the web dashboard of an installation, signed in.

kubectl forwards a free port of this machine to the API's Service. The page gets the token in the
fragment of its address, which is not sent to any server. Other users of this machine can read
command lines, so the browser is not started with that address: a page that is served only once
redirects it there.
"""

from __future__ import annotations

import asyncio
import http.server
import re
import secrets
import subprocess
import threading
import urllib.parse
import webbrowser

import click

from duepoint import errors
from duepoint.cli import cluster, options, output
from duepoint.kube import credentials

_FORWARDS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@click.command()
@click.option(
    "--service",
    metavar="NAMESPACE/NAME",
    type=options.Converted(options.namespaced),
    default="duepoint-system/duepoint-api",
    show_default=True,
    help="Service of the HTTP API.",
)
@click.option(
    "--account",
    metavar="NAME",
    type=options.NAME,
    help="Sign in as this ServiceAccount of -n: kubectl create token. Unset: as the kubeconfig's"
    " user, who needs a token.",
)
@options.of_one
def dashboard(*, service: str, account: str | None, place: options.Place) -> None:
    """Open the web dashboard in the browser, until Ctrl-C.

    Example: kubectl duepoint dashboard --account anna -n shop
    """
    namespace, _, name = service.partition("/")
    words = cluster.kubectl(place)
    of_service = [f"--namespace={namespace}", f"service/{name}"]
    ports = "-o=jsonpath={.spec.ports[0].name} {.spec.ports[0].port}"
    scheme, _, port = _kubectl_output([*words, "get", *of_service, ports]).partition(" ")
    token = _token(words, account, place)
    forwarding = subprocess.Popen(  # noqa: S603 - no shell
        [*words, "port-forward", *of_service, f":{port}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert forwarding.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in forwarding.stdout:
            if found := _FORWARDS.match(line):
                _open(f"{scheme}://localhost:{found[1]}/dashboard/", token)
    except KeyboardInterrupt:
        return
    finally:
        forwarding.terminate()
        forwarding.wait()
    raise click.exceptions.Exit(output.BAD_INPUT)  # kubectl has reported why


def _kubectl_output(words: list[str]) -> str:
    """Return the output of kubectl; exit if it fails, after it has reported why."""
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - no shell
    if done.returncode:
        raise click.exceptions.Exit(output.BAD_INPUT)
    return done.stdout.strip()


def _token(words: list[str], account: str | None, place: options.Place) -> str:
    """Return the token for signing in; raises errors.InvalidSetting if the user has none."""
    login = asyncio.run(credentials.found(place.kubeconfig, place.context).login())
    if account is not None:
        namespace = place.namespace or login.namespace
        return _kubectl_output([*words, "create", "token", account, f"--namespace={namespace}"])
    if not login.token:
        message = "is missing, and the kubeconfig's user has no token; write --account NAME, a"
        raise errors.InvalidSetting("--account", f"{message} ServiceAccount with the role view")
    return login.token


def _open(address: str, token: str) -> None:
    """Print the address of the dashboard, and open it in the browser with the token."""
    output.say(f"{address}  (Ctrl-C ends it)")
    signed_in = f"{address}#token={urllib.parse.quote(token, safe='')}"
    if not webbrowser.open(_leading_once(signed_in)):
        output.say(f"there is no browser to open; signed in: {signed_in}")


def _leading_once(address: str) -> str:
    """Return a secret URL on this machine that redirects to the address once."""
    path = f"/{secrets.token_urlsafe()}"
    left = {path: address}

    class Leading(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = left.pop(self.path, "")
            self.send_response(302 if found else 404)
            self.send_header("Location", found)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: standard error is for people."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Leading)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}{path}"
