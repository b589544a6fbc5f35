"""A class in the shape of `filelock.FileLock`, over a group's lock in place of a file's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from os import PathLike
from types import TracebackType

from distlock._agent import Agent
from distlock._errors import Timeout as _Timeout
from distlock._guard import Guard
from distlock._lock import Lock

# A lock's name has at most so many bytes.
_MAX_NAME = 255


class FileLockTimeout(_Timeout):
    """A `FileLock` was not free in time."""

    def __init__(self, lock_file: str) -> None:
        super().__init__(f"The file lock '{lock_file}' could not be acquired.")
        self._lock_file = lock_file

    @property
    def lock_file(self) -> str:
        """The path of the lock."""
        return self._lock_file

    def __reduce__(self) -> tuple[type[FileLockTimeout], tuple[str]]:
        return type(self), (self._lock_file,)


class AcquireReturnProxy:
    """What `FileLock.acquire` returns: a context manager that releases the lock at its end."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lock._leave(error)


class _Held:
    """How often it is held, and by which lock."""

    def __init__(self) -> None:
        self.count = 0
        self.guard: Guard | None = None
        self.pid = os.getpid()


class _HeldByThread(_Held, threading.local):
    """The same for each thread."""


class FileLock:
    """A reentrant lock with the interface of ``filelock.FileLock``.

    What excludes others is the lock `name` of the group, which stands for the real path of
    `lock_file`: no file is made, and programs that use the package ``filelock`` are not excluded.
    By default it is the local group: the processes of this user on this host. With `agent` it is
    that agent's group, and over several hosts the path means the same lock on all of them.

    `mode` and `poll_interval` are accepted, and change nothing.
    """

    def __init__(
        self,
        lock_file: str | PathLike[str],
        timeout: float = -1,
        mode: int = -1,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        poll_interval: float = 0.05,
        agent: Agent | None = None,
    ) -> None:
        self._lock_file = os.fspath(lock_file)
        self._timeout = float(timeout)
        self._is_thread_local = thread_local
        self._held: _Held = _HeldByThread() if thread_local else _Held()
        self._lock: Lock = (agent or _local_agent()).lock(_name(self._lock_file))
        self.blocking = blocking

    def is_thread_local(self) -> bool:
        """Whether each thread has a count of its own, and waits for the others."""
        return self._is_thread_local

    @property
    def lock_file(self) -> str:
        """The path, as it was given."""
        return self._lock_file

    @property
    def name(self) -> str:
        """The name of the group's lock."""
        return self._lock.name

    @property
    def timeout(self) -> float:
        """How many seconds `acquire` waits by default; negative without a limit."""
        return self._timeout

    @timeout.setter
    def timeout(self, value: float) -> None:
        self._timeout = float(value)

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock; with `thread_local`, in this thread."""
        return self._now().guard is not None

    @property
    def lock_counter(self) -> int:
        """How often it was acquired and not released."""
        return self._now().count

    @property
    def guard(self) -> Guard | None:
        """The guard, which has a fence and tells of a loss; `None` while it is not held."""
        return self._now().guard

    def acquire(
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,
        *,
        blocking: bool | None = None,
    ) -> AcquireReturnProxy:
        """Acquires the lock, or counts one more where it is held. `Timeout` if it was not free
        within `timeout` seconds: a negative one is no limit, and `None` the object's own."""
        held = self._now()
        if held.guard is not None:
            held.count += 1
            return AcquireReturnProxy(self)
        limit = self._timeout if timeout is None else timeout
        if not (self.blocking if blocking is None else blocking):
            limit = 0
        try:
            self._lock._enter(None if limit < 0 else limit, tries=limit == 0)
        except _Timeout:
            raise FileLockTimeout(self._lock_file) from None
        held.guard, held.count = self._lock._held.pop(), 1
        return AcquireReturnProxy(self)

    def release(self, force: bool = False) -> None:
        """Releases it if it was acquired once, or with `force`; else counts one less. It does
        nothing where it is not held; `LockLost` if it was lost before."""
        held = self._now()
        if held.guard is None:
            return
        held.count = 0 if force else held.count - 1
        if held.count == 0:
            guard, held.guard = held.guard, None
            guard.release()

    def _leave(self, error: BaseException | None) -> None:
        """Releases it at the end of a block, of which `error` is on its way."""
        with contextlib.ExitStack() as stack:
            if error is not None:
                # That it was lost, too, is not told.
                stack.enter_context(contextlib.suppress(Exception))
            self.release()

    def _now(self) -> _Held:
        """What is held in this process."""
        if self._held.pid != os.getpid():
            # Forked: what it has is the parent's.
            self._held.__init__()  # type: ignore[misc]
        return self._held

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)

    def __repr__(self) -> str:
        return f"<FileLock {self._lock_file!r}>"


_agent: Agent | None = None


def _local_agent() -> Agent:
    """The agent of all that were given none."""
    global _agent
    if _agent is None:
        # If two threads come first, one of two agents is kept, which is as good.
        _agent = Agent(local=True)
    return _agent


def _name(path: str) -> bytes:
    """The lock's name: the path itself, unless that is too long."""
    real = os.fsencode(os.path.realpath(path))
    name = b"file:" + real
    if len(name) > _MAX_NAME:
        name = b"file-sha256:" + hashlib.sha256(real).hexdigest().encode()
    return name
