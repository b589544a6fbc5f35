//! The callers of a run, and the stopwatch.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::world::{Act, Key, Step, World};
use super::{Costs, Crash, Load, Run, Setup, When};
use crate::checkers::{Violation, violation};
use crate::choices::Choices;
use distlock_protocol::{NodeId, Time};

pub(super) struct Bench<'a, W> {
    world: W,
    setup: &'a Setup,
    /// Requests that wait or are inside, and since when.
    asked: BTreeMap<Key, Time>,
    inside: BTreeSet<Key>,
    /// Requests that are planned, and not made yet.
    planned: usize,
    /// Who has crashed.
    gone: BTreeSet<NodeId>,
    /// Who shall crash when it is inside.
    doomed: BTreeSet<NodeId>,
    /// The last exit that somebody waited for.
    exit: Option<Time>,
    /// Since when it is measured, and what had been sent by then.
    since: (Time, BTreeMap<&'static str, u64>),
    costs: Costs,
}

impl<'a, W: World> Bench<'a, W> {
    pub(super) fn new(world: W, setup: &'a Setup) -> Self {
        Self {
            world,
            setup,
            asked: BTreeMap::new(),
            inside: BTreeSet::new(),
            planned: 0,
            gone: BTreeSet::new(),
            doomed: BTreeSet::new(),
            exit: None,
            since: (Time::ZERO, BTreeMap::new()),
            costs: Costs::default(),
        }
    }

    /// From now on it is measured, and faults come; requests that wait go on.
    pub(super) fn reset(&mut self) {
        let unit = self.setup.unit();
        self.since = (self.world.now(), self.world.counts());
        self.costs = Costs {
            unit,
            ..Costs::default()
        };
        for &Crash { node, when } in &self.setup.crashes {
            match when {
                When::After(units) => self.world.plan(unit.mul_f64(units), Act::Crash(node)),
                When::Inside => _ = self.doomed.insert(node),
            }
        }
    }

    pub(super) fn finish(mut self) -> Run {
        let (since, before) = self.since;
        self.costs.elapsed = self.world.now().since(since);
        let counts = self.world.counts().into_iter();
        let sent = counts.map(|(kind, n)| (kind, n - before.get(kind).copied().unwrap_or(0)));
        self.costs.messages = sent.filter(|(_, count)| *count > 0).collect();
        Run {
            costs: self.costs,
            history: self.world.history().to_vec(),
            since,
            network_stats: self.world.network_stats(),
        }
    }

    pub(super) fn everybody(&mut self, members: &[NodeId]) {
        for node in members {
            self.want(*node);
        }
    }

    /// One after the other, each when all is quiet again.
    pub(super) fn in_turns(
        &mut self,
        turns: impl Iterator<Item = NodeId>,
    ) -> Result<(), Violation> {
        let quiet = self.setup.unit() * 4 * u32::from(self.setup.members);
        for node in turns {
            self.want(node);
            self.until_nobody_wants()?;
            self.pause(quiet)?;
        }
        Ok(())
    }

    /// Each time after a pause of random length, so that the token is met at every place.
    pub(super) fn light_on_a_perpetual_ring(
        &mut self,
        turns: impl Iterator<Item = NodeId>,
        choices: &mut Choices,
    ) -> Result<(), Violation> {
        let round = self.setup.unit() * u32::from(self.setup.members);
        for node in turns {
            self.pause(choices.duration(round * 2..=round * 3))?;
            self.want(node);
            self.until_nobody_wants()?;
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, pause: Duration) -> Result<(), Violation> {
        self.world.plan(pause, Act::Nothing);
        while !self.step()? {}
        Ok(())
    }

    /// Goes on until that many have left.
    pub(super) fn until(&mut self, entries: u64) -> Result<(), Violation> {
        while self.costs.entries < entries {
            self.step()?;
        }
        Ok(())
    }

    /// Goes on until all who asked have left, or crashed.
    pub(super) fn until_nobody_wants(&mut self) -> Result<(), Violation> {
        while self.planned + self.asked.len() > 0 {
            self.step()?;
        }
        Ok(())
    }

    fn want(&mut self, node: NodeId) {
        self.planned += 1;
        self.world.plan(Duration::ZERO, Act::Want(node));
    }

    /// One step of the world; whether it was the end of a pause.
    fn step(&mut self) -> Result<bool, Violation> {
        match self.next()? {
            Step::Entered(key) => self.enter(key),
            Step::Lost(key) => self.lose(key)?,
            Step::Act(Act::Want(node)) => {
                self.planned -= 1;
                self.ask(node)?;
            }
            Step::Act(Act::Exit(key)) => self.leave(key)?,
            Step::Act(Act::Crash(node)) => self.crash(node),
            Step::Act(Act::Nothing) => return Ok(true),
        }
        Ok(false)
    }

    fn ask(&mut self, node: NodeId) -> Result<(), Violation> {
        if !self.gone.contains(&node) {
            let key = self.world.ask(node)?;
            self.asked.insert(key, self.world.now());
        }
        Ok(())
    }

    fn enter(&mut self, key: Key) {
        if let Some(exit) = self.exit.take() {
            self.costs.sync.add(self.world.now().since(exit));
        }
        self.inside.insert(key);
        let stay = self.setup.unit().mul_f64(self.setup.inside);
        if self.doomed.remove(&key.0) {
            self.world.plan(stay / 2, Act::Crash(key.0));
        }
        self.world.plan(stay, Act::Exit(key));
    }

    /// The end of a stay inside, unless that has ended otherwise.
    fn leave(&mut self, key: Key) -> Result<(), Violation> {
        if !self.inside.remove(&key) {
            return Ok(());
        }
        let now = self.world.now();
        self.costs.entries += 1;
        if let Some(asked) = self.asked.remove(&key) {
            self.costs.response.add(now.since(asked));
        }
        self.exit = self.world.is_contended().then_some(now);
        self.world.release(key)?;
        self.ask_again(key.0)
    }

    /// The others have gone on without the holder.
    fn lose(&mut self, key: Key) -> Result<(), Violation> {
        if !self.inside.remove(&key) {
            return Ok(());
        }
        self.costs.lost += 1;
        self.asked.remove(&key);
        self.ask_again(key.0)
    }

    fn ask_again(&mut self, node: NodeId) -> Result<(), Violation> {
        match self.setup.load {
            Load::Heavy => self.ask(node),
            Load::Light | Load::Burst => Ok(()),
        }
    }

    fn crash(&mut self, node: NodeId) {
        self.gone.insert(node);
        self.asked.retain(|key, _| key.0 != node);
        let before = self.inside.len();
        self.inside.retain(|key| key.0 != node);
        self.costs.lost += (before - self.inside.len()) as u64;
        self.world.crash(node);
    }

    fn next(&mut self) -> Result<Step, Violation> {
        let size = u32::from(self.setup.members);
        let end = self.world.now() + self.setup.unit() * 100 * size + self.world.patience();
        let step = self.world.next(end)?;
        step.ok_or_else(|| violation!(end, Progress, "nobody enters any more"))
    }
}
