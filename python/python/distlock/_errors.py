"""Why something did not work. Each message is one line: what failed, why, and what to do."""

from __future__ import annotations


class Error(Exception):
    """What all errors of this package are."""


class Timeout(Error, TimeoutError):
    """The lock was not free in time. Nothing is held."""


class LockLost(Error):
    """The lock is not held any more, or nobody knows whether it is: stop what goes on under it."""


class Forked(LockLost):
    """The lock belongs to the parent of this process, which still holds it; this process does
    not."""


class Deadlock(Error, RuntimeError):
    """This thread or task holds the lock already, and would wait for itself for ever."""


class NoQuorum(Error):
    """No majority of the group's voters was heard for one lease, or until the timeout."""

    missing: list[int]
    """The voters that would have to be there."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.missing = []


class NoAnswer(Error):
    """The host's agent, the group, or the store did not answer in time: it is not known who holds
    the lock."""


class StoreRefused(Error):
    """The store refuses what it takes to hold the lock, or its record of the lock cannot be
    used."""


class Closed(Error):
    """The agent was closed."""


class Disconnected(Error):
    """The host's agent is gone, or this member's session is over: open another agent."""


class LimitExceeded(Error):
    """There are too many locks, requests, clients or open files."""


class InvalidLock(Error, ValueError):
    """The name is invalid, or the lock is used in another way: by its algorithm, mode or
    permits."""


class SystemFailure(Error, OSError):
    """The system failed. ``errno`` says how."""


class OpenError(Error):
    """The agent could not be opened."""


class InvalidConfig(OpenError, ValueError):
    """The configuration, or the options, are refused."""


class AccessRefused(OpenError, PermissionError):
    """This process may not use a path, or the path is not safe to use."""


class Unreachable(OpenError, ConnectionError):
    """No agent answers at the socket."""
