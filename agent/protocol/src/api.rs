//! What goes into a [`Node`](super::Node) and what comes out of it: the words that all parts of
//! the core share with whoever drives it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::election::{self, Leader};
use crate::ids::{Epoch, Fence, Incarnation, LockName, NodeId, Ticket};
use crate::lock::{AbandonedMarks, LockSpec, Mode, Previous, Release, SharedLoan};
use crate::membership::quorum::{Affiliation, Missing, QuorumOverview, VoterRecord};
use crate::membership::{Change, ClusterId, MembershipOverrides};
use crate::settings::Settings;
use crate::time::Time;

/// What a node must know before it starts.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// This member.
    pub me: NodeId,
    /// All members of the group, this one among them.
    pub members: BTreeSet<NodeId>,
    /// Who votes on views when the group is founded
    /// ([`Failure::Quorum`](crate::Failure::Quorum)): 1 to 7 of them. Later its views say who votes.
    pub voters: BTreeSet<NodeId>,
    /// The only cluster that this member may be in; `None` lets it found one, or join the one that
    /// is there.
    pub cluster: Option<ClusterId>,
    /// What all members must have alike.
    pub settings: Settings,
}

/// What a node is started with, besides its configuration.
#[derive(Clone, Debug)]
pub struct Boot {
    /// What the last incarnation left on disk; `None` if there is no state yet.
    pub record: Option<Record>,
    /// Wall-clock time since 2025-01-01 00:00 UTC. It is a floor for incarnations, and for epochs
    /// where there is no record, so that both rise even when the state was lost.
    pub wall: Duration,
    /// By chance, and another one in each member: random waits come of it.
    pub seed: u64,
}

/// What must outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The latest incarnation.
    pub incarnation: Incarnation,
    /// The highest epoch this member has taken part in.
    pub epoch: Epoch,
    /// Whether the incarnation ended with [`Command::Leave`]: then nobody of it is inside any more.
    pub clean: bool,
    /// What it knew of locks that were abandoned and that nobody had entered since.
    pub marks: AbandonedMarks,
    /// What it remembers of its cluster.
    pub affiliation: Affiliation,
    /// What a voter must remember, if this member is one.
    pub voter: Option<Arc<VoterRecord>>,
}

impl Record {
    /// What is left when an operator says that this member's cluster is abandoned: its
    /// incarnations, so that nobody takes it for a former one, the highest epoch it knows, so that
    /// fences rise, and how long the leases there may be, so that they are waited for. `abandoned`
    /// names the cluster where this record does not, and wins where it does; `None` is returned if
    /// nothing names it. `voters`: those of the file, who found the next cluster together, and no others.
    #[must_use]
    pub fn recover(&self, abandoned: Option<ClusterId>, voters: &BTreeSet<NodeId>) -> Option<Self> {
        let voted = self.voter.as_ref().and_then(|voter| voter.epoch());
        let longest = self.voter.as_ref().map(|voter| voter.longest_lease());
        let affiliation =
            self.affiliation
                .recover(abandoned, voters, longest.unwrap_or_default())?;
        Some(Self {
            incarnation: self.incarnation,
            epoch: self.epoch.max(voted.unwrap_or_default()),
            clean: false,
            marks: AbandonedMarks::Own,
            affiliation,
            voter: None,
        })
    }

    /// The record that stands in for one that was lost, where an operator says that the cluster is
    /// abandoned. What it cannot know is waited for as the files say.
    #[must_use]
    pub fn recover_lost(abandoned: ClusterId, voters: &BTreeSet<NodeId>) -> Self {
        let lost = Self {
            incarnation: Incarnation(0),
            epoch: Epoch::ZERO,
            clean: false,
            marks: AbandonedMarks::Own,
            affiliation: Affiliation::new(Incarnation(0)),
            voter: None,
        };
        lost.recover(Some(abandoned), voters).expect("it is named")
    }
}

/// What goes in.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A datagram arrived from the address of member `from`.
    Datagram {
        /// Whose address it came from.
        from: NodeId,
        /// All its bytes.
        bytes: &'a [u8],
    },
    /// A local caller wants something.
    Command(&'a Command),
    /// The time that [`poll_timeout`](super::Node::poll_timeout) named has come (or not: it does
    /// no harm to say so too early).
    Timeout,
    /// The last [`Output::Persist`] is on disk. One is outstanding at a time.
    Persisted,
}

