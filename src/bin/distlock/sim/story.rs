//! A run in words, event by event.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use distlock_agent::protocol::NodeId;
use distlock_agent::sim::history::{Moment, What};

use super::picture::Film;

/// Tells events one after the other; what arrives it has told of before.
#[derive(Debug)]
pub(crate) struct Teller<'a> {
    film: Film<'a>,
    sent: BTreeMap<u64, (NodeId, &'static str)>,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(film: &Film<'a>) -> Self {
        Self {
            film: *film,
            sent: BTreeMap::new(),
        }
    }

    /// What happens, without when and where.
    pub(crate) fn tell(&mut self, moment: &Moment) -> String {
        let film = self.film;
        match &moment.what {
            What::Asked {
                stamp: Some(stamp), ..
            } => format!("asks with timestamp {stamp}"),
            What::Asked { .. } => "asks".to_owned(),
            What::Entered { .. } => "enters".to_owned(),
            What::Left { .. } => "leaves".to_owned(),
            What::Lost { .. } => "is told that the lock is lost".to_owned(),
            What::Sent {
                message,
                to,
                kind,
                again,
            } => {
                self.sent.insert(*message, (moment.node, kind));
                let again = if *again { " again" } else { "" };
                format!("sends {kind} to {}{again}", film.name(*to))
            }
            What::Received { message } => match self.sent.get(message) {
                Some((from, kind)) => format!("gets {kind} from {}", film.name(*from)),
                None => "gets what was sent before this begins".to_owned(),
            },
            What::View { members, .. } => {
                let members: Vec<_> = members.iter().map(|node| film.name(*node)).collect();
                format!("installs the view of {}", members.join(", "))
            }
            What::Crashed => "crashes".to_owned(),
        }
    }
}

/// All of it, a line an event.
pub(crate) fn story(film: &Film<'_>) -> String {
    let mut text = String::new();
    let mut teller = Teller::new(film);
    for moment in film.shown() {
        let (at, name) = (film.time(moment.at), film.name(moment.node));
        let _ = writeln!(text, "{at:>6.2} T  process {name} {}", teller.tell(moment));
    }
    text
}
