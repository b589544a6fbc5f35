//! Misfortunes that are aimed: several that together bring out what they hardly do by chance.
//!
//! Each is one that some rule of the core is there for, and lasts a few leases. What they have in
//! common is that the second thing goes wrong while the first is being coped with: between the
//! freeze for a view and its install, in a view that not all have seen, before the leases are over
//! of those who are gone.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

use super::{Act, Campaign};
use crate::checkers::{Process, Violation};
use distlock_protocol::{Change, Epoch, NodeId};

/// Part of an aimed fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    /// The next begins.
    Next,
    /// When that member has stopped for a view, it hears nobody before that is in force.
    DeafenFrozen(NodeId, u32),
    Deafen(NodeId),
    Hear(NodeId),
    /// That member crashes when it is let in.
    Arm(NodeId),
    /// Those who vote leave; or all, but for that one.
    VotersLeave,
    AllLeaveBut(NodeId),
    /// When somebody is inside there, that member is cut off.
    CutOffHolder(NodeId, u32),
    AllCrash,
    /// A voter crashes, and its state is lost.
    Lose,
    Pause(NodeId),
}

/// Who crashes when it is next let in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Strike {
    Only(NodeId),
    AllBut(NodeId),
}

/// One voter is to come in the place of another.
pub(super) struct Exchange {
    /// The voters before and after.
    ends: [BTreeSet<NodeId>; 2],
    /// All members as they ran when it began.
    processes: Vec<Process>,
}

/// How often it is looked whether it is time.
const LOOKS: u32 = 100;

