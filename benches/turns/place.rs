//! Where the processes run, and what they speak over.

use std::fmt;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Which cores the processes are pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The measured one on a core, all others on another.
    TwoCores(usize, usize),
    /// All on one.
    OneCore(usize),
}

impl Place {
    /// The placements that this machine allows, on the cores that this process may use.
    pub(crate) fn available() -> Vec<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the kernel tells our cores");
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let first = cores.next().expect("we run on a core");
        let mut places = Vec::new();
        match cores.next() {
            Some(second) => places.push(Self::TwoCores(first, second)),
            None => eprintln!("SKIPPED: two cores: this process may use only one"),
        }
        places.push(Self::OneCore(first));
        places
    }

    /// Pins this thread, and those it will start, as the measured process's.
    pub(crate) fn pin_measured(self) {
        let (Self::TwoCores(core, _) | Self::OneCore(core)) = self;
        pin(core);
    }

    /// The core of the others.
    pub(crate) fn other_core(self) -> usize {
        let (Self::TwoCores(_, core) | Self::OneCore(core)) = self;
        core
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoCores(..) => "two cores",
            Self::OneCore(_) => "one core",
        })
    }
}

/// Pins this thread, and those it will start, to `core`.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("the core exists");
    sched_setaffinity(Pid::from_raw(0), &set).expect("we may use the core");
}

/// The kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Unix,
}

impl Transport {
    pub(crate) const ALL: [Self; 2] = [Self::Udp, Self::Unix];
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Unix => "unix",
        })
    }
}
