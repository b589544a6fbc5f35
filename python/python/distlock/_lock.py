"""What is acquired: locks, permits of semaphores, and leaderships."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from distlock import _distlock as _native
from distlock import _wakeups
from distlock._aio import HeldBlock
from distlock._errors import Deadlock, Forked, Timeout
from distlock._guard import Guard, Leadership

if TYPE_CHECKING:
    from distlock._agent import Agent

G = TypeVar("G", bound=Guard)

_Opener = Callable[[_native.Agent], _native.Handle]


def _holder() -> object:
    """Who holds what is acquired now: the running task, or else this thread."""
    if asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            return task
    return threading.get_ident()


class _Holdings(Generic[G]):
    """Which guards an object has, by their holders."""

    def __init__(self) -> None:
        self.of: dict[object, list[G]] = {}

    def stack(self) -> list[G]:
        """Those of the caller, for one that is about to come."""
        return self.of.setdefault(_holder(), [])

    def tidy(self, stack: list[G]) -> None:
        """None has come to the caller's."""
        if not stack and self.of.get(holder := _holder()) is stack:
            del self.of[holder]

    def pop(self) -> G | None:
        """The caller's last guard. If the caller has none, the only one there is: a block may be
        left by another thread or task than it was entered by, as those of generators are."""
        holder = _holder()
        stack = self.of.get(holder)
        if not stack:
            stacks = [(of, stack) for of, stack in self.of.items() if stack]
            if len(stacks) != 1 or len(stacks[0][1]) != 1:
                return None
            holder, stack = stacks[0]
        guard = stack.pop()
        if not stack:
            self.of.pop(holder, None)
        return guard

    def last(self) -> G | None:
        """The caller's last guard."""
        stack = self.of.get(_holder())
        return stack[-1] if stack else None


