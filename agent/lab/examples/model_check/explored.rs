//! A world, as the library explores it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use distlock_lab::checkers::Rule;
use distlock_lab::model::System;
use stateright::{Model, Property};

use crate::words::words;

/// A system as the library wants it.
pub(crate) struct Explored<S: System> {
    pub(crate) system: S,
    /// Where it begins, if not at the world's beginning.
    pub(crate) starts: Vec<Reached<S::State>>,
    /// Whether a state's actions are tried in an order of its own. Always the same one first, a
    /// search into the depth would see little of what the others do.
    pub(crate) shuffles: bool,
    /// The goals that were reached.
    pub(crate) reached: AtomicU32,
    /// There are states enough: none is gone on from.
    pub(crate) enough: AtomicBool,
}

/// A state, or the panic of the code under test on the way to it.
#[derive(Clone, Debug, Hash, PartialEq)]
pub(crate) enum Reached<T> {
    State(T),
    Panic(String),
}

/// The rules that a world can break.
const RULES: [(Rule, &str); 7] = [
    (Rule::Exclusion, "mutual exclusion"),
    (Rule::Fences, "fences rise"),
    (
        Rule::Abandonment,
        "who enters is told how the one before ended",
    ),
    (Rule::Requests, "requests end once"),
    (Rule::Views, "epochs rise, and each is one view"),
    (Rule::Durability, "a voter endorses once an epoch"),
    (Rule::Leases, "grants are told while the lease runs"),
];

impl<S: System> Explored<S> {
    fn keeps<const RULE: usize>(&self, state: &Reached<S::State>) -> bool {
        let Reached::State(state) = state else {
            return true;
        };
        S::violation(state).is_none_or(|violation| violation.rule != RULES[RULE].0)
    }

    /// Whether a goal is reached for the first time: one story is enough.
    fn reaches<const GOAL: u8>(&self, state: &Reached<S::State>) -> bool {
        let bit = 1 << GOAL;
        let Reached::State(state) = state else {
            return false;
        };
        S::reached(state, GOAL) && self.reached.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl<S: System> Model for Explored<S> {
    type State = Reached<S::State>;
    type Action = S::Action;

    fn init_states(&self) -> Vec<Self::State> {
        if self.starts.is_empty() {
            return vec![Reached::State(self.system.start())];
        }
        self.starts.clone()
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<S::Action>) {
        if let Reached::State(state) = state
            && !self.enough.load(Ordering::Relaxed)
        {
            self.system.actions(state, actions);
            if self.shuffles && !actions.is_empty() {
                let mut hasher = DefaultHasher::new();
                state.hash(&mut hasher);
                let chance = hasher.finish();
                if chance.is_multiple_of(8) {
                    let first = chance / 8 % actions.len() as u64;
                    actions.rotate_left(first as usize);
                }
            }
        }
    }

    fn next_state(&self, state: &Self::State, action: S::Action) -> Option<Self::State> {
        let Reached::State(state) = state else {
            return None;
        };
        let after = AssertUnwindSafe(|| self.system.after(state, &action));
        match catch_unwind(after) {
            Ok(next) => next.map(Reached::State),
            Err(panic) => Some(Reached::Panic(words(&*panic))),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let rules: [fn(&Self, &Self::State) -> bool; RULES.len()] = [
            Self::keeps::<0>,
            Self::keeps::<1>,
            Self::keeps::<2>,
            Self::keeps::<3>,
            Self::keeps::<4>,
            Self::keeps::<5>,
            Self::keeps::<6>,
        ];
        let goals: [fn(&Self, &Self::State) -> bool; 13] = [
            Self::reaches::<0>,
            Self::reaches::<1>,
            Self::reaches::<2>,
            Self::reaches::<3>,
            Self::reaches::<4>,
            Self::reaches::<5>,
            Self::reaches::<6>,
            Self::reaches::<7>,
            Self::reaches::<8>,
            Self::reaches::<9>,
            Self::reaches::<10>,
            Self::reaches::<11>,
            Self::reaches::<12>,
        ];
        let always = RULES.iter().zip(rules);
        let always = always.map(|((_, name), keeps)| Property::always(name, keeps));
        let sometimes = self.system.goals().into_iter();
        let sometimes =
            sometimes.map(|(name, goal)| Property::sometimes(name, goals[usize::from(goal)]));
        let panics = Property::always("nothing panics", |_: &Self, state: &Self::State| {
            matches!(state, Reached::State(_))
        });
        [panics]
            .into_iter()
            .chain(always)
            .chain(sometimes)
            .collect()
    }
}
