//! A held lock.

use std::future::ready;
use std::sync::{Mutex, PoisonError};

use distlock::{GuardState, Loss, PreviousOwner};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::pending::{Outcome, Pending};

/// A held lock. It is released when nobody refers to it any more.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Guard {
    agent: distlock::Agent,
    /// `None` once it is released.
    held: Mutex<Option<distlock::Guard>>,
    name: Vec<u8>,
    fence: Option<u64>,
    is_abandoned: bool,
}

impl Guard {
    pub(crate) fn new(agent: &distlock::Agent, guard: distlock::Guard) -> Self {
        Self {
            agent: agent.clone(),
            name: guard.name().as_bytes().to_vec(),
            fence: guard.fence().map(u64::from),
            is_abandoned: guard.previous_owner() == PreviousOwner::Abandoned,
            held: Mutex::new(Some(guard)),
        }
    }

    fn look<T>(&self, look: impl FnOnce(&distlock::Guard) -> T) -> Option<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(look)
    }

    fn take(&self) -> Option<distlock::Guard> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take()
    }
}

#[pymethods]
impl Guard {
    #[getter]
    fn name(&self) -> &[u8] {
        &self.name
    }

    #[getter]
    fn fence(&self) -> Option<u64> {
        self.fence
    }

    #[getter]
    fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    #[getter]
    fn is_released(&self) -> bool {
        self.look(|_| ()).is_none()
    }

    #[getter]
    fn is_forked(&self) -> bool {
        self.agent.is_forked()
    }

    #[getter]
    fn lapses(&self) -> u64 {
        self.look(distlock::Guard::lapses).unwrap_or(0)
    }

    /// For how many seconds it stays held if nothing is heard; `None` without a lease.
    fn remaining(&self) -> Option<f64> {
        let remaining = self.look(distlock::Guard::remaining);
        remaining.map_or(Some(0.0), |left| left.map(|left| left.as_secs_f64()))
    }

    fn state(&self) -> &'static str {
        state(self.look(distlock::Guard::state))
    }

    /// # Errors
    /// If the lock is not held, and why.
    fn check(&self) -> PyResult<()> {
        match self.look(distlock::Guard::state) {
            Some(GuardState::Valid) => Ok(()),
            _ if self.agent.is_forked() => Err(Failure::from(distlock::UnlockError::Forked).into()),
            Some(GuardState::Suspended) => Err(Failure::new(
                "LockLost",
                "the lease has expired, and it is not known whether another has acquired the lock; \
                 stop what goes on under it",
            )
            .into()),
            Some(_) => Err(Failure::new(
                "LockLost",
                "the lock was lost, and another may have acquired it; stop what goes on under it",
            )
            .into()),
            None => Err(Failure::new("LockLost", "the lock was released before").into()),
        }
    }

    /// Releases it, and tells how that ended. `None` if it was released before.
    fn release(&self) -> Option<Pending> {
        let guard = self.take()?;
        Some(Pending::new(async move {
            let released = guard.unlock_async().await;
            Box::new(|py: Python<'_>| {
                released.map_err(Failure::from)?;
                Ok(py.None())
            }) as Outcome
        }))
    }

    /// Releases it without waiting for anything.
    fn drop(&self) {
        drop(self.take());
    }

    /// Releases it, and lets the next holder know that what it protects may be half done.
    fn abandon(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(guard) = self.take() else {
            return Ok(false);
        };
        py.detach(|| guard.abandon()).map_err(Failure::from)?;
        Ok(true)
    }

    /// Ends when the lock is lost, with the reason, or with `None` when it is released.
    fn lost(&self) -> Pending {
        match self.look(distlock::Guard::lost) {
            Some(lost) => Pending::new(async move { loss(lost.await) }),
            None => Pending::new(ready(loss(None))),
        }
    }

    /// Ends when the lock is not held any more, with its state then.
    fn invalid(&self) -> Pending {
        let outcome = |state_then: &'static str| -> Outcome {
            Box::new(move |py| Ok(state_then.into_pyobject(py)?.into_any().unbind()))
        };
        match self.look(distlock::Guard::invalid) {
            Some(invalid) => Pending::new(async move { outcome(state(Some(invalid.await))) }),
            None => Pending::new(ready(outcome(state(None)))),
        }
    }
}

fn state(state: Option<GuardState>) -> &'static str {
    match state {
        Some(GuardState::Valid) => "valid",
        Some(GuardState::Suspended) => "suspended",
        _ => "lost",
    }
}

fn loss(loss: Option<Loss>) -> Outcome {
    let reason = loss.map(|loss| match loss {
        Loss::Closed => "closed",
        _ => "revoked",
    });
    Box::new(move |py| Ok(reason.into_pyobject(py)?.into_any().unbind()))
}
