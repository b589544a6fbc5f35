//! One step from a state to the next.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::checkers::Checkers;
use super::post::Letter;
use super::seat::{Caller, Said, Seat};
use super::{
    ALL_TWICE, CANCEL_MEETS_GRANT, CRASHED_INSIDE, DIED_OF_ITS_EPOCH, ENTERED, ENTERED_REBORN,
    LIFTED, TAKEN_OVER, TOLD, VIEW_GIVEN_UP,
};
use super::{Action, LockModel, Master, Stage, State, Weakness};
use crate::checkers::{Process, Violation};
use crate::model::{member, place};
use distlock_protocol::lock::{LockMessage, Summary};
use distlock_protocol::membership::{Member, View};
use distlock_protocol::{Epoch, Event, NodeId, Release};

/// One step: a state that is being changed.
pub(super) struct Turn<'a> {
    model: &'a LockModel,
    state: State,
    checkers: Checkers,
}

type Checked = Result<(), Violation>;

impl<'a> Turn<'a> {
    pub(super) fn new(model: &'a LockModel, state: &State) -> Self {
        Self {
            model,
            checkers: (*state.checkers).clone(),
            state: state.clone(),
        }
    }

    pub(super) fn finish(mut self, step: impl FnOnce(&mut Self) -> Checked) -> State {
        let judged = step(&mut self);
        let judged = judged.and_then(|()| self.checkers.settles());
        self.state.broken = judged.err().map(Box::new);
        self.tidy();
        self.state.checkers = self.model.checkers.share(self.checkers);
        self.state
    }

    pub(super) fn play(&mut self, action: &Action) -> Checked {
        match *action {
            Action::Crash(node) => {
                self.crash(node);
                Ok(())
            }
            Action::Restart(node) => {
                self.restart(node);
                Ok(())
            }
            Action::Form => {
                self.form();
                Ok(())
            }
            Action::Stop(node) => self.stop(node),
            Action::LeaseOver(node) => {
                self.checkers.lease_over(node);
                self.change_master(|master| {
                    master.leases.remove(&node);
                });
                Ok(())
            }
            Action::Install(node) => self.install(node),
            Action::Lift(node) => self.lift(node),
            Action::Want(node) => {
                let mut seat = self.take(node);
                self.checkers
                    .asks(self.state.process(node), seat.next_ticket())?;
                let said = seat.ask();
                self.put(node, seat, said)
            }
            Action::Cancel(node) => self.cancel(node),
            Action::Leave(node, how) => {
                if how == Release::Abandoned {
                    self.state.left.abandons -= 1;
                }
                let mut seat = self.take(node);
                if let Caller::Inside(ticket) = seat.caller() {
                    self.checkers.leaves(self.state.process(node), ticket, how);
                }
                let said = seat.leave(how);
                self.put(node, seat, said)
            }
            Action::Hop(node) => {
                self.state.left.hops -= 1;
                let mut seat = self.take(node);
                let said = seat.hop();
                self.put(node, seat, said)
            }
            Action::Deliver {
                from,
                to,
                at,
                again,
            } => self.deliver((from, to), at, again),
        }
    }

    fn take(&mut self, node: NodeId) -> Seat {
        let seat = self.state.seat(node).expect("it is there");
        (**seat).clone()
    }

    /// The member is as `seat` from now on, and this is what it said.
    fn put(&mut self, node: NodeId, seat: Seat, said: Said) -> Checked {
        let epoch = seat.epoch();
        self.state.seats[place(node)] = Some(self.model.seats.share(seat));
        for (to, message) in said.sends {
            let epoch = epoch.expect("engines speak in views");
            for &to in &*to {
                let message = message.clone();
                self.send(node, to, Letter { epoch, message });
            }
        }
        let process = self.state.process(node);
        for event in said.events {
            match event {
                Event::Granted {
                    ticket,
                    fence,
                    previous,
                } => {
                    let epoch = epoch.unwrap_or(Epoch::ZERO);
                    self.checkers
                        .granted(process, ticket, (fence, epoch), previous)?;
                    self.note_entry(process, previous.is_abandoned());
                }
                Event::Ended { ticket, refusal } => {
                    self.checkers.ended(process, ticket, &refusal)?
                }
                other => unreachable!("a table of locks does not say {other:?}"),
            }
        }
        Ok(())
    }

