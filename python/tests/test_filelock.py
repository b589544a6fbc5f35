"""`FileLock` in place of that of the package `filelock`: the first tests run with both."""

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import distlock
import filelock
import pytest
from conftest import PATIENCE
from distlock import Agent, FileLock

Open = Callable[..., Any]


@pytest.fixture(params=["distlock", "filelock"])
def open_lock(request: pytest.FixtureRequest, agents: list[Agent], directory: pathlib.Path) -> Open:
    path = directory / "x.lock"

    def open(**options: Any) -> Any:
        if request.param == "filelock":
            return filelock.FileLock(path, **options)
        return FileLock(path, agent=agents[0], **options)

    return open


def in_thread(body: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_it_is_reentrant(open_lock: Open) -> None:
    lock = open_lock()
    assert not lock.is_locked and lock.lock_counter == 0
    with lock:
        with lock.acquire(timeout=0) as same:
            assert same is lock
            assert lock.is_locked and lock.lock_counter == 2
            lock.acquire(poll_interval=1)
            lock.release()
        assert lock.is_locked and lock.lock_counter == 1
    assert not lock.is_locked and lock.lock_counter == 0
    lock.release()
    lock.acquire()
    lock.acquire()
    lock.release(force=True)
    assert not lock.is_locked and lock.lock_counter == 0
    assert lock.is_thread_local()
    assert os.path.basename(lock.lock_file) == "x.lock"


def test_it_excludes_other_objects_and_threads(open_lock: Open) -> None:
    lock, other = open_lock(), open_lock(timeout=0.05)

    def refused() -> None:
        assert not lock.is_locked
        for tries in (
            other.acquire,
            lambda: lock.acquire(timeout=0.05),
            lambda: lock.acquire(blocking=False),
            open_lock(blocking=False).acquire,
        ):
            with pytest.raises(TimeoutError) as late:
                tries()
            assert os.path.basename(late.value.lock_file) == "x.lock"  # type: ignore[attr-defined]
            assert "could not be acquired" in str(late.value)

    def granted() -> None:
        with other, pytest.raises(ZeroDivisionError):
            raise ZeroDivisionError

    with lock:
        in_thread(refused)
    in_thread(granted)
    assert other.timeout == 0.05
    other.timeout = 3
    assert other.timeout == 3.0


def test_threads_may_share_a_count(open_lock: Open) -> None:
    lock = open_lock(thread_local=False)
    lock.acquire()
    in_thread(lock.acquire)
    assert lock.lock_counter == 2
    in_thread(lambda: lock.release(force=True))
    in_thread(open_lock(timeout=0).acquire)


def test_one_that_nobody_refers_to_is_released(open_lock: Open) -> None:
    open_lock().acquire()
    gc.collect()
    with open_lock(timeout=0):
        pass


def test_a_child_holds_nothing_of_its_parents(open_lock: Open) -> None:
    lock = open_lock()
    with lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(TimeoutError):
                    open_lock(timeout=0.05).acquire()
                code = 0 if not lock.is_locked else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lock.is_locked
        with pytest.raises((TimeoutError, RuntimeError)):
            open_lock(timeout=0).acquire()


def test_a_path_is_one_lock_however_it_is_written(
    agents: list[Agent], directory: pathlib.Path
) -> None:
    (directory / "below").mkdir()
    (directory / "link").symlink_to("below")
    first = FileLock(directory / "link" / "x", agent=agents[0])
    second = FileLock(f"{directory}/below/../below/x", agent=agents[1], timeout=0)
    with first:
        assert first.guard is not None and first.guard.fence > 0
        assert first.name == second.name
        with pytest.raises(distlock.Timeout):
            second.acquire()
    assert os.listdir(directory / "below") == []
    long = FileLock(directory / ("x" * 300), agent=agents[0])
    assert long.name.startswith("file-sha256:")
    with long:
        pass


def test_a_loss_is_told_at_the_end(agents: list[Agent], directory: pathlib.Path) -> None:
    lock = FileLock(directory / "x", agent=agents[0])
    with pytest.raises(distlock.LockLost):
        with lock:
            agents[0].close()
    assert not lock.is_locked


def test_by_default_it_is_the_local_groups(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTLOCK_DIR", str(directory / "own"))
    monkeypatch.setenv("DISTLOCK_SOCKET", str(directory / "none.sock"))
    monkeypatch.setattr("distlock._filelock._agent", None)
    with FileLock(directory / "x") as lock:
        assert lock.is_locked
    assert (directory / "own").is_dir()


def test_a_timeout_can_be_pickled() -> None:
    late = pickle.loads(pickle.dumps(distlock.FileLockTimeout("x.lock")))
    assert (type(late), late.lock_file) == (distlock.FileLockTimeout, "x.lock")
