"""The agent: this process's part in a group."""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import weakref
from collections.abc import Callable
from os import PathLike
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from distlock import _distlock as _native
from distlock._election import Election
from distlock._errors import Closed
from distlock._lock import Lock, Semaphore

P = ParamSpec("P")
R = TypeVar("R")

StrPath = str | PathLike[str]


class Agent:
    """This process's part in a group: the group's locks come from here.

    Without arguments it is what the program ``distlock`` uses: what the environment says
    (``DISTLOCK_AT``, ``DISTLOCK_SOCKET``, ``DISTLOCK_CONFIG`` with ``DISTLOCK_ID``,
    ``DISTLOCK_DIR``), else this host's agent, else the local group: the processes of this user on
    this host.

    - ``at``: the group at that place, as ``distlock run --at`` takes it: a store's, like
      ``etcd://10.0.0.1,10.0.0.2?group=shop`` or ``postgresql://app@db/shop``.
    - ``local=True``: the local group, whatever the environment says; ``directory``: the one in that
      directory.
    - ``socket``: the group of the agent that serves this socket (``distlock agent``).
    - ``config`` and ``id``, and ``state_dir`` if wanted: a member of the configured group, with an
      agent in a thread of this process.

    Threads share an agent freely. After a fork the child's is opened anew when it is used first.
    Opening, and opening a lock, asks the host's agent, and so may block for a moment.
    """

    def __init__(
        self,
        *,
        at: str | None = None,
        local: bool = False,
        directory: StrPath | None = None,
        socket: StrPath | None = None,
        config: StrPath | None = None,
        id: int | None = None,
        state_dir: StrPath | None = None,
    ) -> None:
        self._open = functools.partial(
            _native.Agent.open,
            at=at,
            local=local,
            directory=directory,
            socket=socket,
            config=config,
            member=(id, state_dir),
        )
        self._opening = threading.Lock()
        self._is_closed = False
        self._opened = self._open()
        _all.add(self)

    def _native(self) -> _native.Agent:
        """The agent of this process."""
        if self._is_closed:
            raise Closed("the agent was closed; open another")
        if not self._opened.is_forked:
            return self._opened
        with self._opening:
            # One thread opens it for all.
            if self._opened.is_forked:
                self._opened = self._open()
            return self._opened

    def lock(
        self,
        name: str | bytes,
        *,
        timeout: float | None = None,
        shared: bool = False,
        algorithm: str | None = None,
        command: str | None = None,
        abort_on_loss: bool = False,
    ) -> Lock:
        """The lock `name`, of 1 to 255 bytes without NUL.

        `timeout`: after so many seconds of waiting `with` raises `Timeout`. `shared`: together with
        others that share it. `algorithm`: the one that must serve it. `command`: what `status`
        shows as the holder's command. `abort_on_loss`: SIGABRT ends this process when the lease
        expires or the lock is lost, for programs that have no better way to stop in time."""

        def opener(agent: _native.Agent) -> _native.Handle:
            return agent.mutex(
                _bytes(name),
                shared=shared,
                algorithm=algorithm,
                command=command,
                abort_on_loss=abort_on_loss,
            )

        return Lock(self, name, opener, timeout, shared)

    def semaphore(
        self,
        name: str | bytes,
        permits: int | None = None,
        *,
        timeout: float | None = None,
        algorithm: str | None = None,
        command: str | None = None,
        abort_on_loss: bool = False,
    ) -> Semaphore:
        """The counting semaphore `name`, with so many permits; by default as many as the
        configuration says. In the local group all callers say it, and the same. The rest is as for
        `lock`."""

        def opener(agent: _native.Agent) -> _native.Handle:
            return agent.semaphore(
                _bytes(name),
                permits,
                algorithm=algorithm,
                command=command,
                abort_on_loss=abort_on_loss,
            )

        return Semaphore(self, name, opener, timeout)

    def election(
        self,
        name: str | bytes,
        *,
        algorithm: str | None = None,
        command: str | None = None,
        abort_on_loss: bool = False,
    ) -> Election:
        """The election `name`: its leader holds the lock of that name. `algorithm`: the one by
        which the group must elect. The rest is as for `lock`."""

        def opener(agent: _native.Agent) -> _native.Handle:
            return agent.election(
                _bytes(name), algorithm=algorithm, command=command, abort_on_loss=abort_on_loss
            )

        return Election(self, name, opener)

    def locked(
        self,
        name: str | bytes,
        *,
        timeout: float | None = None,
        shared: bool = False,
        algorithm: str | None = None,
        command: str | None = None,
        abort_on_loss: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Has each call of a function, or of a coroutine function, hold the lock `name`, which is
        as for `lock`. The function may not call itself."""
        lock = self.lock(
            name,
            timeout=timeout,
            shared=shared,
            algorithm=algorithm,
            command=command,
            abort_on_loss=abort_on_loss,
        )

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError("a generator runs after its call has ended: use `with` in it")
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def in_task(*args: P.args, **kwargs: P.kwargs) -> Any:
                    async with lock:
                        return await function(*args, **kwargs)

                return cast(Callable[P, R], in_task)

            @functools.wraps(function)
            def in_thread(*args: P.args, **kwargs: P.kwargs) -> R:
                with lock:
                    return function(*args, **kwargs)

            return in_thread

        return decorate

    def status(self) -> dict[str, Any]:
        """The group as this agent sees it, its members, locks, holders and waiters: what ``distlock
        status --json`` prints, whose schema is ``share/distlock/status.schema.json``."""
        status: dict[str, Any] = json.loads(self._native().status())
        return status

    @property
    def lease(self) -> float | None:
        """The group's lease in seconds: a holder that is cut off from the group stops before so
        much time has passed. `None` in the local group, where no lock is lost."""
        return self._native().lease

    def close(self) -> None:
        """Ends this process's part: guards lose their locks, which are released, and whoever waits
        gets `Closed`. In a forked child it does nothing to the parent's."""
        self._is_closed = True
        self._opened.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_all: weakref.WeakSet[Agent] = weakref.WeakSet()


def _after_fork() -> None:
    for agent in list(_all):
        agent._opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
