//! What a run looks like to somebody who watches it: who asked, entered and left, who sent what to
//! whom, who crashed. A space-time diagram and a log with vector clocks are made of it.

use alloc::vec::Vec;

use distlock_protocol::{Epoch, Fence, NodeId, Time};

/// Something that happened at one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, in the simulation's time.
    pub at: Time,
    /// Where.
    pub node: NodeId,
    /// What.
    pub what: What,
}

/// What can happen at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It asks to enter. `request` counts its requests from 1.
    Asked {
        /// Which of its requests.
        request: u64,
        /// The request's Lamport timestamp, where engines run without nodes around them.
        stamp: Option<u64>,
    },
    /// It enters.
    Entered {
        /// Which of its requests.
        request: u64,
        /// The fence of that grant.
        fence: Fence,
    },
    /// It leaves.
    Left {
        /// Which of its requests.
        request: u64,
    },
    /// It is told that what it was granted is lost.
    Lost {
        /// Which of its requests.
        request: u64,
    },
    /// An engine's message goes out.
    Sent {
        /// The number of this transmission in the run.
        message: u64,
        /// To whom.
        to: NodeId,
        /// What the algorithm calls it.
        kind: &'static str,
        /// Whether the link sends it once more, as no acknowledgement came.
        again: bool,
    },
    /// An engine's message arrives.
    Received {
        /// The transmission.
        message: u64,
    },
    /// A new view is in force here.
    View {
        /// Its epoch.
        epoch: Epoch,
        /// Its members.
        members: Vec<NodeId>,
    },
    /// Its process ends without a word.
    Crashed,
}