/// What local callers want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To enter `lock`. Ends in exactly one of [`Event::Granted`] and [`Event::Ended`].
    Acquire {
        /// How the caller calls this request: never used before in this node's incarnation.
        ticket: Ticket,
        /// The lock.
        lock: LockName,
        /// What the caller says about the lock: `None` takes it as it is, or as the default.
        spec: Option<LockSpec>,
        /// With whom the caller may be inside.
        mode: Mode,
        /// How long the caller is willing to wait.
        wait: Wait,
    },
    /// To lead in the election called `lock`: to be nominated, and then to enter the lock of that
    /// name, which must be exclusive. Ends as [`Command::Acquire`] does, and what is granted is left
    /// in the same way.
    Campaign {
        /// How the caller calls this request: never used before in this node's incarnation.
        ticket: Ticket,
        /// The election, and the lock.
        lock: LockName,
        /// How the lock is served: with one permit.
        spec: LockSpec,
        /// By which algorithm the caller wants the election held: refused if by another.
        algorithm: Option<election::Algorithm>,
        /// How long the caller is willing to wait.
        wait: Wait,
    },
    /// To leave what `ticket` was granted. Unknown tickets do nothing.
    Release {
        /// The granted request.
        ticket: Ticket,
        /// How it ended.
        how: Release,
    },
    /// To enter `lock` by `loan` whenever this member has the lock and nobody uses it. Whoever is inside
    /// when it is wanted back is a caller from then on ([`Event::Entered`]), and the lock is lent again
    /// after the next such command.
    Borrow {
        /// How that caller's request is called: never used before in this node's incarnation.
        ticket: Ticket,
        /// The lock.
        lock: LockName,
        /// By what this member's threads enter.
        loan: SharedLoan,
    },
    /// To have that loan no more. Another one of the same lock stays.
    Return {
        /// The lock.
        lock: LockName,
        /// Of [`Command::Borrow`].
        loan: SharedLoan,
    },
    /// To hear of whoever is inside by the loan of that lock ([`Event::Entered`]).
    Find {
        /// The lock.
        lock: LockName,
    },
    /// To wait no longer. Answered at once by [`Event::Ended`], unless the request was granted or
    /// ended before: then it does nothing, and the caller holds what it was granted.
    Cancel {
        /// The waiting request.
        ticket: Ticket,
    },
    /// To carry `bytes` (at most [`Command::MAX_NOTE`]) to another agent, for what is not the
    /// protocol's: status, for one. Dropped if that member is not linked, or if so much waits to be
    /// sent to it that what the protocol says would wait for this.
    Note {
        /// The receiver.
        to: NodeId,
        /// The text.
        bytes: Vec<u8>,
    },
    /// To change who may be a member ([`Failure::Quorum`](crate::Failure::Quorum)), in place of a
    /// change that was asked for before and is not made yet. It is tried until a view has it
    /// ([`Event::Members`]), but not after `until`: nobody waits for it any more, and an operator may
    /// want the opposite by then.
    Change {
        /// What is to change.
        change: Change,
        /// When it is given up.
        until: Time,
    },
    /// To leave the group: waiting requests end, granted ones are released, and when the others
    /// know (or a bounded time has passed) [`Event::Left`] comes and the node is silent.
    Leave,
}

impl Command {
    /// The longest note, in bytes.
    pub const MAX_NOTE: usize = 256 * 1024;
}

/// How long a request that does not wait for the lock ([`Wait::Try`]) waits for the members' answers
/// at most.
pub const MAX_TRY_TIME: Duration = Duration::from_millis(700);

/// How long a request waits by itself. Deadlines are the caller's: it cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Until it is granted or cancelled, or members have been missing for one lease
    /// ([`Refusal::NoQuorum`]).
    Lease,
    /// Until it is granted or cancelled.
    Cancelled,
    /// Only until it is known that the lock is not free ([`Refusal::Busy`]), or that this cannot be
    /// known now ([`Refusal::NoAnswer`]); at most [`MAX_TRY_TIME`].
    Try,
}

