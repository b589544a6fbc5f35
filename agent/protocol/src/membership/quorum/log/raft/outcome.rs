//! What follows from a call, and goes out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

use super::super::entry::LogEntry;
use super::super::library::{Call, Entry, Library, Output, Position};
use super::super::message::{Body, LogMessage, MAX_ENTRIES};
use super::super::{Decided, LogAction, MAX_CHAIN, Proposal, ViewLog, VoterId};
use super::outbox::Mark;
use super::{Leading, RaftLog};
use crate::time::Time;

/// How often one call goes around at most. A leader alone, which commits at once, goes around for
/// the entry of its term, for a view, for both steps of a move, and for the news of each.
const MAX_ROUNDS: usize = 16;

impl<L: Library> RaftLog<L> {
    /// Draws every conclusion.
    pub(super) fn settle(&mut self, now: Time, out: &mut Vec<LogAction>) {
        for _ in 0..MAX_ROUNDS {
            self.collect(now);
            self.deliver();
            if self.broken || !self.tend(now) {
                break;
            }
        }
        if self.broken {
            // Of what failed only the failure is told.
            out.extend(self.actions.pop());
            return;
        }
        let library = &self.library;
        self.views.retain(|&index, (term, _)| {
            library.term_at(index) == Some(*term) && library.entry_at(index) == Some(Entry::View)
        });
        if self.deadline.is_none() {
            self.wind_up(now);
        }
        self.tell_leader();
        self.let_out(now, out);
    }

    pub(super) fn tell_leader(&mut self) {
        if self.told != self.leader() {
            self.told = self.leader();
            self.actions.push(LogAction::LeaderChanged);
        }
    }

    /// Lets out what has come of it, when what it rests on is durable.
    pub(super) fn let_out(&mut self, now: Time, out: &mut Vec<LogAction>) {
        let actions = mem::take(&mut self.actions);
        if self.outbox.put(now, Mark::of(&self.library), actions, out) {
            out.push(LogAction::Persist(self.record()));
        }
    }

    /// Does what the library puts out.
    fn collect(&mut self, now: Time) {
        let mut outputs = Vec::new();
        self.library.outputs(&mut outputs);
        for output in outputs {
            match output {
                Output::Timer => self.wind_up(now),
                Output::Send { to, term, call } => match self.body(term, call) {
                    Some(body) => {
                        let message = LogMessage { to, term, body };
                        self.actions.push(LogAction::Send(to, message));
                    }
                    None => return self.fail("the log has an entry for a view, and no view"),
                },
                Output::Snapshot { to } => {
                    let snapshot = Box::new(self.snapshot());
                    self.send(to, Body::Install(snapshot));
                }
            }
        }
    }

    /// The library's call with the views; `None` if one is missing.
    fn body(&self, term: u64, call: Call) -> Option<Body> {
        Some(match call {
            Call::Vote { last } => Body::Vote {
                last,
                handed_over: self.asked == Some(term),
            },
            Call::Voted { granted } => Body::Voted { granted },
            Call::Appended { last } => Body::Appended { last },
            Call::Append {
                commit,
                prev,
                entries,
            } => {
                let entries = entries.into_iter().take(MAX_ENTRIES);
                let entries = (prev.index + 1..).zip(entries);
                Body::Append {
                    commit,
                    prev,
                    entries: entries
                        .map(|(index, entry)| self.with_view(index, entry))
                        .collect::<Option<_>>()?,
                }
            }
        })
    }

    pub(super) fn with_view(&self, index: u64, entry: Entry) -> Option<LogEntry> {
        Some(match entry {
            Entry::Term(term) => LogEntry::Term(term),
            Entry::Voters(voters) => LogEntry::Voters(voters),
            Entry::View => LogEntry::View(self.views.get(&index)?.1.clone()),
        })
    }

    /// Tells what is committed, and takes it out of the log.
    pub(super) fn deliver(&mut self) {
        let (snapshot, committed) = (self.library.snapshot().index, self.library.committed());
        if self.broken || committed <= snapshot {
            return;
        }
        for index in snapshot + 1..=committed {
            if self.library.entry_at(index) == Some(Entry::View) {
                match self.views.remove(&index) {
                    Some((_, proposal)) if proposal.epoch > self.decided_epoch() => {
                        self.decide(proposal);
                    }
                    _ => return self.fail("what is committed is no view that can be next"),
                }
            }
        }
        let term = self.library.term_at(committed);
        let voters = self.library.voters_at(committed);
        let compacted = term.zip(voters).is_some_and(|(term, voters)| {
            let index = committed;
            self.library.compact(Position { term, index }, &voters)
        });
        if !compacted {
            return self.fail("the library does not have what it has committed");
        }
        if let Some(leading) = &mut self.leading {
            leading.news = true;
        }
    }

    fn decide(&mut self, proposal: Proposal) {
        let chain = self.decided.take().map_or_else(Vec::new, |last| {
            let link = last.link();
            let mut chain = last.chain;
            if chain.len() == MAX_CHAIN {
                chain.remove(0);
            }
            chain.push(link);
            chain
        });
        let decided = Decided { proposal, chain };
        self.decided = Some(decided.clone());
        self.actions.push(LogAction::Decided(decided));
    }

    /// A leader's duties. Whether something has come of them.
    fn tend(&mut self, now: Time) -> bool {
        if !self.leads() {
            self.leading = None;
            return false;
        }
        let leading = self.leading.get_or_insert_with(|| Leading {
            since: now,
            heard: BTreeMap::new(),
            successor: None,
            news: false,
        });
        if mem::take(&mut leading.news) {
            // The followers would learn it from the next heartbeat; here it is.
            self.library.timeout();
            return true;
        }
        let voters = self.library.voters();
        let wanted = self.wanted(&voters);
        !self.busy() && voters.now != wanted && wanted.contains(&self.me) && {
            self.library.propose_voters(&wanted)
        }
    }

    /// Takes no further part.
    pub(super) fn fail(&mut self, why: &'static str) {
        self.broken = true;
        self.deadline = None;
        self.leading = None;
        self.outbox.discard();
        self.actions.push(LogAction::Broken(why));
    }

    pub(super) fn send(&mut self, to: VoterId, body: Body) {
        let term = self.library.term();
        let message = LogMessage { to, term, body };
        self.actions.push(LogAction::Send(to, message));
    }
}
