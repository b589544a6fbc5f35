"""A block of a task that is cancelled when its lock is not held any more."""

from __future__ import annotations

import asyncio

from distlock import _distlock as _native
from distlock import _wakeups
from distlock._errors import LockLost


class HeldBlock:
    """Cancels its task when the guard is suspended or lost, as `asyncio.timeout` does at its
    time."""

    def __init__(self, guard: _native.Guard, task: asyncio.Task[object]) -> None:
        self._guard = guard
        self._task = task
        # What was asked of the task before is not ours to take back.
        self._cancelling = task.cancelling()
        self._state: str | None = None
        self._is_over = False
        self._watch = _wakeups.loop_hub().watch(guard.invalid(), self._on_invalid)

    def _on_invalid(self, state: str) -> None:
        # A task that is cancelled while it runs would hear of it at its next await, be that after
        # the block.
        if self._task is asyncio.current_task():
            self._task.get_loop().call_soon(self._cancel, state)
        else:
            self._cancel(state)

    def _cancel(self, state: str) -> None:
        if self._is_over or self._guard.is_released:
            return
        self._state = state
        self._task.cancel(f"the lock is {state}")

    async def leave(self, error: BaseException | None) -> None:
        """Ends it. `error` is on its way out of the block."""
        self._is_over = True
        self._watch.cancel()
        if self._state is not None:
            self._guard.drop()
            is_ours = self._task.uncancel() <= self._cancelling
            if error is None or is_ours and isinstance(error, asyncio.CancelledError):
                raise self._loss() from error
            return
        if error is not None:
            # How it ended is not told then, so it is not waited for.
            self._guard.drop()
            return
        pending = self._guard.release()
        if pending is not None:
            await _wakeups.outcome(pending)

    def _loss(self) -> LockLost:
        if self._state == "suspended":
            return LockLost(
                "the lease expired before the block ended, and another may have acquired the lock"
            )
        return LockLost("the lock was lost before the block ended: another may have acquired it")