/// What comes out. Drain it after every input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to that member. Loss is expected and repaired.
    Transmit {
        /// The receiver.
        to: NodeId,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// Tell whom it concerns.
    Event(Event),
    /// Put this on disk, then say [`Input::Persisted`].
    Persist(Box<Record>),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request is inside.
    Granted {
        /// Which.
        ticket: Ticket,
        /// Its fencing token.
        fence: Fence,
        /// How the grant before it ended.
        previous: Previous,
    },
    /// A thread that entered by a loan is inside, and is a caller from now on: it leaves by
    /// [`Command::Release`].
    Entered {
        /// Of [`Command::Borrow`].
        ticket: Ticket,
        /// The fencing token that it has had since it entered.
        fence: Fence,
    },
    /// A loan was taken back that was entered by, or by which threads wait for their turn. It may have been made
    /// again since; else they have to ask.
    Recalled {
        /// The lock.
        lock: LockName,
        /// How often it was entered, also by the thread that is inside.
        entries: u32,
        /// Whether threads wait.
        is_waited: bool,
    },
    /// The request is over, without a grant.
    Ended {
        /// Which.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
    },
    /// Another leads in an election, or nobody does, as far as this member knows. It hears of every
    /// leader in its view.
    Leader {
        /// The election.
        lock: LockName,
        /// Who.
        leader: Option<Leader>,
    },
    /// A grant is no longer valid, and its holder must stop.
    Lost {
        /// Which.
        ticket: Ticket,
    },
    /// What is granted is valid until this member's clock shows that time, unless another such event
    /// comes. [`Event::Granted`] is told only while it is valid.
    Lease {
        /// When it ends; [`Time::MAX`] where nobody is ever removed.
        until: Time,
    },
    /// A certified view has gone on without this incarnation. [`Event::Lost`] has come for everything
    /// that was held. The node begins a new incarnation by itself, and callers that wait go on
    /// waiting; later [`Event::Lease`]s are those of the new incarnation.
    Excluded {
        /// That view's epoch.
        epoch: Epoch,
    },
    /// Nothing was heard from this member for a while. It may be dead, slow or cut off.
    Suspect {
        /// Which.
        peer: NodeId,
    },
    /// A suspected member was heard again.
    Alive {
        /// Which.
        peer: NodeId,
    },
    /// A new view is in force.
    View {
        /// Its epoch.
        epoch: Epoch,
        /// Its members.
        members: Vec<NodeId>,
    },
    /// A member's settings differ from ours, and the group cannot form with both. Where `key` is
    /// `voters` both have formed without the other, as two clusters of one name.
    Disagreement {
        /// Which member.
        peer: NodeId,
        /// The first key that differs, as in the configuration file.
        key: String,
        /// Our value.
        ours: String,
        /// Its value.
        theirs: String,
        /// Whether that member is in a view, and we are the odd one out.
        refused: bool,
    },
    /// Another process runs under this member's id, or ran with a state this one does not have.
    /// The node is silent from now on.
    Superseded {
        /// Who says so.
        by: NodeId,
    },
    /// There has been no quorum for one lease, or there is one again, or others are missing than
    /// were told: this is how it stands.
    Quorum(QuorumOverview),
    /// The members that operators added and removed beyond what the files list. If this member is
    /// among the removed, it is in no view any more.
    Members {
        /// The additions and removals in force.
        overrides: MembershipOverrides,
    },
    /// A view was proposed with these, whom this member's file does not list: views go on without this member, or
    /// without them ([`Failure::PresumeFailed`](crate::Failure::PresumeFailed) only).
    Unlisted {
        /// The members that are not listed.
        members: Vec<NodeId>,
    },
    /// [`Command::Change`] is not for this group: files alone say who is a member.
    Unchangeable,
    /// What orders the voters' proposals contradicts itself here: this member votes on nothing any
    /// more before it is started anew.
    VoterBroken {
        /// How.
        why: &'static str,
    },
    /// Another agent sent a note.
    Note {
        /// Who.
        from: NodeId,
        /// The text.
        bytes: Vec<u8>,
    },
    /// [`Command::Leave`] is done.
    Left,
}

/// Why a request ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller cancelled it.
    Cancelled,
    /// The lock is not free ([`Wait::Try`] only): another member said so, or every member answers,
    /// and the lock was not given in the time in which a free one is.
    Busy,
    /// In that time it was not found out whether the lock is free ([`Wait::Try`] only).
    NoAnswer {
        /// The members of the view that answered nothing since the request was made.
        silent: Vec<NodeId>,
    },
    /// These members have been missing for one lease.
    NoQuorum {
        /// Which, and why.
        missing: Vec<Missing>,
    },
    /// The lock is served otherwise than the caller said.
    WrongSpec {
        /// How it is served.
        actual: LockSpec,
    },
    /// The lock is served so that nobody can share it.
    NotShareable {
        /// How it is served.
        actual: LockSpec,
    },
    /// The election is held otherwise than the caller said.
    WrongElection {
        /// By which algorithm.
        actual: election::Algorithm,
    },
    /// A limit is exceeded: too many locks or too many waiting requests.
    Limit,
    /// The node has left, or was superseded.
    Closed,
}
