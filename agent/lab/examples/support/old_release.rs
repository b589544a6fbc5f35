//! noraft 0.4.0: voters look at the length of a candidate's log, and not at its last term; and a
//! leader that removes the last other voter never commits alone. What fuzzes the present release
//! must find out that this one is wrong.

use std::collections::BTreeSet;

use distlock_protocol::membership::quorum::log::VoterId;
use distlock_protocol::membership::quorum::log::library::{
    Call, Contradiction, Entry, Library, Output, Position, Role, Voters,
};
use noraft_0_4 as raft;

/// A node of the old release.
#[derive(Clone, Debug)]
pub(crate) struct OldRelease(raft::Node);

impl Library for OldRelease {
    fn restore(
        me: VoterId,
        term: u64,
        vote: Option<VoterId>,
        snapshot: Position,
        voters: &Voters,
        entries: &[Entry],
    ) -> Self {
        let entries = entries.iter().map(to_entry);
        let entries = raft::LogEntries::from_iter(to_position(snapshot), entries);
        let log = raft::Log::new(to_config(voters), entries);
        let term = raft::Term::new(term);
        // Nothing durable is ever lost here, which is all that generations are about.
        let generation = raft::NodeGeneration::ZERO;
        let node = raft::Node::restart(to_id(me), generation, term, vote.map(to_id), log);
        Self(node)
    }

    fn term(&self) -> u64 {
        self.0.current_term().get()
    }

    fn vote(&self) -> Option<VoterId> {
        self.0.voted_for().map(of_id)
    }

    fn role(&self) -> Role {
        match self.0.role() {
            raft::Role::Follower => Role::Follower,
            raft::Role::Candidate => Role::Candidate,
            raft::Role::Leader => Role::Leader,
        }
    }

    fn committed(&self) -> u64 {
        // This release does not count a snapshot from the leader as committed.
        self.0.commit_index().get().max(self.snapshot().index)
    }

    fn snapshot(&self) -> Position {
        of_position(self.0.log().snapshot_position())
    }

    fn last(&self) -> Position {
        of_position(self.0.log().last_position())
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        let entries = self.0.log().entries();
        entries
            .get_term(raft::LogIndex::new(index))
            .map(raft::Term::get)
    }

    fn entry_at(&self, index: u64) -> Option<Entry> {
        let entries = self.0.log().entries();
        entries
            .get_entry(raft::LogIndex::new(index))
            .map(|entry| of_entry(&entry))
    }

    fn voters_at(&self, index: u64) -> Option<Voters> {
        let log = self.0.log();
        log.get_position_and_config(raft::LogIndex::new(index))
            .map(|(_, config)| of_config(config))
    }

    fn voters(&self) -> Voters {
        of_config(self.0.config())
    }

    fn receive(&mut self, from: VoterId, term: u64, call: Call) -> Result<(), Contradiction> {
        let from = to_id(from);
        let term = raft::Term::new(term);
        let message = match call {
            Call::Vote { last } => raft::Message::RequestVoteCall {
                from,
                term,
                last_position: to_position(last),
            },
            Call::Voted { granted } => raft::Message::RequestVoteReply {
                from,
                term,
                vote_granted: granted,
            },
            Call::Append {
                commit,
                prev,
                entries,
            } => raft::Message::AppendEntriesCall {
                from,
                term,
                commit_index: raft::LogIndex::new(commit),
                entries: raft::LogEntries::from_iter(
                    to_position(prev),
                    entries.iter().map(to_entry),
                ),
            },
            Call::Appended { last } => raft::Message::AppendEntriesReply {
                from,
                term,
                generation: raft::NodeGeneration::ZERO,
                last_position: to_position(last),
            },
        };
        self.0.handle_message(&message);
        Ok(())
    }

    fn timeout(&mut self) {
        self.0.handle_election_timeout();
    }

    fn propose_view(&mut self) -> bool {
        !self.0.propose_command().is_invalid()
    }

    fn propose_voters(&mut self, next: &BTreeSet<VoterId>) -> bool {
        let mut config = self.0.config().clone();
        config.new_voters = next.iter().copied().map(to_id).collect();
        !self.0.propose_config(config).is_invalid()
    }

    fn compact(&mut self, position: Position, voters: &Voters) -> bool {
        self.0
            .handle_snapshot_installed(to_position(position), to_config(voters))
    }

    fn outputs(&mut self, outputs: &mut Vec<Output>) {
        let peers: Vec<_> = self.0.peers().map(of_id).collect();
        for output in self.0.actions_mut() {
            match output {
                raft::Action::SetElectionTimeout => outputs.push(Output::Timer),
                raft::Action::SaveCurrentTerm
                | raft::Action::SaveVotedFor
                | raft::Action::AppendLogEntries(_) => {}
                raft::Action::BroadcastMessage(message) => {
                    outputs.extend(peers.iter().map(|&to| send(to, &message)));
                }
                raft::Action::SendMessage(to, message) => outputs.push(send(of_id(to), &message)),
                raft::Action::InstallSnapshot(to) => {
                    outputs.push(Output::Snapshot { to: of_id(to) })
                }
            }
        }
    }
}

fn send(to: VoterId, message: &raft::Message) -> Output {
    let term = message.term().get();
    let call = match message {
        raft::Message::RequestVoteCall { last_position, .. } => Call::Vote {
            last: of_position(*last_position),
        },
        raft::Message::RequestVoteReply { vote_granted, .. } => Call::Voted {
            granted: *vote_granted,
        },
        raft::Message::AppendEntriesCall {
            commit_index,
            entries,
            ..
        } => Call::Append {
            commit: commit_index.get(),
            prev: of_position(entries.prev_position()),
            entries: entries.iter().map(|entry| of_entry(&entry)).collect(),
        },
        raft::Message::AppendEntriesReply { last_position, .. } => Call::Appended {
            last: of_position(*last_position),
        },
    };
    Output::Send { to, term, call }
}

const fn to_id(voter: VoterId) -> raft::NodeId {
    raft::NodeId::new(voter.0)
}

const fn of_id(id: raft::NodeId) -> VoterId {
    VoterId(id.get())
}

const fn to_position(position: Position) -> raft::LogPosition {
    raft::LogPosition {
        term: raft::Term::new(position.term),
        index: raft::LogIndex::new(position.index),
    }
}

const fn of_position(position: raft::LogPosition) -> Position {
    Position {
        term: position.term.get(),
        index: position.index.get(),
    }
}

fn to_config(voters: &Voters) -> raft::ClusterConfig {
    raft::ClusterConfig {
        voters: voters.now.iter().copied().map(to_id).collect(),
        new_voters: voters.next.iter().copied().map(to_id).collect(),
        non_voters: BTreeSet::new(),
    }
}

fn of_config(config: &raft::ClusterConfig) -> Voters {
    Voters {
        now: config.voters.iter().copied().map(of_id).collect(),
        next: config.new_voters.iter().copied().map(of_id).collect(),
    }
}

fn to_entry(entry: &Entry) -> raft::LogEntry {
    match entry {
        Entry::Term(term) => raft::LogEntry::Term(raft::Term::new(*term)),
        Entry::Voters(voters) => raft::LogEntry::ClusterConfig(to_config(voters)),
        Entry::View => raft::LogEntry::Command,
    }
}

fn of_entry(entry: &raft::LogEntry) -> Entry {
    match entry {
        raft::LogEntry::Term(term) => Entry::Term(term.get()),
        raft::LogEntry::ClusterConfig(config) => Entry::Voters(of_config(config)),
        raft::LogEntry::Command => Entry::View,
    }
}
