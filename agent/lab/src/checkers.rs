//! What must hold whatever the network does, judged from outside.
//!
//! The checkers see what callers see: what was asked, what was answered, which processes began and
//! ended. They share no code with the nodes, and each rule is a type of its own that can be shown
//! to catch a planted breach (`agent/lab/tests/sim_checkers.rs`).

mod abandonment;
mod decisions;
mod deliveries;
mod endorsements;
mod exclusion;
mod fairness;
mod fences;
mod leaders;
mod leases;
mod notes;
mod presumption;
mod requests;
mod views;
mod violation;

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;
use core::time::Duration;

pub use abandonment::Abandonment;
pub(crate) use decisions::Decisions;
pub(crate) use deliveries::{Deliveries, Payload};
pub(crate) use endorsements::Endorsements;
pub use exclusion::Exclusion;
pub use fairness::Fairness;
pub use fences::Fences;
pub use leaders::Leaders;
pub use leases::Leases;
pub use notes::Notes;
pub use presumption::Presumption;
pub use requests::{Requests, Terms};
pub use views::Views;
pub(crate) use violation::violation;
pub use violation::{Call, Process, Rule, Violation};

use distlock_protocol::{
    Command, Epoch, Event, Fence, LockName, Mode, NodeId, Previous, Release, Ticket, Time,
};

/// All rules together.
#[derive(Debug)]
pub struct Checkers {
    exclusion: Exclusion,
    fences: Fences,
    leaders: Leaders,
    abandonment: Abandonment,
    requests: Requests,
    views: Views,
    pub(crate) endorsements: Endorsements,
    notes: Notes,
    /// `None` where nobody is ever removed, or only presumed gone.
    leases: Option<Leases>,
    presumption: Option<Presumption>,
    /// What members may say that their files differ in.
    may_differ: BTreeSet<&'static str>,
    /// Whether datagrams are forged.
    forged: bool,
}

impl Checkers {
    /// Rules for locks with that many permits, among `members`, of whom nobody is ever removed.
    pub fn new(
        locks: BTreeMap<LockName, NonZeroU32>,
        members: impl IntoIterator<Item = NodeId>,
    ) -> Self {
        Self {
            fences: Fences::new(&locks),
            abandonment: Abandonment::new(&locks),
            exclusion: Exclusion::new(locks),
            leaders: Leaders::default(),
            requests: Requests::default(),
            views: Views::new(members),
            endorsements: Endorsements::default(),
            notes: Notes::default(),
            leases: None,
            presumption: None,
            may_differ: BTreeSet::new(),
            forged: false,
        }
    }

    /// The rules where views go on without members, and grants are valid as long as `leases`. The
    /// first view of all is that of the epoch `first`.
    pub fn with_leases(
        locks: BTreeMap<LockName, NonZeroU32>,
        members: impl IntoIterator<Item = NodeId>,
        leases: Leases,
        first: Epoch,
    ) -> Self {
        let mut checkers = Self::new(locks, members);
        checkers.leases = Some(leases);
        checkers.fences.keep_back();
        checkers.abandonment.remove_members(first);
        checkers.requests.remove_members();
        checkers.views.remove_members();
        checkers
    }

    /// From now on what decides on views lies. Nobody need be told less for that, but more.
    pub const fn distrust_views(&mut self) {
        self.abandonment.distrust();
    }

    /// From now on datagrams are forged: their forger can have two hold a lock, or claim that
    /// somebody is a member. All that is judged is that every request ends once, and that a member
    /// which is excluded says so to its holders.
    pub const fn distrust_datagrams(&mut self) {
        self.forged = true;
        self.requests.distrust();
    }

