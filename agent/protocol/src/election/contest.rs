//! One election in one member: rounds, who is nominated, and who leads.
//!
//! An epoch's rounds are counted from 1; a new round begins when nobody leads and the round before
//! is over, and the newest round counts everywhere. All that is known is forgotten with the epoch:
//! links deliver what is said between members within one, in order and once, so that a message is
//! missed only by those that a new view removes.
//!
//! - Who is nominated asks for the lock; who is inside tells all others (`LEADS`), and again
//!   whenever it hears of a round that has begun without knowing of it. Its word ends that round: an
//!   election never removes who leads, as the textbooks' bully would.
//! - A leader that resigns tells all others (`RESIGNED`), and so does a nominee that does not want
//!   to lead any more (`WITHDRAWN`). Then the candidates hold another round.
//! - Of several nominated in one round the highest counts. The others stop asking for the lock.
//! - A member that stands waits for the nominee, and tells it of its nomination if it has not
//!   entered in time (`ROUND`): where members are suspected by some and not by others, a ring
//!   passes by the member that it nominates, and that may have heard of another nominee.
//! - A message of an older round is answered by what is known (`ROUND`), so that its sender catches
//!   up.
//!
//! A nominee that neither enters nor withdraws waits for whoever has the lock without having been
//! elected (`distlock run`): another round would nominate the same one again.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::algorithms::{Algorithm, Effects, Message, build};
use super::engine::{AnswerTimer, Engine, Round};
use crate::ids::{Fence, LockName, NodeId};

/// How often the time for answers is doubled at most, when round after round comes to nothing.
const MAX_DOUBLINGS: u32 = 6;

/// What members say to each other about one election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionMessage {
    /// Which.
    pub(crate) lock: LockName,
    /// Of which round.
    pub(crate) round: u64,
    /// What.
    pub(crate) body: Body,
}

/// The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Body {
    /// Between the engines of the round.
    Engine(Message),
    /// I am inside of the lock with this fence, and lead.
    Leads { fence: u64 },
    /// I led with this fence, and do not any more.
    Resigned { fence: u64 },
    /// I am nominated, and do not stand any more.
    Withdrawn,
    /// In this round, this member is nominated: to a member that speaks of a round that is over, or
    /// is the nominee.
    Round { nominee: Option<NodeId> },
}

impl ElectionMessage {
    /// What it is called in counts and traces.
    pub(crate) const fn kind(&self) -> &'static str {
        match &self.body {
            Body::Engine(message) => message.kind(),
            Body::Leads { .. } => "LEADS",
            Body::Resigned { .. } => "RESIGNED",
            Body::Withdrawn => "WITHDRAWN",
            Body::Round { .. } => "ROUND",
        }
    }
}

/// Who leads: a member, and the fence with which it is inside of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// Which member.
    pub node: NodeId,
    /// Its fence.
    pub fence: Fence,
}

/// What stands around an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) me: NodeId,
    /// All members of the view in force.
    pub(crate) members: &'a [NodeId],
    /// Those that are suspected.
    pub(crate) silent: &'a BTreeSet<NodeId>,
    /// How long an answer is waited for.
    pub(crate) patience: Duration,
}

/// What a contest wants done.
#[derive(Debug, Default)]
pub(crate) struct ContestOutput {
    /// Messages, each with its round.
    pub(crate) sends: Vec<(NodeId, u64, Body)>,
    pub(crate) timer: Option<AnswerTimer>,
}

/// One election in one member, in one epoch.
#[derive(Debug, Default)]
pub(crate) struct Contest {
    /// Zero before the first.
    round: u64,
    /// Of the present round.
    engine: Option<Box<dyn Engine<Message>>>,
    nominee: Option<NodeId>,
    /// Who leads, and the round in which it said so last.
    leads: Option<(Leader, u64)>,
    /// The fence of the last one who led.
    last: Option<Fence>,
    /// Whether somebody here wants to lead.
    stands: bool,
    /// How many rounds in a row came to nothing.
    fruitless: u32,
}

impl Contest {
    /// Whether this member is the one that is to ask for the lock.
    pub(crate) fn is_nominated(&self, me: NodeId) -> bool {
        self.stands && self.leads.is_none() && self.nominee == Some(me)
    }

