"""Elections: one process leads, and another takes over when it is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from distlock import _distlock as _native
from distlock import _wakeups
from distlock._lock import Campaign, _Opener

if TYPE_CHECKING:
    from distlock._agent import Agent


class Leader(NamedTuple):
    """Who leads."""

    member: int | None
    """Its member; `None` where a store has the locks, which knows no members."""
    fence: int | None
    """Its fence; `None` where the group gives none."""
    host: str | None = None
    """Its host, where a store has the locks."""
    pid: int | None = None
    """Its process there."""


class Election:
    """An election. See `Agent.election`."""

    def __init__(self, agent: Agent, name: str | bytes, opener: _Opener) -> None:
        self._agent = agent
        self._name = name
        self._opener = opener
        # Whatever is wrong with it is told now.
        self._handle = opener(agent._native())

    def campaign(self, timeout: float | None = None) -> Campaign:
        """What waits in `with`, `async with` or `acquire` until this process leads, for so many
        seconds at most, and has a `Leadership` then."""
        return Campaign(self._agent, self._name, self._opener, timeout)

    def observe(self) -> Leaders:
        """Who leads, now and whenever that changes, for `for` or `async for`. It ends when the
        agent is closed, and in the local group, which has none to tell, at once."""
        if self._handle.is_forked:
            self._handle = self._opener(self._agent._native())
        return Leaders(self._handle.observe())


class Leaders(Iterator["Leader | None"], AsyncIterator["Leader | None"]):
    """Tells who leads; `None` if nobody does. One that lags far behind misses changes."""

    def __init__(self, observing: _native.Observing) -> None:
        self._observing = observing

    def __iter__(self) -> Leaders:
        return self

    def __next__(self) -> Leader | None:
        told = self._observing.next().wait()
        if told is None:
            raise StopIteration
        return _leader(told)

    def __aiter__(self) -> Leaders:
        return self

    async def __anext__(self) -> Leader | None:
        told = await _wakeups.outcome(self._observing.next())
        if told is None:
            raise StopAsyncIteration
        return _leader(told)


def _leader(
    told: tuple[tuple[int | None, int | None, str | None, int | None] | None],
) -> Leader | None:
    return None if told[0] is None else Leader(*told[0])
