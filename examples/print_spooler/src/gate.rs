//! What the printer lets through: no file whose fence is lower than one it has printed from.
//!
//! The lock keeps hosts apart that ask for it. One that stood still for so long that its lock went
//! on to the next still sends its lines when it wakes up; only the printer can stop it. Each line
//! is judged when it is printed, by the one thread that prints, so that nothing comes in between.

use std::collections::BTreeMap;
use std::path::PathBuf;

use distlock::{Fence, FenceChecker};

use crate::check::BANNER;

/// What a printer's answer to a host begins with if it has refused something.
pub(crate) const REFUSED: &[u8] = b"refused: ";

/// Connections and the fences they came with.
pub(crate) struct Gate {
    checker: FenceChecker,
    highest: Option<Fence>,
    jobs: BTreeMap<u64, Result<Fence, String>>,
}

impl Gate {
    /// Keeps the highest fence in `file`, over restarts of the printer.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            checker: FenceChecker::new(file),
            highest: None,
            jobs: BTreeMap::new(),
        }
    }

    /// Whether to print this line of that connection.
    pub(crate) fn admits(&mut self, connection: u64, line: &[u8]) -> bool {
        let Self {
            checker,
            highest,
            jobs,
        } = self;
        let job = jobs
            .entry(connection)
            .or_insert_with(|| first_check(checker, line));
        if let Ok(fence) = *job {
            if Some(fence) < *highest {
                *job = Err(format!(
                    "fence {fence} was overtaken in the middle of the file"
                ));
            } else {
                *highest = Some(fence);
            }
        }
        job.is_ok()
    }

    /// That connection is over; why it was refused, if it was.
    pub(crate) fn end(&mut self, connection: u64) -> Option<String> {
        self.jobs.remove(&connection)?.err()
    }
}

/// The first line is the banner, with the fence.
fn first_check(checker: &FenceChecker, line: &[u8]) -> Result<Fence, String> {
    let fence = || {
        let title = str::from_utf8(line).ok()?.strip_prefix(BANNER)?;
        title.trim_end().rsplit_once(", fence ")?.1.parse().ok()
    };
    let fence: Fence = fence().ok_or("it does not begin with a banner that names a fence")?;
    checker.check(fence).map_err(|error| error.to_string())?;
    Ok(fence)
}
