//! What the last life of this agent left behind: commands that still run under locks that were
//! lost with it. Nobody is let in by this life before they have ended.

use std::time::Duration;

use super::{LOOK, Lifeline};
use crate::protocol::Time;
use crate::runtime::os::clock;

/// How often the log tells of them.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Commands of the last life that have not ended.
#[derive(Debug)]
pub(crate) struct Former {
    left: Vec<Lifeline>,
    /// When to tell them to end, and when to kill them: what their runners do unless they stand
    /// still.
    ask: Time,
    kill: Time,
    was_asked: bool,
    look: Time,
    tell: Time,
}

impl Former {
    /// `None` if nothing is left.
    pub(crate) fn new(left: Vec<Lifeline>, lease: Duration) -> Option<Self> {
        let now = clock::now();
        (!left.is_empty()).then(|| Self {
            left,
            ask: now + lease / 4,
            kill: now + lease / 2,
            was_asked: false,
            look: now,
            tell: now,
        })
    }

    /// When it wants to be called.
    pub(crate) fn next(&self) -> Time {
        self.look
    }

    /// Looks, and ends whom it may; whether all have ended.
    pub(crate) fn work(&mut self) -> bool {
        let now = clock::now();
        if now < self.look {
            return false;
        }
        self.look = now + LOOK;
        self.left.retain_mut(|lifeline| !lifeline.has_ended());
        if self.left.is_empty() {
            tracing::info!("the commands of this agent's last life have ended");
            return true;
        }
        if now >= self.kill {
            // Those that it had started meanwhile are gone the next time.
            self.left.iter_mut().for_each(Lifeline::kill);
        } else if now >= self.ask && !self.was_asked {
            self.was_asked = true;
            self.left.iter_mut().for_each(Lifeline::ask);
        }
        if now >= self.tell {
            self.tell = now + TELL_EVERY;
            let known: Vec<_> = self.left.iter().filter_map(Lifeline::command).collect();
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            tracing::warn!(
                "{} of the commands that this agent's last life let in have not ended (process \
                 groups known: {}): nobody is let in here before; see what they do, and end them",
                self.left.len(),
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            );
        }
        false
    }
}