    /// Who leads, as far as is known.
    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leads.map(|(leader, _)| leader)
    }

    /// Whether another member leads, or is about to.
    pub(crate) fn is_anothers(&self, me: NodeId) -> bool {
        let leader = self.leader().map(|leader| leader.node);
        leader.or(self.nominee).is_some_and(|node| node != me)
    }

    /// Whether nothing has happened in it.
    pub(crate) fn is_new(&self) -> bool {
        self.round == 0
    }

    /// Whether somebody was known to lead in this epoch.
    pub(crate) fn has_heard(&self) -> bool {
        self.last.is_some()
    }

    /// Whether it may be forgotten: nobody here takes part, and nobody is known to lead.
    pub(crate) fn is_idle(&self) -> bool {
        !self.stands && self.leads.is_none()
    }

    /// Somebody here wants to lead, or (`false`) nobody does any more.
    pub(crate) fn set_standing(
        &mut self,
        scene: &Scene<'_>,
        stands: bool,
        out: &mut ContestOutput,
    ) {
        if self.stands == stands {
            return;
        }
        self.stands = stands;
        if stands {
            self.strive(scene, out);
        } else {
            self.withdraw(scene, out);
        }
    }

    /// A message from another member; whether it made sense.
    pub(crate) fn receive(
        &mut self,
        scene: &Scene<'_>,
        from: NodeId,
        round: u64,
        body: &Body,
        out: &mut ContestOutput,
    ) -> bool {
        if let Body::Resigned { fence } = body {
            return self.resigned(scene, from, *fence, out);
        }
        let is_new = round > self.round;
        if is_new {
            self.go_to(scene, round, out);
        } else if round < self.round {
            if matches!(body, Body::Engine(_)) {
                self.answer(scene, from, out);
            }
            return true;
        }
        match body {
            // An election that no member needs. One in a round that is new here has been told.
            Body::Engine(_) if self.leads_itself(scene) => {
                if !is_new {
                    self.answer(scene, from, out);
                }
            }
            Body::Engine(message) => self.step(scene, out, |engine, effects| {
                engine.receive(from, message, effects);
            }),
            Body::Leads { fence } => {
                let Some(fence) = Fence::new(*fence) else {
                    return false;
                };
                let leader = Leader { node: from, fence };
                // Of two members' words either may come first; fences only rise.
                if self.last.is_none_or(|last| last <= fence) {
                    self.note_leader(leader, out);
                }
            }
            // It can come before the word that this one is nominated, which goes round a ring.
            Body::Withdrawn => {
                if self.nominee.is_none_or(|nominee| nominee <= from) {
                    self.hold_next(scene, out);
                }
            }
            Body::Round { nominee } => {
                if !nominee.is_none_or(|node| scene.members.contains(&node)) {
                    return false;
                }
                if let Some(nominee) = *nominee {
                    self.nominated(scene, nominee, out);
                }
                self.strive(scene, out);
            }
            Body::Resigned { .. } => {}
        }
        true
    }

    /// The timer ran out.
    pub(crate) fn timeout(&mut self, scene: &Scene<'_>, out: &mut ContestOutput) {
        if let Some(nominee) = self.awaited(scene) {
            let body = Body::Round {
                nominee: Some(nominee),
            };
            out.sends.push((nominee, self.round, body));
        }
        self.step(scene, out, |engine, effects| engine.timeout(effects));
    }

    /// This member is inside of the lock.
    pub(crate) fn entered(&mut self, scene: &Scene<'_>, fence: Fence, out: &mut ContestOutput) {
        let leader = Leader {
            node: scene.me,
            fence,
        };
        self.round = self.round.max(1);
        self.note_leader(leader, out);
        self.tell_all(
            scene,
            &Body::Leads {
                fence: fence.into(),
            },
            out,
        );
    }

    /// This member is not inside any more.
    pub(crate) fn left(&mut self, scene: &Scene<'_>, out: &mut ContestOutput) {
        let Some((leader, _)) = self.leads.take_if(|(leader, _)| leader.node == scene.me) else {
            return;
        };
        let fence = leader.fence.into();
        self.tell_all(scene, &Body::Resigned { fence }, out);
        self.hold_next(scene, out);
    }

    /// `from` led and does not any more. This counts in whatever round: others may have begun a new
    /// one upon the same word, before it came here.
    fn resigned(
        &mut self,
        scene: &Scene<'_>,
        from: NodeId,
        fence: u64,
        out: &mut ContestOutput,
    ) -> bool {
        let is_it = |leader: Leader| leader.node == from && u64::from(leader.fence) == fence;
        let Some((_, round)) = self.leads.take_if(|(leader, _)| is_it(*leader)) else {
            return true;
        };
        if round == self.round {
            self.hold_next(scene, out);
        } else {
            self.strive(scene, out);
        }
        true
    }

    /// Who does not stand any more must not stay nominated.
    fn withdraw(&mut self, scene: &Scene<'_>, out: &mut ContestOutput) {
        if self.leads.is_none() && self.nominee == Some(scene.me) {
            self.tell_all(scene, &Body::Withdrawn, out);
            self.hold_next(scene, out);
        }
    }

    /// Sees to it that an election is held, if this member stands and nobody leads or is about to.
    fn strive(&mut self, scene: &Scene<'_>, out: &mut ContestOutput) {
        if !self.stands || self.leads.is_some() || self.nominee.is_some() {
            return;
        }
        if self.round == 0 {
            return self.hold_next(scene, out);
        }
        self.step(scene, out, |engine, effects| engine.stand(effects));
    }

    /// The present round is over, unless a member leads. The candidates begin the next one; the
    /// others go to it too, so that nothing that is under way of this one is believed.
    fn hold_next(&mut self, scene: &Scene<'_>, out: &mut ContestOutput) {
        if self.leads.is_some() {
            return;
        }
        self.go_to(scene, self.round.saturating_add(1), out);
        if self.stands {
            self.step(scene, out, |engine, effects| engine.stand(effects));
        }
    }

    /// From now on this round counts. The leader says so to the members that did not know.
    fn go_to(&mut self, scene: &Scene<'_>, round: u64, out: &mut ContestOutput) {
        self.round = round;
        self.nominee = None;
        let of_round = Round {
            me: scene.me,
            members: scene.members,
            silent: scene.silent,
            stands: self.stands,
            patience: self.patience(scene),
        };
        self.engine = Some(build(scene.algorithm, &of_round));
        out.timer = Some(AnswerTimer::Clear);
        if self.leads_itself(scene)
            && let Some((leader, said)) = &mut self.leads
        {
            *said = round;
            let fence = leader.fence.into();
            self.tell_all(scene, &Body::Leads { fence }, out);
        }
    }

    fn leads_itself(&self, scene: &Scene<'_>) -> bool {
        self.leader().is_some_and(|leader| leader.node == scene.me)
    }

    /// Somebody leads: nothing is waited for.
    fn note_leader(&mut self, leader: Leader, out: &mut ContestOutput) {
        self.leads = Some((leader, self.round));
        self.last = Some(leader.fence);
        self.fruitless = 0;
        out.timer = Some(AnswerTimer::Clear);
    }

    /// Tells `to`, which is in an older round, what it has missed.
    fn answer(&self, scene: &Scene<'_>, to: NodeId, out: &mut ContestOutput) {
        let body = match self.leader().filter(|leader| leader.node == scene.me) {
            Some(leader) => Body::Leads {
                fence: leader.fence.into(),
            },
            None => Body::Round {
                nominee: self.nominee,
            },
        };
        out.sends.push((to, self.round, body));
    }

    fn tell_all(&self, scene: &Scene<'_>, body: &Body, out: &mut ContestOutput) {
        let others = scene.members.iter().filter(|node| **node != scene.me);
        let sends = others.map(|node| (*node, self.round, body.clone()));
        out.sends.extend(sends);
    }

    /// Steps the engine of the round, and does what it wants.
    fn step(
        &mut self,
        scene: &Scene<'_>,
        out: &mut ContestOutput,
        step: impl FnOnce(&mut dyn Engine<Message>, &mut Effects),
    ) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let mut effects = Effects::default();
        step(&mut **engine, &mut effects);
        for (to, message) in effects.sends {
            out.sends.push((to, self.round, Body::Engine(message)));
        }
        if effects.timer.is_some() {
            out.timer = effects.timer;
        }
        if let Some(nominee) = effects.nominated
            && scene.members.contains(&nominee)
        {
            self.nominated(scene, nominee, out);
        }
        if effects.hold_again && self.leads.is_none() && self.nominee.is_none() {
            self.fruitless = self.fruitless.saturating_add(1);
            self.hold_next(scene, out);
        }
    }

    fn nominated(&mut self, scene: &Scene<'_>, nominee: NodeId, out: &mut ContestOutput) {
        let is_news = self.nominee < Some(nominee);
        self.nominee = self.nominee.max(Some(nominee));
        if !self.stands {
            self.withdraw(scene, out);
        } else if is_news && self.awaited(scene).is_some() {
            out.timer = Some(AnswerTimer::Set(self.patience(scene)));
        }
    }

    /// The other member that this one waits for: it is to ask for the lock.
    fn awaited(&self, scene: &Scene<'_>) -> Option<NodeId> {
        let nominee = self.nominee.filter(|nominee| *nominee != scene.me);
        nominee.filter(|_| self.stands && self.leads.is_none())
    }

    fn patience(&self, scene: &Scene<'_>) -> Duration {
        scene.patience * (1 << self.fruitless.min(MAX_DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::Algorithm;

    /// A ring passed by the member that it nominated, which heard of another nominee; so each of
    /// the two waited for the other.
    #[test]
    fn a_nominee_that_was_passed_by_is_told_by_those_who_wait_for_it() {
        let [lower, higher] = [1, 2].map(|id| NodeId::new(id).expect("not 0"));
        let (members, silent) = ([lower, higher], BTreeSet::new());
        let scene = |me| Scene {
            algorithm: Algorithm::Ring,
            me,
            members: &members,
            silent: &silent,
            patience: Duration::from_secs(1),
        };
        let nominated = |nominee| Body::Round {
            nominee: Some(nominee),
        };
        let hears = |me, from, nominee| {
            let mut out = ContestOutput::default();
            let mut contest = Contest::default();
            contest.set_standing(&scene(me), true, &mut out);
            contest.receive(&scene(me), from, 1, &nominated(nominee), &mut out);
            assert!(!contest.is_nominated(me));
            assert!(matches!(out.timer, Some(AnswerTimer::Set(_))));
            contest
        };
        let mut passed_by = hears(higher, lower, lower);
        let mut waiting = hears(lower, higher, higher);
        let mut out = ContestOutput::default();
        waiting.timeout(&scene(lower), &mut out);
        assert_eq!(out.sends, [(higher, 1, nominated(higher))]);
        let mut out = ContestOutput::default();
        passed_by.receive(&scene(higher), lower, 1, &nominated(higher), &mut out);
        assert!(passed_by.is_nominated(higher));
    }
}
