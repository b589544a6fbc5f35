"""The guard: proof that a lock is held."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Literal

from distlock import _distlock as _native
from distlock import _wakeups
from distlock._errors import LockLost


class State(enum.StrEnum):
    """What a guard proves now."""

    VALID = "valid"
    """The lock is held."""
    SUSPENDED = "suspended"
    """The lease has expired, and it is not known whether the lock is lost: pause what goes on."""
    LOST = "lost"
    """The lock is lost, was released, or belongs to the parent process: stop what goes on."""


class PreviousOwner(enum.StrEnum):
    """How the holder before has left the lock."""

    CLEAN = "clean"
    """It released the lock, or there was none."""
    ABANDONED = "abandoned"
    """It died while it held the lock: what the lock protects may be half done."""


class Guard:
    """A held lock, or a held permit of a semaphore.

    It is released at the end of its block, by `release`, or when nobody refers to it any more.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Guard) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._native.name.decode(errors="backslashreplace")

    @property
    def fence(self) -> int:
        """The fencing token: larger than those of all exclusive holders before. Send it with each
        request to what the lock protects, which rejects one lower than the highest it has seen.

        `RuntimeError` in a group with ``failure = "presume-failed"``, which gives none.
        """
        fence = self._native.fence
        if fence is None:
            raise RuntimeError('a group with failure = "presume-failed" gives no fences')
        return fence

    @property
    def state(self) -> State:
        """Whether the lock is held now, and if not whether that may change. It asks nobody."""
        return State(self._native.state())

    @property
    def valid(self) -> bool:
        """Whether the lock is held now."""
        return self._native.state() == "valid"

    @property
    def lapses(self) -> int:
        """How often the lease has expired and was renewed, without another holder in between. It
        counts for a process that is a member itself."""
        return self._native.lapses

    @property
    def remaining(self) -> float | None:
        """For how many seconds the lock stays held even if nothing is heard from the group; `None`
        where no lease bounds it, as in the local group."""
        return self._native.remaining()

    @property
    def previous_owner(self) -> PreviousOwner:
        """How the holder before has left the lock."""
        abandoned = self._native.is_abandoned
        return PreviousOwner.ABANDONED if abandoned else PreviousOwner.CLEAN

    def check(self) -> None:
        """Raises `LockLost` unless the lock is held now."""
        self._native.check()

    def release(self) -> None:
        """Releases the lock. `LockLost` if it was lost before: then another may have held it since.
        A guard that was released already stays so."""
        pending = self._native.release()
        if pending is not None:
            pending.wait()

    async def release_async(self) -> None:
        """The same for a task. Cancelled, the lock is released, and how that ended is not told."""
        pending = self._native.release()
        if pending is not None:
            await _wakeups.outcome(pending)

    def abandon(self) -> None:
        """Releases the lock, and tells the next holder that what it protects may be half done: its
        `previous_owner` is `PreviousOwner.ABANDONED`."""
        if not self._native.abandon():
            raise LockLost("the lock was released before")

    def on_loss(self, callback: Callable[[Literal["revoked", "closed"]], object]) -> None:
        """Calls `callback` once when the lock is lost, with ``"revoked"``, or with ``"closed"``
        when the agent is closed; never after a release, and not while the lock is only suspended.

        It is called on a thread of its own, as soon as the interpreter lets that run.
        """

        def lost(reason: Literal["revoked", "closed"] | None) -> None:
            if reason is not None:
                callback(reason)

        _wakeups.thread_hub().watch(self._native.lost(), lost)

    async def lost(self) -> Literal["revoked", "closed"] | None:
        """Waits until the lock is lost, and tells why; `None` when it was released."""
        reason: Literal["revoked", "closed"] | None
        reason = await _wakeups.outcome(self._native.lost())
        return reason

    async def invalid(self) -> State:
        """Waits until the lock is suspended, lost or released, whichever is first."""
        return State(await _wakeups.outcome(self._native.invalid()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} fence={self._native.fence} {self.state}>"


class Leadership(Guard):
    """The proof of leading: a guard of the election's lock."""

    __slots__ = ()

    def resign(self) -> None:
        """Leads no more, so that another is elected. `LockLost` if the leadership was lost
        before."""
        self.release()
