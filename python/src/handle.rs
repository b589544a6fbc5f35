//! A lock, a semaphore or an election by its name, and the requests for it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use distlock::{
    DistMutex, Election, LockError, Semaphore, TimedLockError, TimedWaiting, TryLockError, Waiting,
};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::guard::Guard;
use crate::pending::{Outcome, Pending, SLICE};

/// A lock, a semaphore or an election.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Handle {
    agent: distlock::Agent,
    kind: Kind,
}

pub(crate) enum Kind {
    Mutex(Arc<dyn DistMutex>),
    Semaphore(Semaphore),
    Election(Election),
}

impl Handle {
    pub(crate) fn new(agent: distlock::Agent, kind: Kind) -> Self {
        Self { agent, kind }
    }
}

#[pymethods]
impl Handle {
    #[getter]
    fn is_forked(&self) -> bool {
        self.agent.is_forked()
    }

    #[getter]
    fn permits(&self) -> u32 {
        match &self.kind {
            Kind::Semaphore(semaphore) => semaphore.permits().get(),
            _ => 1,
        }
    }

    /// Acquires it if it is free; else `None`.
    fn try_acquire(&self, py: Python<'_>) -> PyResult<Option<Guard>> {
        match py.detach(|| self.kind.try_acquire()) {
            Ok(guard) => Ok(Some(Guard::new(&self.agent, guard))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Failed(error)) => Err(Failure::from(error).into()),
            Err(error) => Err(Failure::new("Error", error).into()),
        }
    }

    /// Waits for it, in slices: the request keeps its place, and a signal whose handler raises
    /// withdraws it.
    #[pyo3(signature = (timeout=None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Guard> {
        let timeout = timeout.map(duration).transpose()?;
        let begin = || {
            let mut request = self.kind.begin(timeout)?;
            let first = request.wait();
            Ok((request, first))
        };
        let (mut request, mut outcome) = py
            .detach(begin)
            .map_err(|error: LockError| PyErr::from(Failure::from(error)))?;
        loop {
            if let Poll::Ready(outcome) = outcome {
                let guard = outcome.map_err(timed)?;
                return Ok(Guard::new(&self.agent, guard));
            }
            if let Err(interrupt) = py.check_signals() {
                py.detach(|| drop(request));
                return Err(interrupt);
            }
            outcome = py.detach(|| request.wait());
        }
    }

    /// The same for a task.
    #[pyo3(signature = (timeout=None))]
    fn acquire_async(&self, timeout: Option<f64>) -> PyResult<Pending> {
        let timeout = timeout.map(duration).transpose()?;
        Ok(match (&self.kind, timeout) {
            (Kind::Mutex(mutex), None) => self.pending(mutex.lock_async()),
            (Kind::Mutex(mutex), Some(time)) => self.pending(mutex.lock_async_for(time)),
            (Kind::Semaphore(semaphore), None) => self.pending(semaphore.acquire_async()),
            (Kind::Semaphore(semaphore), Some(time)) => {
                self.pending(semaphore.acquire_async_for(time))
            }
            (Kind::Election(election), None) => {
                let leads = election.campaign_async();
                self.pending(async { leads.await.map(distlock::Leadership::into_guard) })
            }
            (Kind::Election(election), Some(time)) => {
                let leads = election.campaign_async_for(time);
                self.pending(async { leads.await.map(distlock::Leadership::into_guard) })
            }
        })
    }

    /// Who leads, now and whenever that changes.
    fn observe(&self) -> PyResult<Observing> {
        match &self.kind {
            Kind::Election(election) => Ok(Observing {
                _agent: self.agent.clone(),
                leaders: Arc::new(Mutex::new(election.observe_async())),
            }),
            _ => Err(PyValueError::new_err("this is no election")),
        }
    }
}

impl Handle {
    fn pending<F, E>(&self, locking: F) -> Pending
    where
        F: Future<Output = Result<distlock::Guard, E>> + Send + 'static,
        E: Into<TimedLockError> + Send + 'static,
    {
        let agent = self.agent.clone();
        Pending::new(async move {
            let outcome = locking.await;
            Box::new(move |py: Python<'_>| {
                let guard = outcome.map_err(|error| timed(error.into()))?;
                Ok(Py::new(py, Guard::new(&agent, guard))?.into_any())
            }) as Outcome
        })
    }
}

impl Kind {
    fn try_acquire(&self) -> Result<distlock::Guard, TryLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock(),
            Self::Semaphore(semaphore) => semaphore.try_acquire(),
            Self::Election(election) => election
                .try_campaign()
                .map(distlock::Leadership::into_guard),
        }
    }

    fn begin(&self, timeout: Option<Duration>) -> Result<Request, LockError> {
        Ok(match (self, timeout) {
            (Self::Mutex(mutex), None) => Request::Unlimited(mutex.begin()?),
            (Self::Mutex(mutex), Some(time)) => Request::Timed(mutex.begin_for(time)?),
            (Self::Semaphore(semaphore), None) => Request::Unlimited(semaphore.begin()?),
            (Self::Semaphore(semaphore), Some(time)) => Request::Timed(semaphore.begin_for(time)?),
            (Self::Election(election), None) => Request::Unlimited(election.begin()?),
            (Self::Election(election), Some(time)) => Request::Timed(election.begin_for(time)?),
        })
    }
}

/// A request of a thread.
enum Request {
    Unlimited(Waiting),
    Timed(TimedWaiting),
}

impl Request {
    /// Waits for a slice.
    fn wait(&mut self) -> Poll<Result<distlock::Guard, TimedLockError>> {
        match self {
            Self::Unlimited(waiting) => waiting
                .wait_slice(SLICE)
                .map(|outcome| outcome.map_err(TimedLockError::from)),
            Self::Timed(waiting) => waiting.wait_slice(SLICE),
        }
    }
}

/// Tells who leads.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Observing {
    /// The agent closes with the last that has it, and then there is nothing to tell.
    _agent: distlock::Agent,
    leaders: Arc<Mutex<distlock::Observing>>,
}

#[pymethods]
impl Observing {
    /// The next leader, a tuple of its member, its fence, its host and its process, within a tuple, which is empty if nobody
    /// leads; `None` when the agent has closed. A call that is cancelled misses nothing.
    fn next(&self) -> Pending {
        let leaders = Arc::clone(&self.leaders);
        Pending::new(async move {
            let told = poll_fn(|context| {
                let mut leaders = leaders.lock().unwrap_or_else(PoisonError::into_inner);
                pin!(leaders.next()).poll(context)
            })
            .await;
            let of = |leader: distlock::Leader| {
                let fence = leader.fence.map(u64::from);
                let member = leader.member.map(u16::from);
                (member, fence, leader.host, leader.pid)
            };
            let told = told.map(|leader| (leader.map(of),));
            Box::new(move |py: Python<'_>| Ok(told.into_pyobject(py)?.into_any().unbind()))
                as Outcome
        })
    }
}

/// Why a request with or without a time limit failed.
fn timed(error: TimedLockError) -> PyErr {
    match error {
        TimedLockError::TimedOut => Failure::new("Timeout", error),
        TimedLockError::Failed(error) => Failure::from(error),
        error => Failure::new("Error", error),
    }
    .into()
}

/// So many seconds. `threading.TIMEOUT_MAX` is the largest number of them, here as there.
fn duration(seconds: f64) -> PyResult<Duration> {
    const MAX_SECONDS: f64 = 9_223_372_036.0;
    if seconds > MAX_SECONDS {
        return Err(PyOverflowError::new_err("timeout value is too large"));
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err("timeout value must be a non-negative number"))
}
