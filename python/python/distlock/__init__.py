"""Mutual exclusion across threads, processes and hosts, without a server.

    import distlock

    agent = distlock.Agent()
    with agent.lock("printer", timeout=10) as guard:
        print("held, fence", guard.fence)

doc/python.md in distlock's repository has the rest.
"""

from distlock._agent import Agent
from distlock._election import Election, Leader, Leaders
from distlock._errors import (
    AccessRefused,
    Closed,
    Deadlock,
    Disconnected,
    Error,
    Forked,
    InvalidConfig,
    InvalidLock,
    LimitExceeded,
    LockLost,
    NoAnswer,
    NoQuorum,
    OpenError,
    StoreRefused,
    SystemFailure,
    Timeout,
    Unreachable,
)
from distlock._filelock import AcquireReturnProxy, FileLock, FileLockTimeout
from distlock._guard import Guard, Leadership, PreviousOwner, State
from distlock._lock import Acquirable, Campaign, Lock, Semaphore

__all__ = [
    "AccessRefused",
    "Acquirable",
    "AcquireReturnProxy",
    "Agent",
    "Campaign",
    "Closed",
    "Deadlock",
    "Disconnected",
    "Election",
    "Error",
    "FileLock",
    "FileLockTimeout",
    "Forked",
    "Guard",
    "InvalidConfig",
    "InvalidLock",
    "Leader",
    "Leaders",
    "Leadership",
    "LimitExceeded",
    "Lock",
    "LockLost",
    "NoAnswer",
    "NoQuorum",
    "OpenError",
    "PreviousOwner",
    "Semaphore",
    "State",
    "StoreRefused",
    "SystemFailure",
    "Timeout",
    "Unreachable",
]