class Acquirable(Generic[G]):
    """What `with` and `async with` acquire; it is not reentrant.

    Threads, tasks and event loops may share an object. In a forked child it holds nothing, and can
    be acquired anew."""

    _guard_type: type[G]
    _is_exclusive = False

    def __init__(
        self, agent: Agent, name: str | bytes, opener: _Opener, timeout: float | None
    ) -> None:
        self._agent = agent
        self._name = name
        self._opener = opener
        self._timeout = _checked(timeout)
        self._handle = opener(agent._native())
        self._parents: _Holdings[G] | None = None
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """At the start, and in each forked child."""
        # Of blocks, and of calls of `acquire`.
        self._held: _Holdings[G] = _Holdings()
        self._blocks: dict[int, HeldBlock] = {}

    def _after_fork(self) -> None:
        # The parent's guards stay referred to, and say whose they are when they are asked.
        self._parents = self._held
        self._begin()

    @property
    def name(self) -> str:
        """The name."""
        return self._name if isinstance(self._name, str) else self._name.decode(errors="replace")

    @property
    def timeout(self) -> float | None:
        """How many seconds it is waited for, if nothing else is said; `None` without a limit."""
        return self._timeout

    @property
    def guard(self) -> G | None:
        """The guard that this thread or task has acquired last by this object, and not released."""
        return self._held.last()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquires it, as `threading.Lock.acquire` does; whether it was acquired.

        -1 is the object's own timeout. The guard is `guard`. Ctrl-C, and what else raises in a
        signal handler, ends the wait."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        limit = self._timeout if timeout == -1 else _checked(timeout)
        try:
            if blocking:
                self._enter(limit)
            else:
                self._enter(0, tries=True)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Releases what `acquire` has acquired, in this thread or, if there is just one guard, in
        another. `LockLost` if it was lost before; `RuntimeError` if nothing is held."""
        guard = self._held.pop()
        if guard is None:
            raise RuntimeError("release of a lock that this thread or task does not hold")
        guard.release()

    def locked(self) -> bool:
        """Whether this object holds it, in any thread or task. Who else holds it
        `Agent.status` tells."""
        stacks = list(self._held.of.values())
        return any(guard.valid for stack in stacks for guard in stack)

    async def acquire_async(self, timeout: float | None = None) -> G:
        """Acquires it for a task, and returns the guard, which the task releases; `Timeout` if it
        was not free in time. By default the object's own timeout counts.

        Cancelled at any await it withdraws the request, and gives back what was granted meanwhile.
        The task is not cancelled when the lock is lost: `async with` does that."""
        limit = self._timeout if timeout is None else _checked(timeout)
        return self._guard_type(await self._granted(limit))

    async def _granted(self, limit: float | None) -> _native.Guard:
        guard: _native.Guard
        guard = await _wakeups.outcome(self._handle_now().acquire_async(limit))
        return guard

    def _enter(self, limit: float | None, tries: bool = False) -> G:
        stack = self._held.stack()
        try:
            # Once the guard is made nothing is called, so that no signal handler comes between:
            # what that raises would leave a guard that nobody releases.
            if tries:
                stack += (self._guard_type(_tried(self._handle_now().try_acquire())),)
            else:
                stack += (self._guard_type(self._handle_now().acquire(limit)),)
        except BaseException:
            self._held.tidy(stack)
            raise
        return stack[-1]

    def __enter__(self) -> G:
        return self._enter(self._timeout)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard = self._held.pop()
        if guard is None:
            self._leave_without_guard(error)
            return
        if error is not None:
            # The error is what is told.
            guard._native.drop()
            return
        if guard._native.is_released:
            return
        guard.release()

    async def __aenter__(self) -> G:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with a lock needs a task")
        if self._is_exclusive and self._held.of.get(task):
            raise Deadlock("this task holds the lock already; release it first")
        guard = self._guard_type(await self._granted(self._timeout))
        try:
            self._blocks[id(guard)] = HeldBlock(guard._native, task)
            stack = self._held.stack()
            stack += (guard,)
        except BaseException:
            self._blocks.pop(id(guard), None)
            guard._native.drop()
            raise
        return guard

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard = self._held.pop()
        if guard is None:
            self._leave_without_guard(error)
            return
        await self._blocks.pop(id(guard)).leave(error)

    def _leave_without_guard(self, error: BaseException | None) -> None:
        if error is not None:
            return
        if self._parents is not None and self._parents.of:
            raise Forked("the lock belongs to the parent of this process, which still holds it")
        raise RuntimeError("the block is left by another thread or task than entered it")

    def _handle_now(self) -> _native.Handle:
        """The handle; in a forked child a new one."""
        if self._handle.is_forked:
            self._handle = self._opener(self._agent._native())
        return self._handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Lock(Acquirable[Guard]):
    """A lock: one holder at a time, or several that share it. See `Agent.lock`."""

    _guard_type = Guard

    def __init__(
        self,
        agent: Agent,
        name: str | bytes,
        opener: _Opener,
        timeout: float | None,
        shared: bool,
    ) -> None:
        super().__init__(agent, name, opener, timeout)
        self._is_exclusive = True
        self._shared = shared

    @property
    def shared(self) -> bool:
        """Whether it is acquired to be shared."""
        return self._shared


class Semaphore(Acquirable[Guard]):
    """A counting semaphore: as many holders as it has permits. See `Agent.semaphore`."""

    _guard_type = Guard

    @property
    def permits(self) -> int:
        """How many may hold a permit at a time."""
        return self._handle_now().permits


class Campaign(Acquirable[Leadership]):
    """A candidacy: `with` waits until this process leads. See `Election.campaign`."""

    _guard_type = Leadership
    _is_exclusive = True


_all: weakref.WeakSet[Acquirable[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for acquirable in list(_all):
        acquirable._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _tried(guard: _native.Guard | None) -> _native.Guard:
    if guard is None:
        raise Timeout("the lock is held by another")
    return guard


def _checked(timeout: float | None) -> float | None:
    """A timeout, if it can be one: seconds, `None` or -1 without a limit."""
    if timeout is None or timeout == -1:
        return None
    if not timeout >= 0:
        raise ValueError("timeout value must be a non-negative number")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return float(timeout)
