//! The native half of the Python package `distlock`: it waits without the GIL, and turns wakers into
//! writes to an eventfd. The other half, in `python/distlock`, is the API; nothing here is public.
//!
//! Two rules keep it safe:
//! - No thread but Python's own takes the GIL. A thread of the agent that has something to tell
//!   writes to an eventfd (`wakeups`), so a busy interpreter costs no lease.
//! - A mutex that Python's threads take is taken with the GIL held, and the GIL is not released
//!   meanwhile. So at a fork by Python none of them is locked.

mod agent;
mod errors;
mod guard;
mod handle;
mod pending;
mod wakeups;

use pyo3::prelude::*;

/// The module `distlock._distlock`.
#[pymodule(gil_used = true)]
mod _distlock {
    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::guard::Guard;
    #[pymodule_export]
    use crate::handle::{Handle, Observing};
    #[pymodule_export]
    use crate::pending::Pending;
    #[pymodule_export]
    use crate::wakeups::Wakeups;
}
