"""How Python waits for what threads of an agent tell.

Such a thread never takes the GIL: it writes to an eventfd. An event loop reads that with
`add_reader`, and outside of loops a thread of this module reads it. So a busy interpreter costs no
lease, and learns late of what has happened."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import select
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from distlock import _distlock as _native

_tokens = itertools.count(1)


class _Watch:
    """Calls `done` with the outcome of `pending`, where the hub runs, unless it is cancelled
    before."""

    def __init__(self, hub: _Hub, pending: _native.Pending, done: Callable[[Any], None]) -> None:
        self._hub = hub
        self._pending = pending
        self._done = done
        self._token = next(_tokens)
        hub.waiting[self._token] = self._look
        self._look()

    def _look(self) -> None:
        outcome = self._pending.poll(self._hub.wakeups, self._token)
        if outcome is not None and self._hub.waiting.pop(self._token, None) is not None:
            self._done(outcome[0])

    def cancel(self) -> None:
        if self._hub.waiting.pop(self._token, None) is not None:
            self._pending.cancel()


class _Hub:
    """Those that wait by one eventfd."""

    def __init__(self) -> None:
        self.wakeups = _native.Wakeups()
        self.waiting: dict[int, Callable[[], None]] = {}

    def watch(self, pending: _native.Pending, done: Callable[[Any], None]) -> _Watch:
        return _Watch(self, pending, done)

    def on_readable(self) -> None:
        for token in self.wakeups.take():
            look = self.waiting.get(token)
            if look is not None:
                look()


class _LoopHub(_Hub):
    """Of an event loop, which it does not keep alive."""

    async def outcome(self, pending: _native.Pending) -> Any:
        """The outcome of `pending`, which is withdrawn if the task is cancelled at any await."""
        loop = asyncio.get_running_loop()
        token = next(_tokens)
        try:
            while (outcome := pending.poll(self.wakeups, token)) is None:
                waiter: asyncio.Future[None] = loop.create_future()
                self.waiting[token] = functools.partial(_wake, waiter)
                await waiter
            return outcome[0]
        finally:
            self.waiting.pop(token, None)
            pending.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _ThreadHub(_Hub):
    """Of a thread of its own, which runs callbacks."""

    def __init__(self) -> None:
        super().__init__()
        thread = threading.Thread(target=self._run, name="distlock-callbacks", daemon=True)
        thread.start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self.wakeups.fileno(), select.POLLIN)
        while True:
            poll.poll()
            try:
                self.on_readable()
            except Exception:
                # A callback's: the others are called all the same.
                sys.excepthook(*sys.exc_info())


_loop_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopHub]
_thread_hub: _ThreadHub | None
_mutex: threading.Lock


def _begin() -> None:
    """At the start, and in each forked child: eventfds and threads are the parent's."""
    global _loop_hubs, _thread_hub, _mutex
    _loop_hubs = weakref.WeakKeyDictionary()
    _thread_hub = None
    _mutex = threading.Lock()


_begin()
os.register_at_fork(after_in_child=_begin)


def loop_hub() -> _LoopHub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    hub = _loop_hubs.get(loop)
    if hub is None:
        hub = _LoopHub()
        loop.add_reader(hub.wakeups.fileno(), hub.on_readable)
        _loop_hubs[loop] = hub
    return hub


def thread_hub() -> _ThreadHub:
    """The hub of the thread that runs callbacks."""
    global _thread_hub
    with _mutex:
        if _thread_hub is None:
            _thread_hub = _ThreadHub()
        return _thread_hub


async def outcome(pending: _native.Pending) -> Any:
    """The outcome of `pending`, on any event loop."""
    return await loop_hub().outcome(pending)