    fn note_entry(&mut self, process: Process, told: bool) {
        let seen = &mut self.state.seen;
        seen.note(ENTERED);
        let count = &mut seen.entries[place(process.node)];
        *count = 2.min(*count + 1);
        let members = usize::from(self.model.members);
        if seen.entries[..members].iter().all(|count| *count == 2) {
            seen.note(ALL_TWICE);
        }
        if seen.has(CRASHED_INSIDE) {
            seen.note(TAKEN_OVER);
        }
        if told {
            seen.note(TOLD);
        }
        if process.incarnation > 1 {
            seen.note(ENTERED_REBORN);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, letter: Letter) {
        let letter = self.model.letters.share(letter);
        let mut post = (*self.state.post).clone();
        post.push(from, to, letter, self.model.network);
        self.state.post = self.model.posts.share(post);
    }

    fn deliver(&mut self, (from, to): (NodeId, NodeId), at: usize, again: bool) -> Checked {
        let letter = self.state.post.letter(from, to, at).clone();
        if again {
            self.state.left.twice -= 1;
        } else {
            let mut post = (*self.state.post).clone();
            post.remove(from, to, at);
            self.state.post = self.model.posts.share(post);
        }
        let mut seat = self.take(to);
        let said = seat.receive(from, letter.message.clone());
        self.put(to, seat, said)
    }

    fn cancel(&mut self, node: NodeId) -> Checked {
        self.state.left.cancels -= 1;
        let mut seat = self.take(node);
        let may_let_in = |letter: &Letter| lets_in(&letter.message);
        if self.state.post.to(node).any(may_let_in) {
            self.state.seen.note(CANCEL_MEETS_GRANT);
        }
        if let Caller::Waits(ticket) = seat.caller() {
            self.checkers.cancels(self.state.process(node), ticket);
        }
        let said = seat.cancel();
        self.put(node, seat, said)
    }

    fn crash(&mut self, node: NodeId) {
        self.state.left.crashes -= 1;
        let seat = self.state.seats[place(node)].take().expect("it is there");
        if matches!(seat.caller(), Caller::Inside(_)) {
            self.state.seen.note(CRASHED_INSIDE);
        }
        self.checkers.crashes(self.state.process(node));
        self.change_master(|master| {
            master.leases.insert(node);
        });
    }

    fn restart(&mut self, node: NodeId) {
        self.state.left.restarts -= 1;
        self.state.incarnations[place(node)] += 1;
        let me = member(self.state.process(node));
        let seat = Seat::new(me, self.model.algorithm);
        self.state.seats[place(node)] = Some(self.model.seats.share(seat));
        // What the former incarnation sent is of no link of this one.
        let mut post = (*self.state.post).clone();
        post.retain(|from, _, _| from != node);
        self.state.post = self.model.posts.share(post);
    }

    fn change_master(&mut self, change: impl FnOnce(&mut Master)) {
        let mut master = (*self.state.master).clone();
        change(&mut master);
        self.state.master = self.model.masters.share(master);
    }

    /// The next view, of all who live.
    fn form(&mut self) {
        self.state.left.views -= 1;
        let seats = self.state.seats.iter().flatten();
        let members: Vec<Member> = seats.map(|seat| seat.me()).collect();
        let state = self.state.clone();
        let master = &state.master;
        let mut alive = master.members_alive(&state);
        if alive.any(|its| !master.installed.contains(&its.node)) {
            self.state.seen.note(VIEW_GIVEN_UP);
        }
        let incarnations =
            |its: &Member| state.seat(its.node).is_some_and(|seat| seat.me() == *its);
        let lost = master.view.members.iter().filter(|its| !incarnations(its));
        let mut unclean: BTreeSet<NodeId> = lost.map(|its| its.node).collect();
        if !master.is_installed() {
            unclean.extend(&master.view.unclean);
        }
        let unclean = unclean.into_iter().collect();
        self.change_master(|master| {
            let nodes = members.iter().map(|its| its.node).collect();
            master.view = Arc::new(View {
                epoch: master.view.epoch.next().expect("few views"),
                members,
                unclean,
            });
            master.stage = Stage::Collecting(nodes, Summary::default());
            master.installed.clear();
            master.lifted.clear();
        });
    }

    fn stop(&mut self, node: NodeId) -> Checked {
        let next = Arc::clone(&self.state.master.view);
        let mut seat = self.take(node);
        let mut frozen = seat.clone();
        let mut said = frozen.freeze();
        let summary = frozen.summary(&next);
        if self.model.lacks(Weakness::NoFreeze) {
            said = Said::default();
        } else {
            seat = frozen;
        }
        self.change_master(|master| {
            if let Stage::Collecting(missing, table) = &mut master.stage {
                missing.remove(&node);
                table.merge(summary);
            }
        });
        self.put(node, seat, said)
    }

    pub(super) fn install(&mut self, node: NodeId) -> Checked {
        let is_free = self.model.may_lift(&self.state.master);
        self.change_master(|master| {
            if let Stage::Collecting(_, table) = &mut master.stage {
                table.conclude_in_quarantine(&master.view.unclean);
                master.stage = Stage::Concluded(core::mem::take(table));
            }
            if let Stage::Concluded(table) = &mut master.stage {
                if is_free {
                    table.lift();
                }
                if !table.quarantines() {
                    master.lifted.insert(node);
                }
            }
            master.installed.insert(node);
        });
        let master = self.state.master.clone();
        let Stage::Concluded(table) = &master.stage else {
            unreachable!("it is concluded");
        };
        let process = self.state.process(node);
        self.checkers.installs(process, master.view.epoch);
        let mut seat = self.take(node);
        let said = seat.install(&master.view, table);
        self.put(node, seat, said)
    }

    fn lift(&mut self, node: NodeId) -> Checked {
        self.state.seen.note(LIFTED);
        self.change_master(|master| {
            master.lifted.insert(node);
        });
        let mut seat = self.take(node);
        let said = seat.lift();
        self.put(node, seat, said)
    }

    /// Takes away what nobody will ever take in, so that states do not differ by it.
    fn tidy(&mut self) {
        if self.model.lacks(Weakness::NoEpochTag) {
            return;
        }
        let (mut seen, mut changed) = (self.state.seen, false);
        let state = &self.state;
        let mut post = (*state.post).clone();
        post.retain(|_, to, letter| {
            let seat = state.seat(to);
            let dead = seat.is_none_or(|seat| seat.is_past(letter.epoch));
            if dead && seat.is_some() && lets_in(&letter.message) {
                seen.note(DIED_OF_ITS_EPOCH);
            }
            changed |= dead;
            !dead
        });
        if changed {
            self.state.seen = seen;
            self.state.post = self.model.posts.share(post);
        }
    }
}

impl Master {
    /// Whether the newest view has come into force in all its members, for all locks.
    fn is_installed(&self) -> bool {
        self.view.nodes().all(|node| self.lifted.contains(&node))
    }
}

/// Whether the receiver may enter by it.
fn lets_in(message: &LockMessage) -> bool {
    matches!(
        message.body.kind(),
        "GRANT" | "REPLY" | "VALUE" | "TOKEN" | "ACK" | "PERM" | "VOTE"
    )
}
