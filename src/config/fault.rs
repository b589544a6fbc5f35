//! What is wrong with a configuration, and where in its text.

use toml_span::Span;

/// What is wrong, and where in the text.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(at: Span, reason: impl Into<String>) -> Self {
        Self {
            at: at.start,
            reason: reason.into(),
        }
    }
}
