//! What is wrong with a configuration, and where in its text.

use std::ops::Range;

/// What is wrong, and where in the text.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(at: Range<usize>, reason: impl Into<String>) -> Self {
        Self {
            at: at.start,
            reason: reason.into(),
        }
    }
}
