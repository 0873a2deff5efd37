"""Connection faults at a proxy: cut, lost, late, half open, refused.

Each returns evidence that it had an effect, or nothing if no bytes were in flight.
"""

from __future__ import annotations

import asyncio
import socket

from tests.support.proxy import Proxy

_PATIENCE_SECONDS = 3.0


async def cut(proxy: Proxy) -> str:
    """Abort every connection; accept new ones at once."""
    before = proxy.connections
    await proxy.refuse()
    await proxy.accept()
    for _ in range(100):
        if proxy.connections > before:
            return "connected again"
        await asyncio.sleep(0.05)
    return ""


async def lose_replies(proxy: Proxy, seconds: float) -> str:
    """Break connections after the server has carried out requests, but before replies arrive."""
    held = await _hold(proxy, seconds, forward=False)
    await proxy.refuse()
    _open(proxy)
    await proxy.accept()
    return "an answer was dropped" if held else ""


async def delay_replies(proxy: Proxy, seconds: float) -> str:
    """Delay replies by these seconds."""
    held = await _hold(proxy, seconds, forward=False)
    _open(proxy)
    return "an answer was held back" if held else ""


async def leave_half_open(proxy: Proxy, seconds: float) -> str:
    """Pass no bytes and close nothing; in the end drop the delayed bytes."""
    held = await _hold(proxy, seconds, forward=True)
    await proxy.refuse()
    _open(proxy)
    await proxy.accept()
    return "bytes went nowhere" if held else ""


async def refuse(proxy: Proxy, seconds: float) -> str:
    """Stop listening at the address for a while."""
    await proxy.refuse()
    try:
        refused = await asyncio.to_thread(_is_refused, proxy.port)
        await asyncio.sleep(seconds)
    finally:
        await proxy.accept()
    return "connection refused" if refused else ""


async def _hold(proxy: Proxy, seconds: float, *, forward: bool) -> bool:
    proxy.held.clear()
    proxy.backward.clear()
    if forward:
        proxy.forward.clear()
    try:
        await asyncio.sleep(seconds)
        if not proxy.held.is_set():
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await proxy.held.wait()
    except TimeoutError:
        pass
    return proxy.held.is_set()


def _open(proxy: Proxy) -> None:
    proxy.forward.set()
    proxy.backward.set()


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False
