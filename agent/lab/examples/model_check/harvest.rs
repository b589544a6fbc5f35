//! Stories by chance, and those of them around which everything is tried.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use distlock_lab::choices::{Choices, Permille};
use distlock_lab::model::System;
use distlock_protocol::NodeId;
use stateright::Model;

use crate::explored::{Explored, Reached};
use crate::search::Story;

/// How many of a thousand faults a random walk does not think over: one of these for each.
const BOLDNESS: [Permille; 3] = [10, 100, 400];
/// How many of a thousand steps of a walk have another member left behind, or none; and how many of its own
/// that one takes nevertheless.
const CHANGING: Permille = 20;
const TARDY: Permille = 20;

/// Whole stories that reach all there is to reach.
pub(crate) struct Harvest<T> {
    /// Their states, each once, and how each comes about.
    pub(crate) starts: Vec<Reached<T>>,
    pub(crate) prefixes: Vec<Story>,
    /// How many there are, of how many that were told.
    pub(crate) stories: usize,
    pub(crate) told: u64,
}

impl<T: Clone + Hash + PartialEq> Harvest<T> {
    /// Walks by chance until each goal is reached, or `enough` states were seen. A story that reaches a goal
    /// for the first time is kept, up to the state in which it does.
    pub(crate) fn of<S: System<State = T>>(model: &Explored<S>, enough: usize) -> Self {
        let mut harvest = Self {
            starts: Vec::new(),
            prefixes: Vec::new(),
            stories: 0,
            told: 0,
        };
        let mut missing: Vec<u8> = model.system.goals().into_iter().map(|it| it.1).collect();
        let mut known = HashSet::new();
        let mut seen = 0;
        while !missing.is_empty() && seen < enough {
            let (states, choices) = walk(model, harvest.told);
            harvest.told += 1;
            seen += states.len();
            let mut keeps = 0;
            missing.retain(|goal| {
                let reaches = |state: &Reached<T>| match state {
                    Reached::State(state) => S::reached(state, *goal),
                    Reached::Panic(_) => false,
                };
                let at = states.iter().position(reaches);
                keeps = keeps.max(at.map_or(0, |at| at + 1));
                at.is_none()
            });
            // What is broken is found where it is searched.
            let is_broken = |state: &Reached<T>| match state {
                Reached::State(state) => S::violation(state).is_some(),
                Reached::Panic(_) => true,
            };
            if states.last().is_some_and(is_broken) {
                keeps = states.len();
                missing.clear();
            }
            harvest.stories += usize::from(keeps > 0);
            for (at, state) in states.into_iter().enumerate().take(keeps) {
                let mut hasher = DefaultHasher::new();
                state.hash(&mut hasher);
                if known.insert(hasher.finish()) {
                    harvest.starts.push(state);
                    harvest.prefixes.push(Story(choices[..=at].to_vec()));
                }
            }
        }
        harvest
    }
}

/// One story to its end: its states, and the choices that lead to each.
fn walk<S: System>(model: &Explored<S>, seed: u64) -> (Vec<Reached<S::State>>, Vec<usize>) {
    let mut chance = Chance::new(seed);
    let mut states = vec![Reached::State(model.system.start())];
    let mut choices = vec![0];
    let mut actions = Vec::new();
    loop {
        let state = states.last().expect("it begins");
        actions.clear();
        model.actions(state, &mut actions);
        if actions.is_empty() {
            return (states, choices);
        }
        let choice = chance.choose::<S>(&actions);
        let Some(next) = model.next_state(state, actions[choice].clone()) else {
            return (states, choices);
        };
        choices.push(choice);
        states.push(next);
    }
}

/// What happens next in one story, by chance.
pub(crate) struct Chance {
    choices: Choices,
    boldness: Permille,
    /// The member that is left behind.
    slow: Option<NodeId>,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let mut choices = Choices::new(seed);
        let boldness = BOLDNESS[choices.index(BOLDNESS.len())];
        Self {
            choices,
            boldness,
            slow: None,
        }
    }

    pub(crate) fn choose<S: System>(&mut self, actions: &[S::Action]) -> usize {
        if self.choices.chance(CHANGING) {
            let someone = &actions[self.choices.index(actions.len())];
            self.slow = S::happens_at(someone).filter(|_| self.choices.chance(500));
        }
        let mut choice = self.choices.index(actions.len());
        // Every action may be a fault, or happen at the member that is left behind.
        for _ in 0..6 {
            let action = &actions[choice];
            let is_late = self.slow.is_some() && self.slow == S::happens_at(action);
            let shuns = is_late && !self.choices.chance(TARDY)
                || S::is_misfortune(action) && !self.choices.chance(self.boldness);
            if !shuns {
                break;
            }
            choice = self.choices.index(actions.len());
        }
        choice
    }
}
