"""A real headless Chromium, driven over its debugging protocol.

Nothing but the browser itself is needed; if there is none, ``chromium`` skips with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_KEYS = {
    "Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "PageUp": (33, ""),
    "PageDown": (34, ""), "End": (35, ""), "Home": (36, ""), "ArrowUp": (38, ""),
    "ArrowDown": (40, ""), "/": (191, "/"),
}  # fmt: skip


def chromium() -> str:
    """Return the path of the browser."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: Debian's package chromium has it")
    return found


class Page:
    """A tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        #: Exceptions, policy violations and failed loads that the browser reported. Refusals of
        #: the API are left out: a page shows them.
        self.complaints: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if (number := said.get("id")) is not None:
                future = self._answers.pop(number)
                if "error" in said:
                    future.set_exception(RuntimeError(said["error"]["message"]))
                else:
                    future.set_result(said["result"])
                continue
            what = said.get("params", {})
            if said["method"] == "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                text = details.get("exception", {}).get("description") or details["text"]
                self.complaints.append(text)
            elif said["method"] == "Log.entryAdded" and what["entry"]["level"] == "error":
                entry = what["entry"]
                if not (entry["source"] == "network" and "/v1/" in entry.get("url", "")):
                    self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol."""
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(future, 60)

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()

    async def run(self, expression: str) -> Any:
        """Evaluate an expression, await it and return the value."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if details := answer.get("exceptionDetails"):
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    async def until(self, expression: str, *, seconds: float = 15.0) -> None:
        """Wait until an expression is truthy, such as an element that exists."""
        deadline = time.monotonic() + seconds
        while not await self.run(f"!!({expression})"):
            if time.monotonic() > deadline:
                text = await self.run("document.body.innerText")
                raise AssertionError(f"after {seconds} s not yet {expression}; the page has {text}")
            await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def look(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Set the size of the window and the colour scheme that the user prefers."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, *keys: str) -> None:
        for key in keys:
            code, text = _KEYS.get(key) or (ord(key.upper()), key)
            event = {"key": key, "windowsVirtualKeyCode": code, "text": text}
            await self.send("Input.dispatchKeyEvent", type="keyDown", **event)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def click(self, text: str, kind: str = "button, a, summary") -> None:
        """Click on the element with exactly this text, once it exists."""
        find = (
            f"[...document.querySelectorAll({json.dumps(kind)})]"
            f".find((each) => each.innerText.trim() === {json.dumps(text)})"
        )
        await self.until(f"!!{find}")
        await self.run(f"{find}.click()")


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Page]:
    """Yield a tab of a browser of its own; skip the test if there is no browser."""
    process = await asyncio.create_subprocess_exec(
        *[
            chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
            f"--user-data-dir={folder}", "about:blank",
        ],
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await _port(folder / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [each for each in await answer.json() if each["type"] == "page"]
            socket = await session.ws_connect(
                tabs[0]["webSocketDebuggerUrl"], max_msg_size=64 * 1024 * 1024
            )
            page = Page(socket)
            await page.begin()
            try:
                yield page
            finally:
                await page.close()
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    for _ in range(600):
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return int((await asyncio.to_thread(file.read_text)).splitlines()[0])
        assert process.returncode is None, "the browser has ended"
        await asyncio.sleep(0.05)
    raise AssertionError("the browser did not say where it listens")
