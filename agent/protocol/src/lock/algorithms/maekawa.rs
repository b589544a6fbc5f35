//! Maekawa 1985 (ACM TOCS 3(2)), with the correction of Sanders 1987 (ACM TOCS 5(3)); and, with
//! other voting sets, Ricart and Agrawala with a majority.
//!
//! Each member has a set of voters ([`Coterie`]), and enters with the votes of all of them. A voter
//! has one vote, and gives it to one request at a time. Since votes are given out one by one, two
//! requests can each have some that the other lacks. So a vote that was given to a later request is
//! asked for again when an earlier one comes, and a member that some voter has refused gives it
//! back.
//!
//! Messages: `REQUEST(r, s)`; `GRANT(r, n)`, the voter's n-th vote; `FAILED(r)`, "others are before
//! you"; `INQUIRE(r, n)`, "may I have that vote back?"; `YIELD(r, n)`, "you may"; `RELEASE(r)`,
//! also to cancel. A member is its own voter, to which it talks without messages.
//!
//! Invariant: a vote belongs to one request, and any two voting sets have a voter in common. What
//! excludes is that the vote is kept until RELEASE: "enter on a majority of OKs", as the lecture
//! has Ricart and Agrawala's OK, lets two in, as an idle member says OK to everybody. It also takes
//! one's own vote: among four, majorities of the *others* can be disjoint.
//!
//! Progress: every queued request but the first has been told FAILED; and so has the first, or an
//! INQUIRE is out for it. Whoever comes before the first of the queue makes it one of the others,
//! so it is told then (Sanders); in the paper of 1985 it is not, never yields, and all stand still.
//! The earliest request of all is asked for nothing and gets every vote.
//!
//! Two rules are not in the papers. A request proves that its member's former one is over, so a
//! voter's queue has one entry for each member at most, in whatever order messages come. And a
//! caller that only tries is told FAILED even where an INQUIRE is out for it: whoever has the vote
//! may be inside. That never stops anything, since it makes a request yield only to earlier ones.
//!
//! Requests are not served in the order in which they were made, though S4 says so: one that is
//! slow to reach the common voter can be overtaken by one that was made because of it.
//!
//! Cost, of K voters: 3(K-1) messages under light load, response 2T+E; synchronisation delay 2T, or
//! T where the common voter is one of the two. Under heavy load 4(K-1), as newcomers are told
//! FAILED; in a chain of conflicts up to 6(K-1). K is about √N, or ⌊N/2⌋+1 for a majority. One
//! silent voter stops all that need it, until the next view chooses the voters anew.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::coterie::Coterie;
use crate::clock::Stamp;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Your vote, please. `tries`: tell me if I cannot have it at once.
    Request {
        id: RequestId,
        stamp: Stamp,
        tries: bool,
    },
    /// You have it; `number` is how many I have given.
    Grant { id: RequestId, number: u64 },
    /// Others are before you.
    Failed { id: RequestId },
    /// May I have that vote back? Somebody is before you.
    Inquire { id: RequestId, number: u64 },
    /// You may. I still want one.
    Yield { id: RequestId, number: u64 },
    /// I need your vote no more.
    Release { id: RequestId },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Grant { .. } => "GRANT",
            Self::Failed { .. } => "FAILED",
            Self::Inquire { .. } => "INQUIRE",
            Self::Yield { .. } => "YIELD",
            Self::Release { .. } => "RELEASE",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}

/// The rule by which voting sets are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Small,
    Majority,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Maekawa {
    me: NodeId,
    members: Vec<NodeId>,
    coterie: Coterie,
    /// This member's voters, by id: with itself, and without.
    voters: Vec<NodeId>,
    asked: Vec<NodeId>,
    phase: Phase,
    /// The number of the last vote from each voter (G4): one that was given back and comes again is
    /// not had again.
    newest: BTreeMap<NodeId, u64>,
    /// As a voter.
    ballot: Ballot,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Idle,
    Waiting(Campaign),
    Held { id: RequestId },
}

/// A request that waits for votes.
#[derive(Clone, Debug, Hash)]
struct Campaign {
    request: Request,
    /// Whose votes it has.
    votes: BTreeMap<NodeId, u64>,
    /// Who has told it that others are before it, and has not given it a vote since.
    failed: BTreeSet<NodeId>,
    /// Which votes were asked for again.
    inquiries: BTreeMap<NodeId, u64>,
}

/// What a member has as a voter.
#[derive(Clone, Debug, Default, Hash)]
struct Ballot {
    vote: Option<Vote>,
    /// How many votes were given; the last is `vote`.
    given: u64,
    /// Who waits for it, at most one request of each member.
    queue: BTreeMap<Stamp, RequestId>,
    /// Requests of each member below this number are over (G1, G5).
    over: BTreeMap<NodeId, u64>,
}