impl Campaign {
    pub(super) fn aim(&mut self, aim: Aim) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        match aim {
            Aim::Next => self.next_aimed()?,
            Aim::DeafenFrozen(node, looks) => {
                if !self.is_frozen(node) {
                    self.look_again(looks, |looks| Aim::DeafenFrozen(node, looks));
                } else if self.choices.chance(200) {
                    // It may be the one that is to put the view in force.
                    let others = self.others(node);
                    let dies = self.choices.index(others.len());
                    self.crash(others[dies]);
                } else {
                    self.strike = Some(Strike::AllBut(node));
                    self.aim(Aim::Deafen(node))?;
                }
            }
            Aim::Deafen(node) => {
                let is_meant = matches!(self.strike, Some(Strike::AllBut(it)) if it == node);
                if is_meant && self.is_frozen(node) {
                    for other in self.others(node) {
                        self.cluster.network().cut(other, node);
                    }
                    // It waits for leases, until when nobody can tell here; and who hears nobody
                    // for half a lease is missed.
                    self.aim_within(35..=45, Aim::Hear(node));
                }
            }
            Aim::Hear(node) => {
                self.cluster.network().join();
                self.aim_within(3..=5, Aim::Deafen(node));
            }
            Aim::Arm(node) => self.strike = Some(Strike::Only(node)),
            Aim::VotersLeave => {
                for node in self.newest_voters() {
                    self.leave(node)?;
                }
            }
            Aim::AllLeaveBut(but) => {
                for node in self.others(but) {
                    self.leave(node)?;
                }
            }
            Aim::AllCrash => {
                for node in self.members() {
                    self.crash(node);
                }
            }
            Aim::CutOffHolder(node, looks) => {
                if self.inside.iter().any(|(process, _)| process.node == node) {
                    self.cut_off(node);
                    self.act_within(150..=250, Act::Join);
                } else {
                    self.look_again(looks, |looks| Aim::CutOffHolder(node, looks));
                }
            }
            Aim::Lose => {
                let voters = self.newest_voters();
                if !voters.is_empty() {
                    let lost = self.choices.index(voters.len());
                    self.crash_and_forget(voters[lost], true);
                }
            }
            Aim::Pause(node) => {
                if self.cluster.pause(node) {
                    self.report.pauses += 1;
                    self.act_within(30..=120, Act::Resume(node));
                }
            }
        }
        Ok(())
    }

    /// What is left of the one before ends, and another begins.
    fn next_aimed(&mut self) -> Result<(), Violation> {
        self.act_within(400..=700, Act::Aim(Aim::Next));
        self.cluster.network().join();
        self.strike = None;
        self.exchange = None;
        self.report.aimed += 1;
        let members = self.members();
        let anyone = members[self.choices.index(members.len())];
        match self.choices.below(8) {
            0..3 => self.misses_a_view(anyone)?,
            3 => {
                // Without it another is the lowest, where locks are declared.
                self.leave(members[0])?;
                self.aim_within(20..=250, Aim::Arm(members[0]));
            }
            4 => {
                // Who votes ends in order, and begins again, while a lease may be running of which
                // its former incarnation knew.
                let node = self.holder().unwrap_or(anyone);
                self.cut_off(node);
                let leave = match self.choices.below(2) {
                    0 => Aim::VotersLeave,
                    _ => Aim::AllLeaveBut(node),
                };
                self.aim_within(50..=80, leave);
                self.act_within(100..=140, Act::Join);
            }
            5 => {
                let longer = self.share_of_lease(20..=70);
                for other in self.others(anyone) {
                    self.cluster.network().slow_down(other, anyone, longer);
                }
                self.aim_within(50..=200, Aim::CutOffHolder(anyone, LOOKS));
            }
            6 => self.exchange_a_voter()?,
            _ => {
                self.aim(Aim::Pause(anyone))?;
                // Again, soon after it goes on.
                self.aim_within(30..=130, Aim::Pause(anyone));
            }
        }
        Ok(())
    }

    /// A holder dies, whose lease is waited for. Meanwhile `node` has stopped, and does not hear
    /// that the view is in force. Who is let in in that view dies inside.
    fn misses_a_view(&mut self, node: NodeId) -> Result<(), Violation> {
        let mut holders = self.inside.iter().map(|(process, _)| process.node);
        let dies = holders.find(|it| *it != node);
        let others = self.others(node);
        self.crash(dies.unwrap_or_else(|| others[0]));
        self.aim(Aim::DeafenFrozen(node, LOOKS))
    }

    /// An operator names another voter in the place of one, and one of them is lost with its state:
    /// some time in the change where all begin anew, or else while the change is half done.
    fn exchange_a_voter(&mut self) -> Result<(), Violation> {
        let overrides = self
            .newest_view_config()
            .map(|view_config| view_config.overrides.clone());
        let Some(mut voters) = overrides.map(|overrides| overrides.voters) else {
            return Ok(());
        };
        let present = self.voters_of(self.newest).unwrap_or_default();
        let is_settled = present.iter().map(|it| it.node).eq(voters.iter().copied());
        let comes = self.members().into_iter().find(|it| !voters.contains(it));
        let Some(comes) = comes.filter(|_| is_settled && voters.len() > 2) else {
            return Ok(());
        };
        let before = voters.clone();
        let goes = voters.iter().nth(self.choices.index(voters.len())).copied();
        voters.remove(&goes.expect("there are some"));
        voters.insert(comes);
        self.report.revotes += 1;
        self.change_at_one(Change::Voters(voters.clone()))?;
        if self.choices.chance(500) {
            self.aim_within(5..=50, Aim::AllCrash);
        } else if self.are_together() {
            let members = self.cluster.members();
            self.exchange = Some(Exchange {
                ends: [before, voters],
                processes: members.filter_map(|it| self.cluster.process(it)).collect(),
            });
        }
        self.aim_within(100..=300, Aim::Lose);
        Ok(())
    }

    /// A view of `epoch` is in force. If it is one half-way through an exchange of voters, and nobody
    /// has crashed or stood still since that began, then any one voter may lose its state: no fewer
    /// vote than before.
    pub(super) fn lose_amid_exchange(&mut self, epoch: Epoch) {
        let voters = self.voters_of(epoch).unwrap_or_default();
        let voters: BTreeSet<NodeId> = voters.iter().map(|it| it.node).collect();
        let is_amid = |exchange: &mut Exchange| !exchange.ends.contains(&voters);
        let Some(exchange) = self.exchange.take_if(is_amid) else {
            return;
        };
        let mut processes = exchange.processes.iter();
        let all_run = processes.all(|process| {
            let node = process.node;
            self.cluster.process(node) == Some(*process) && !self.cluster.is_paused(node)
        });
        if all_run && !self.calm {
            self.vote_at_least = exchange.ends[0].len();
            let lost = self.choices.index(voters.len());
            self.crash_and_forget(*voters.iter().nth(lost).expect("it is one of them"), true);
            self.vote_at_least = 0;
        }
    }

    /// It was let in.
    pub(super) fn strike(&mut self, process: Process) {
        let is_meant = match self.strike {
            None => false,
            Some(Strike::Only(node)) => process.node == node,
            Some(Strike::AllBut(node)) => process.node != node,
        };
        if self.calm || !is_meant {
            return;
        }
        self.crash(process.node);
        if let Some(Strike::AllBut(_)) = self.strike.take() {
            self.act_within(0..=30, Act::Join);
        }
    }

    /// Whether it runs, and has stopped for a view.
    fn is_frozen(&self, node: NodeId) -> bool {
        let node = self.cluster.node(node);
        node.is_some_and(|node| node.view().is_none())
    }

    fn holder(&mut self) -> Option<NodeId> {
        let holders: Vec<NodeId> = self
            .inside
            .iter()
            .map(|(process, _)| process.node)
            .collect();
        (!holders.is_empty()).then(|| holders[self.choices.index(holders.len())])
    }

    fn others(&self, node: NodeId) -> Vec<NodeId> {
        self.cluster.members().filter(|it| *it != node).collect()
    }

    fn cut_off(&mut self, node: NodeId) {
        self.report.partitions += 1;
        for other in self.others(node) {
            self.cluster.network().cut(node, other);
            self.cluster.network().cut(other, node);
        }
    }

    /// So many hundredths of a lease.
    fn share_of_lease(&mut self, percent: RangeInclusive<u64>) -> Duration {
        let percent = self.choices.within(percent) as u32;
        self.plan.settings.lease * percent / 100
    }

    fn act_within(&mut self, percent: RangeInclusive<u64>, act: Act) {
        let after = self.share_of_lease(percent);
        self.cluster.plan(after, act);
    }

    fn aim_within(&mut self, percent: RangeInclusive<u64>, aim: Aim) {
        self.act_within(percent, Act::Aim(aim));
    }

    fn look_again(&mut self, looks: u32, aim: impl Fn(u32) -> Aim) {
        if let Some(looks) = looks.checked_sub(1) {
            self.cluster
                .plan(self.plan.settings.lease / 50, Act::Aim(aim(looks)));
        }
    }
}
