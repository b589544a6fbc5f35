//! In place of `trace` where the feature of that name is not built in: a trace cannot be opened, and so
//! its types have no values.

use std::path::Path;

use crate::protocol::clock::Estimate;
use crate::protocol::{Incarnation, Input, Node, NodeId, Output, Settings, Ticket};
use crate::runtime::api::error::SessionEnd;

/// Warns that member `me` cannot write the trace that it was asked for.
pub(crate) fn open(
    dir: &Path,
    me: NodeId,
    settings: &Settings,
    _host: &str,
    _incarnation: Incarnation,
    _has_thread: bool,
) -> Option<(Tracer, Writer)> {
    tracing::warn!(
        event = "trace-failed",
        "there is no trace of member {me} of {:?} in {}: this program was built without the feature \
         \"trace\" of the crate distlock; build it with that, or unset DISTLOCK_TRACE and do not call \
         with_trace",
        settings.group,
        dir.display()
    );
    None
}

/// Would note what happens.
#[derive(Debug)]
pub(crate) enum Tracer {}

impl Tracer {
    pub(crate) fn note_input(&mut self, _input: &Input<'_>) {
        match *self {}
    }

    pub(crate) fn note_output(
        &mut self,
        _output: &Output,
        _node: &Node,
        _pid_of: impl Fn(Ticket) -> Option<u32>,
    ) {
        match *self {}
    }

    pub(crate) fn note_lost(&mut self, _ticket: Ticket) {
        match *self {}
    }

    pub(crate) fn note_clock(&mut self, _member: NodeId, _incarnation: u64, _estimate: &Estimate) {
        match *self {}
    }

    pub(crate) fn note_end(&mut self, _end: &SessionEnd) {
        match *self {}
    }
}

/// Would have entries written.
#[derive(Debug)]
pub(crate) enum Writer {}

impl Writer {
    pub(crate) fn work(&mut self) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::subscriber;

    use super::*;
    use crate::runtime::warnings::Warnings;

    #[test]
    fn who_asks_for_a_trace_is_told_that_there_is_none() {
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        let settings = Settings::new("shop");
        let me = NodeId::new(3).unwrap();
        subscriber::with_default(warnings, || {
            let dir = Path::new("/traces");
            assert!(open(dir, me, &settings, "alpha", Incarnation(1), true).is_none());
        });
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        for word in [
            "member 3",
            "\"shop\"",
            "/traces",
            "feature \"trace\"",
            "DISTLOCK_TRACE",
        ] {
            assert!(told.contains(word), "{told}");
        }
    }
}
