//! When a new incarnation may be in a view: after what is left of the incarnation before.
//!
//! The clients of an incarnation that did not leave may be inside for one lease yet, by their clocks;
//! there is no shortcut, in a group of one neither. A member without a record cannot know whether
//! there was such an incarnation, or its state was lost: it hears all other members first, those
//! excepted that are presumed gone where the silent are.
//!
//! In a group of one nobody remembers: there the state is all that is known, and losing it loses
//! the quarantine.

use core::time::Duration;

use crate::time::{DRIFT, Time};

#[derive(Debug)]
pub(super) struct Quarantine {
    began: Time,
    /// For how long a former incarnation's clients may be inside.
    lasts: Duration,
    /// Whether there was no record.
    pub(super) is_new: bool,
    /// Whether the silent are waited for, who may know of an incarnation before.
    pub(super) waits_for_all: bool,
    /// Whether the incarnation before left, as far as is known.
    was_clean: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Views see to it, and this member has been in none yet.
    Elsewhere,
    /// Until the timer runs out.
    Waiting,
    /// It is over, as far as this member knows.
    Over,
    /// The source of views has been told, or has told.
    Told,
}

impl Quarantine {
    /// `after_unclean`: whether there was an incarnation that did not leave; `None` without a record.
    pub(super) fn new(
        now: Time,
        lease: Duration,
        after_unclean: Option<bool>,
        waits_for_all: bool,
    ) -> Self {
        Self {
            began: now,
            lasts: lease * (DRIFT + 1) / (DRIFT - 1),
            is_new: after_unclean.is_none(),
            waits_for_all,
            was_clean: after_unclean != Some(true),
            stage: Stage::Waiting,
        }
    }

    /// None: whoever may be inside has a lease that the next view waits for. `left`: whether the
    /// incarnation before did; `None` without a record.
    pub(super) fn none(now: Time, left: Option<bool>) -> Self {
        Self {
            began: now,
            lasts: Duration::ZERO,
            is_new: left.is_none(),
            waits_for_all: false,
            was_clean: left == Some(true),
            stage: Stage::Elsewhere,
        }
    }

    /// This member is in a view, which reckons with the incarnations that there were, and has waited
    /// for their leases.
    pub(super) fn note_view(&mut self) {
        self.stage = Stage::Told;
    }

    /// An incarnation has ended without leaving.
    pub(super) fn note_unclean(&mut self) {
        self.was_clean = false;
    }

    /// Whether there may have been an incarnation before, of which nobody has told yet.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_new && self.stage != Stage::Told
    }

    /// Whether the incarnation before left, as far as is known.
    pub(super) fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// When the clients of an incarnation before are outside.
    pub(super) fn ends(&self) -> Time {
        self.began + self.lasts
    }
}