/// To whom the vote is given.
#[derive(Clone, Copy, Debug, Hash)]
struct Vote {
    id: RequestId,
    /// `None` for a holder since before the view: nobody is before it.
    stamp: Option<Stamp>,
    /// Whether it was asked for again.
    inquired: bool,
}

/// What is said in one step. What a member says to itself is heard in that step, too.
struct Said<'a> {
    effects: &'a mut Effects<Message>,
    messages: VecDeque<(NodeId, Message)>,
}

impl Said<'_> {
    fn say(&mut self, to: NodeId, message: Message) {
        self.messages.push_back((to, message));
    }
}

impl Maekawa {
    /// The holder has its votes; every waiter asks anew, with its old stamp.
    pub(crate) fn new(rule: Rule, from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let coterie = match rule {
            Rule::Small => Coterie::maekawa(from.members.len()),
            Rule::Majority => Coterie::majority(from.members.len()),
        };
        let mut engine = Self {
            me: from.me,
            members: from.members.to_vec(),
            coterie,
            voters: Vec::new(),
            asked: Vec::new(),
            phase: Phase::Idle,
            newest: BTreeMap::new(),
            ballot: Ballot::default(),
        };
        engine.voters = engine.voters_of(from.me).collect();
        let asked = engine.voters.iter().copied();
        engine.asked = asked.filter(|&voter| voter != from.me).collect();
        if let Some(&id) = from.holders.first()
            && engine.voters_of(id.node).any(|voter| voter == from.me)
        {
            engine.ballot.vote = Some(Vote {
                id,
                stamp: None,
                inquired: false,
            });
        }
        if let Some(id) = from.my_holder() {
            engine.phase = Phase::Held { id };
        } else if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn voters_of(&self, owner: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let place = self.members.binary_search(&owner);
        let voters = place.map(|owner| self.coterie.voters(owner));
        let voters = voters.unwrap_or_default().into_iter();
        voters.map(|voter| self.members[voter])
    }

    /// Carries out `step`, and what this member says to itself in it. That ends: its vote goes to
    /// earlier and earlier requests, and it has one.
    fn speak(&mut self, out: &mut Effects<Message>, step: impl FnOnce(&mut Self, &mut Said<'_>)) {
        let mut said = Said {
            effects: out,
            messages: VecDeque::new(),
        };
        step(self, &mut said);
        while let Some((to, message)) = said.messages.pop_front() {
            if to == self.me {
                self.hear(to, message, &mut said);
            } else {
                said.effects.send(to, message);
            }
        }
    }

    fn hear(&mut self, from: NodeId, message: Message, out: &mut Said<'_>) {
        match message {
            // Only its owner speaks for a request.
            Message::Request { id, stamp, tries } if id.node == from && stamp.node == from => {
                self.ballot.on_request(id, stamp, tries, out);
            }
            Message::Yield { id, number } if id.node == from => {
                self.ballot.on_yield(id, number, out);
            }
            Message::Release { id } if id.node == from => {
                self.ballot.end(from, id.seq.saturating_add(1), out);
            }
            Message::Grant { id, number } => self.on_grant(from, id, number, out),
            Message::Failed { id } => self.on_failed(from, id, out),
            Message::Inquire { id, number } => self.on_inquire(from, id, number, out),
            _ => {}
        }
    }

    /// The request that waits, if `id` is it (G2), and `from` a voter.
    fn campaign(&mut self, from: NodeId, id: RequestId) -> Option<&mut Campaign> {
        match &mut self.phase {
            Phase::Waiting(campaign) if campaign.request.id == id => {
                self.voters.binary_search(&from).is_ok().then_some(campaign)
            }
            // A RELEASE of any other is on its way.
            _ => None,
        }
    }

    fn on_grant(&mut self, from: NodeId, id: RequestId, number: u64, out: &mut Said<'_>) {
        let newest = self.newest.get(&from).copied().unwrap_or_default();
        let Some(campaign) = self.campaign(from, id).filter(|_| number > newest) else {
            return;
        };
        campaign.votes.insert(from, number);
        campaign.failed.remove(&from);
        let votes = campaign.votes.len();
        self.newest.insert(from, number);
        if votes == self.voters.len() {
            self.phase = Phase::Held { id };
            out.effects.grant(id);
        } else {
            self.give_way(out);
        }
    }

    fn on_failed(&mut self, from: NodeId, id: RequestId, out: &mut Said<'_>) {
        if let Some(campaign) = self.campaign(from, id)
            && !campaign.votes.contains_key(&from)
        {
            campaign.failed.insert(from);
            out.effects.busy = Some(id);
            self.give_way(out);
        }
    }

    fn on_inquire(&mut self, from: NodeId, id: RequestId, number: u64, out: &mut Said<'_>) {
        // It may have come before the vote it is about.
        if let Some(campaign) = self.campaign(from, id) {
            let inquired = campaign.inquiries.entry(from).or_default();
            *inquired = number.max(*inquired);
            self.give_way(out);
        }
    }

    /// Gives back what was asked for again, if some voter has refused: this request may wait long.
    fn give_way(&mut self, out: &mut Said<'_>) {
        let Phase::Waiting(campaign) = &mut self.phase else {
            return;
        };
        let id = campaign.request.id;
        if campaign.failed.is_empty() {
            return;
        }
        for (&voter, &number) in &campaign.inquiries {
            if campaign.votes.get(&voter) == Some(&number) {
                campaign.votes.remove(&voter);
                campaign.failed.insert(voter);
                out.say(voter, Message::Yield { id, number });
            }
        }
    }

    fn become_idle(&mut self, id: RequestId, out: &mut Effects<Message>) {
        self.phase = Phase::Idle;
        self.speak(out, |engine, out| {
            for &voter in &engine.voters {
                out.say(voter, Message::Release { id });
            }
        });
    }
}

impl Ballot {
    fn on_request(&mut self, id: RequestId, stamp: Stamp, tries: bool, out: &mut Said<'_>) {
        if self.knows(id) {
            return;
        }
        // Who asks again has left, or given up, what it asked for before.
        self.end(id.node, id.seq, out);
        let Some(vote) = &mut self.vote else {
            self.queue.insert(stamp, id);
            return self.serve(out);
        };
        let first = self.queue.first_key_value();
        let is_first = first.is_none_or(|(first, _)| stamp < *first);
        let leads = is_first && Some(stamp) < vote.stamp;
        if leads {
            if let Some((first, &overtaken)) = first
                && Some(*first) < vote.stamp
            {
                // It has not been told yet, as it led until now (Sanders 1987).
                out.say(overtaken.node, Message::Failed { id: overtaken });
            }
            if !vote.inquired {
                vote.inquired = true;
                let (id, number) = (vote.id, self.given);
                out.say(id.node, Message::Inquire { id, number });
            }
        }
        if !leads || tries {
            out.say(id.node, Message::Failed { id });
        }
        self.queue.insert(stamp, id);
    }

    /// Whether `id` is over, has the vote or waits for it: then asking again changes nothing.
    fn knows(&self, id: RequestId) -> bool {
        self.over.get(&id.node).is_some_and(|&over| id.seq < over)
            || self.vote.is_some_and(|vote| vote.id == id)
            || self.queue.values().any(|&queued| queued == id)
    }

    fn on_yield(&mut self, id: RequestId, number: u64, out: &mut Said<'_>) {
        if let Some(Vote {
            id: voted,
            stamp: Some(stamp),
            ..
        }) = self.vote
            && (voted, self.given) == (id, number)
        {
            self.vote = None;
            self.queue.insert(stamp, id);
            self.serve(out);
        }
    }

    /// Requests of `node` below `seq` are over.
    fn end(&mut self, node: NodeId, seq: u64, out: &mut Said<'_>) {
        let over = self.over.entry(node).or_default();
        *over = seq.max(*over);
        let is_over = |id: RequestId| id.node == node && id.seq < seq;
        self.queue.retain(|_, id| !is_over(*id));
        if self.vote.take_if(|vote| is_over(vote.id)).is_some() {
            self.serve(out);
        }
    }

    /// Gives the free vote to the first in the queue.
    fn serve(&mut self, out: &mut Said<'_>) {
        if let Some((stamp, id)) = self.queue.pop_first() {
            self.given += 1;
            self.vote = Some(Vote {
                id,
                stamp: Some(stamp),
                inquired: false,
            });
            let number = self.given;
            out.say(id.node, Message::Grant { id, number });
        }
    }
}

impl Engine<Message> for Maekawa {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(matches!(self.phase, Phase::Idle), "one request at a time");
        self.phase = Phase::Waiting(Campaign {
            request,
            votes: BTreeMap::new(),
            failed: BTreeSet::new(),
            inquiries: BTreeMap::new(),
        });
        let Request {
            id, stamp, tries, ..
        } = request;
        self.speak(out, |engine, out| {
            for &voter in &engine.voters {
                out.say(voter, Message::Request { id, stamp, tries });
            }
        });
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Held { id: held } if held == id) {
            self.become_idle(id, out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if matches!(&self.phase, Phase::Waiting(campaign) if campaign.request.id == id) {
            self.become_idle(id, out);
        }
    }

    /// Who is inside has all its votes: not this member's, if that is another's, and none that this
    /// member has.
    fn may_be_inside(&self, node: NodeId) -> bool {
        let lacks_one = match &self.phase {
            Phase::Idle => false,
            Phase::Waiting(campaign) => self
                .voters_of(node)
                .any(|voter| campaign.votes.contains_key(&voter)),
            Phase::Held { .. } => true,
        };
        let has_ours = || self.ballot.vote.is_some_and(|vote| vote.id.node == node);
        !lacks_one && (has_ours() || self.voters_of(node).all(|voter| voter != self.me))
    }

    fn asks(&self) -> &[NodeId] {
        &self.asked
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        self.speak(out, |engine, out| engine.hear(from, *message, out));
    }
}
