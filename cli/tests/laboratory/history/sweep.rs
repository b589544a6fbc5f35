//! The sweeps over the stays of one lock, in the order of entry.

use std::collections::{BinaryHeap, HashMap};

use super::{Breach, Mode, Stay, Violation};

/// A stay as it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside<'a> {
    pub(super) stay: &'a Stay,
    pub(super) from: u64,
    pub(super) until: u64,
    /// It began across a long stop.
    pub(super) is_excused: bool,
}

/// `stays` in the order of entry, of a lock with one permit.
pub(super) fn nobody_together(stays: &[Inside<'_>], found: &mut Vec<Violation>) {
    let mut last: Option<&Inside<'_>> = None;
    let mut last_alone: Option<&Inside<'_>> = None;
    let later = |last: Option<&Inside<'_>>, this: &Inside<'_>| {
        last.is_none_or(|last| last.until < this.until)
    };
    for this in stays {
        let is_alone = this.stay.mode == Mode::Exclusive;
        let against = if is_alone { last } else { last_alone };
        if let Some(other) = against.filter(|other| other.until > this.from) {
            found.push(violation(Breach::Together, other, this));
        }
        if later(last, this) {
            last = Some(this);
        }
        if is_alone && later(last_alone, this) {
            last_alone = Some(this);
        }
    }
}

/// `stays` in the order of entry, of a lock with several permits.
pub(super) fn never_too_many(stays: &[Inside<'_>], permits: usize, found: &mut Vec<Violation>) {
    let mut inside = BinaryHeap::new();
    for (index, this) in stays.iter().enumerate() {
        let over = |inside: &BinaryHeap<_>| {
            let first: Option<&std::cmp::Reverse<(u64, usize)>> = inside.peek();
            first.is_some_and(|first| first.0.0 <= this.from)
        };
        while over(&inside) {
            inside.pop();
        }
        if inside.len() >= permits {
            let other = inside.peek().expect("a lock has permits").0.1;
            found.push(violation(Breach::Together, &stays[other], this));
        }
        inside.push(std::cmp::Reverse((this.until, index)));
    }
}

/// Who is alone has a higher fence than all before; who shares, than all who were alone before.
pub(super) fn fences_rise(stays: &[Inside<'_>], found: &mut Vec<Violation>) {
    let mut highest: Option<&Inside<'_>> = None;
    let mut highest_alone: Option<&Inside<'_>> = None;
    let above = |highest: Option<&Inside<'_>>, this: &Inside<'_>| {
        highest.is_none_or(|highest| highest.stay.fence < this.stay.fence)
    };
    for this in stays {
        let is_alone = this.stay.mode == Mode::Exclusive;
        let against = if is_alone { highest } else { highest_alone };
        // The same fence twice has been found already.
        if let Some(other) = against.filter(|other| other.stay.fence > this.stay.fence) {
            found.push(violation(Breach::FenceFell, other, this));
        }
        if above(highest, this) {
            highest = Some(this);
        }
        if is_alone && above(highest_alone, this) {
            highest_alone = Some(this);
        }
    }
}

/// No fence is given twice, to whomever; but for one whose first grant the store forgot.
pub(super) fn fences_differ(
    stays: &[Inside<'_>],
    is_forgotten: impl Fn(&Stay) -> bool,
    found: &mut Vec<Violation>,
) {
    let mut given: HashMap<u64, &Inside<'_>> = HashMap::new();
    for this in stays {
        let before = given.insert(this.stay.fence, this);
        if let Some(other) = before.filter(|other| !is_forgotten(other.stay)) {
            found.push(violation(Breach::FenceReused, other, this));
        }
    }
}

fn violation(breach: Breach, first: &Inside<'_>, second: &Inside<'_>) -> Violation {
    Violation {
        breach,
        first: first.stay.line.clone(),
        second: second.stay.line.clone(),
    }
}
