//! What must outlive the process: the state directory, the thread that waits for the disk, and whether
//! paths can be trusted.

pub(crate) mod state_dir;
pub mod trust;
pub(crate) mod writer;
