//! A simulated history as what diagrams are made of.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_agent::protocol::Time;
use distlock_lab::history::{self, Moment};

use crate::diagram::timeline::{self, Lane, Measure, Timeline, What};

/// The frame around a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The left edge, and the right one.
    pub(super) span: (Time, Time),
    /// T.
    pub(super) unit: Duration,
    /// How many processes.
    pub(super) members: u16,
    /// The number of the first process: 1, or 0 where a lecture counts so.
    pub(super) first: u16,
    /// Whether requests show their timestamps.
    pub(super) has_stamps: bool,
    /// How long after it was sent a message may still be under way at the right edge, in T.
    pub(super) patience: f64,
}

/// What `history` shows in `frame`.
pub(super) fn timeline(history: &[Moment], frame: Frame) -> Timeline {
    let mut sent = BTreeMap::new();
    let lanes = 0..frame.members;
    Timeline {
        history: history
            .iter()
            .map(|moment| timeline::Moment {
                at: moment.at.as_nanos(),
                lane: lane(moment.node.as_u16()),
                lock: None,
                what: what(moment, frame.first, &mut sent),
            })
            .collect(),
        span: (frame.span.0.as_nanos(), frame.span.1.as_nanos()),
        unit: frame.unit.as_nanos() as f64,
        measure: Measure::T,
        lanes: lanes
            .map(|lane| Lane {
                noun: "process",
                number: lane + frame.first,
                known_until: Some(u64::MAX),
            })
            .collect(),
        has_stamps: frame.has_stamps,
        patience: frame.patience,
    }
}

/// `sent`: from which lane each transmission comes, and what it is.
fn what(moment: &Moment, first: u16, sent: &mut BTreeMap<u64, (usize, &'static str)>) -> What {
    match &moment.what {
        history::What::Asked { request, stamp } => What::Asked {
            request: *request,
            stamp: *stamp,
        },
        history::What::Entered { request, .. } => What::Entered {
            request: *request,
            fence: None,
            pid: None,
        },
        history::What::Left { request } => What::Left { request: *request },
        history::What::Lost { request } => What::Lost {
            request: *request,
            lease_end: None,
        },
        history::What::Sent {
            message,
            to,
            kind,
            again,
        } => {
            sent.insert(*message, (lane(moment.node.as_u16()), *kind));
            What::Sent {
                message: *message,
                to: lane(to.as_u16()),
                kind,
                again: *again,
            }
        }
        history::What::Received { message } => {
            let (from, kind) = sent[message];
            What::Received {
                from,
                kind,
                message: Some(*message),
                cause: Some(*message),
            }
        }
        history::What::View { epoch, members } => What::View {
            epoch: epoch.as_u32(),
            members: members
                .iter()
                .map(|node| node.as_u16() - 1 + first)
                .collect(),
        },
        history::What::Crashed => What::Crashed,
    }
}

fn lane(id: u16) -> usize {
    usize::from(id) - 1
}