    /// The rules where the silent are presumed gone: there are no fences; exclusion is judged, and
    /// what the next is told of former holders, as long as nobody is presumed gone who runs; and
    /// with a process ends whoever it let in.
    pub fn presuming(
        locks: BTreeMap<LockName, NonZeroU32>,
        members: impl IntoIterator<Item = NodeId>,
    ) -> Self {
        let members: BTreeSet<NodeId> = members.into_iter().collect();
        Self {
            views: Views::presuming(members.iter().copied()),
            abandonment: Abandonment::presuming(&locks),
            presumption: Some(Presumption::default()),
            ..Self::new(locks, members)
        }
    }

    /// What happened where the silent are presumed gone.
    pub const fn presumption(&self) -> Option<&Presumption> {
        self.presumption.as_ref()
    }

    /// A process begins. What an earlier incarnation of that member was granted may still be in use
    /// until `quarantine_ends`, and no longer.
    pub fn begins(&mut self, process: Process, quarantine_ends: Time) {
        self.exclusion.begins(process.node, quarantine_ends);
        self.views.begins(process);
        if let Some(presumption) = &mut self.presumption {
            presumption
                .running
                .insert(process.node, process.incarnation);
        }
    }

    /// A process ends without a word. Whoever it was granted a lock may still be inside.
    pub fn crashes(&mut self, process: Process) {
        self.exclusion.crashes(process);
        self.abandonment.crashes(process);
        self.requests.crashes(process);
        if let Some(presumption) = &mut self.presumption {
            presumption.running.remove(&process.node);
            self.exclusion.forgets(process);
        }
    }

    /// The record on the disk of `node` is lost.
    pub fn forgets(&mut self, node: NodeId) {
        self.views.forgets(node);
    }

    /// It was the last that remembered a cluster.
    pub fn forgets_all(&mut self) {
        self.abandonment.forgets_all();
    }

    /// A caller gives its node a command.
    ///
    /// # Errors
    /// The caller broke the rules itself: then the simulation is wrong.
    pub fn commands(
        &mut self,
        now: Time,
        process: Process,
        command: &Command,
    ) -> Result<(), Violation> {
        let call = |ticket: &Ticket| Call {
            process,
            ticket: *ticket,
        };
        match command {
            Command::Acquire {
                ticket,
                lock,
                spec: wish,
                mode,
                wait,
            } => {
                let terms = Terms {
                    wait: *wait,
                    wish: *wish,
                };
                self.requests
                    .asks(now, call(ticket), lock.clone(), *mode, terms)
            }
            Command::Campaign {
                ticket,
                lock,
                spec,
                wait,
                ..
            } => {
                let terms = Terms {
                    wait: *wait,
                    wish: Some(*spec),
                };
                self.leaders.campaigns(call(ticket));
                self.requests
                    .asks(now, call(ticket), lock.clone(), Mode::Exclusive, terms)
            }
            Command::Cancel { ticket } => {
                self.requests.cancels(call(ticket));
                Ok(())
            }
            Command::Release { ticket, how } => {
                if self.requests.releases(call(ticket)) {
                    self.exclusion.leaves(call(ticket));
                    self.abandonment.leaves(call(ticket), *how);
                }
                Ok(())
            }
            // What enters by a loan is told to these checkers as if it had asked.
            Command::Change { .. }
            | Command::Borrow { .. }
            | Command::Return { .. }
            | Command::Find { .. } => Ok(()),
            Command::Leave => {
                for held in self.requests.closes(process) {
                    self.exclusion.leaves(held);
                    self.abandonment.leaves(held, Release::Given);
                }
                Ok(())
            }
            Command::Note { to, bytes } => {
                self.notes.sends(process, *to, bytes);
                Ok(())
            }
        }
    }

    /// Files have another lease from now on, and members that have read different ones say so.
    pub fn change_lease(&mut self, lease: Duration) {
        self.may_differ.insert("lease");
        if let Some(leases) = &mut self.leases {
            leases.change(lease);
        }
    }

    /// The file of one member has another lock delay, and members that meet it say so.
    pub fn change_lock_delay(&mut self) {
        self.may_differ.insert("lock_delay");
    }

    /// Files list other members from now on, and members that have read different ones say so.
    pub fn change_list(&mut self) {
        self.may_differ.insert("members");
    }

    /// A cluster was abandoned, or has lost its voters' states: members that remember it may meet
    /// members of the next one, and say so.
    pub fn allow_other_cluster(&mut self) {
        self.may_differ.insert("voters");
    }

    /// Whether what `process` was granted is valid now.
    pub fn has_lease(&self, now: Time, process: Process) -> bool {
        let leases = self.leases.as_ref();
        leases.is_none_or(|leases| leases.has_lease(now, process))
    }

    /// No view is in force in `process`, though there may have been one; or there is a new one.
    pub fn stops(&mut self, process: Process) {
        if let Some(leases) = &mut self.leases {
            leases.stops(process);
        }
    }

    /// A node tells its callers something.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn hears(&mut self, now: Time, process: Process, event: &Event) -> Result<(), Violation> {
        let call = |ticket: &Ticket| Call {
            process,
            ticket: *ticket,
        };
        if self.forged {
            return self.hears_amid_forgery(now, process, event);
        }
        match event {
            Event::Granted {
                ticket,
                fence,
                previous,
            } => self.granted(now, call(ticket), *fence, *previous),
            Event::Entered { ticket, .. } => self.requests.is_known(now, call(ticket)),
            Event::Ended { ticket, refusal } => {
                let call = call(ticket);
                if let Some(leases) = &self.leases
                    && let Some(waits) = self.requests.waits(call)
                {
                    leases.refuses(now, call, refusal, waits)?;
                }
                self.requests.ends(now, call, refusal)
            }
            Event::Lost { ticket } => self.loses(now, call(ticket)),
            Event::View { epoch, members } => {
                self.stops(process);
                let list = members.iter().copied().collect();
                let is_whole = self.views.is_group(&list);
                self.abandonment.goes_on_with(*epoch, &list, is_whole);
                self.abandonment.installs(process, *epoch);
                self.views.installs(now, process, *epoch, members)
            }
            // Those that wait by a loan ask, which these checkers see.
            Event::Recalled { .. }
            | Event::Members { .. }
            | Event::Unlisted { .. }
            | Event::Unchangeable
            | Event::Quorum(_) => Ok(()),
            Event::Lease { until } => match &mut self.leases {
                Some(leases) => {
                    let end = leases.extends(now, process, *until)?;
                    self.exclusion.extends(now, process, end)
                }
                None => Ok(()),
            },
            Event::Excluded { epoch } => {
                self.views.excludes(now, process, *epoch)?;
                if let Some(leases) = &mut self.leases {
                    leases.ends(process);
                }
                self.abandonment.excludes(process);
                self.requests.excludes(now, process)
            }
            Event::VoterBroken { why } => Err(violation!(
                now,
                Views,
                "the log of {process} is broken: {why}"
            )),
            Event::Suspect { peer } => {
                if let Some(presumption) = &mut self.presumption
                    && presumption.running.contains_key(peer)
                {
                    presumption.splits += u64::from(!presumption.is_split);
                    presumption.is_split = true;
                }
                self.views.suspects(now, process, *peer)
            }
            Event::Alive { peer } => self.views.hears_of(now, process, *peer),
            Event::Left => {
                self.abandonment.left(process);
                self.requests.left(now, process)
            }
            Event::Disagreement { key, .. } if self.may_differ.contains(key.as_str()) => Ok(()),
            Event::Disagreement { peer, key, .. } => Err(violation!(
                now,
                Views,
                "{process} says that {key} differs at member {peer}, but it does not"
            )),
            Event::Superseded { by } => Err(violation!(
                now,
                Views,
                "{process} says that member {by} knows a later incarnation of this member, but there is none"
            )),
            Event::Leader { lock, leader } => match leader {
                Some(leader) => self.leaders.told(now, lock, *leader),
                None => Ok(()),
            },
            Event::Note { from, bytes } => self.notes.arrives(now, process, *from, bytes),
        }
    }

    fn hears_amid_forgery(
        &mut self,
        now: Time,
        process: Process,
        event: &Event,
    ) -> Result<(), Violation> {
        let call = |ticket: &Ticket| Call {
            process,
            ticket: *ticket,
        };
        match event {
            Event::Granted { ticket, .. } => self.requests.grants(now, call(ticket)).map(drop),
            Event::Ended { ticket, refusal } => self.requests.ends(now, call(ticket), refusal),
            Event::Lost { ticket } => self.requests.yields(now, call(ticket)),
            Event::Excluded { .. } => self.requests.excludes(now, process),
            Event::Left => self.requests.left(now, process),
            _ => Ok(()),
        }
    }

    /// A node is done with one input and has told all that follows from it.
    ///
    /// # Errors
    /// A cancelled request was not answered at once.
    pub fn settles(&mut self, now: Time) -> Result<(), Violation> {
        if let Some(presumption) = &mut self.presumption
            && presumption.is_split
            && self.views.are_one(&presumption.running)
        {
            presumption.is_split = false;
            presumption.merges += 1;
            self.exclusion.is_kept(now)?;
        }
        self.requests.settles(now)
    }

    /// Faults stopped long enough ago for everybody to be served.
    ///
    /// # Errors
    /// Who is still waiting, or still suspected.
    pub fn at_rest(&self, now: Time) -> Result<(), Violation> {
        self.requests.all_over(now)?;
        if let Some(presumption) = &self.presumption
            && !self.views.are_one(&presumption.running)
        {
            let words = "the members that run are not in one view";
            return Err(violation!(now, Progress, "{words}"));
        }
        self.views.nobody_suspected(now)
    }

    /// Everybody has entered every lock once more.
    ///
    /// # Errors
    /// Of whom nobody was told that it ended inside.
    pub fn all_told(&self, now: Time) -> Result<(), Violation> {
        if self.presumption.as_ref().is_some_and(|it| it.splits > 0) {
            return Ok(());
        }
        self.abandonment.all_told(now)
    }

    /// How many wait for a grant.
    pub fn waiting(&self) -> usize {
        self.requests.waiting()
    }

    /// The requests that wait in `process`.
    pub fn waiting_in(&self, process: Process) -> impl Iterator<Item = Ticket> {
        self.requests.waiting_in(process)
    }

    fn loses(&mut self, now: Time, call: Call) -> Result<(), Violation> {
        match &mut self.presumption {
            Some(presumption) if presumption.splits > 0 => {
                presumption.lost += 1;
                self.exclusion.leaves(call);
                self.requests.yields(now, call)
            }
            _ => {
                self.exclusion.leaves(call);
                self.requests.loses(now, call)
            }
        }
    }

    fn granted(
        &mut self,
        now: Time,
        call: Call,
        fence: Fence,
        previous: Previous,
    ) -> Result<(), Violation> {
        if let Some(leases) = &self.leases {
            leases.grants(now, call)?;
        }
        let (lock, mode) = self.requests.grants(now, call)?;
        let epoch = self.views.epoch_of(now, call.process)?;
        self.leaders.grants(call, &lock, fence);
        if let Some(presumption) = &mut self.presumption {
            if presumption.is_split {
                self.exclusion.intrudes(call, &lock, mode);
            } else {
                presumption.judged += 1;
                self.exclusion.enters(now, call, &lock, mode)?;
            }
            // What one side knows of former holders the other may not.
            return if presumption.splits == 0 {
                self.abandonment.grants(now, call, (&lock, mode), previous)
            } else {
                Ok(())
            };
        }
        self.fences.grants(now, call, (&lock, mode), fence, epoch)?;
        self.exclusion.enters(now, call, &lock, mode)?;
        self.abandonment.grants(now, call, (&lock, mode), previous)
    }
}
