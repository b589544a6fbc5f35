//! One lock, as simple as can be: the lowest member of a view serves it, first come first served.
//!
//! It stands for any engine: built anew by each view from who is inside, its messages belong to one
//! epoch, its fences chain within that. What is said gets lost, so it is said again.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::protocol::lock::{Last, LockSummary, Summary};
use crate::protocol::membership::{Member, View};
use crate::protocol::{Algorithm, Epoch, Fence, LockName, LockSpec, Mode, NodeId, RequestId};

/// What the lock's members say to each other, in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Ask { round: u64 },
    Grant { round: u64, counter: u32 },
    Done { round: u64 },
}

/// One member's part in the lock.
#[derive(Debug)]
pub(super) struct Lock {
    me: Member,
    name: LockName,
    view: Option<Arc<View>>,
    server: Option<Server>,
    /// The last round that is over.
    done: u64,
    caller: Caller,
    /// What is to be sent.
    pub(super) out: Vec<(NodeId, Epoch, Word)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Idle,
    Wants,
    /// It may enter in this epoch, while it has a lease.
    Granted(Fence),
    Inside,
}

#[derive(Debug, Default)]
struct Server {
    holder: Option<(NodeId, u64)>,
    queue: VecDeque<(NodeId, u64)>,
    done: Vec<(NodeId, u64)>,
    counter: u32,
}

impl Lock {
    pub(super) fn new(me: Member) -> Self {
        Self {
            me,
            name: LockName::new("lock").expect("a good name"),
            view: None,
            server: None,
            done: 0,
            caller: Caller::Idle,
            out: Vec::new(),
        }
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn want(&mut self) {
        if self.caller == Caller::Idle {
            self.caller = Caller::Wants;
            self.say();
        }
    }

    /// The caller goes in, with its fence.
    pub(super) fn enter(&mut self) {
        self.caller = Caller::Inside;
    }

    pub(super) fn exit(&mut self) {
        self.caller = Caller::Idle;
        self.done += 1;
        self.say();
    }

    pub(super) fn freeze(&mut self) {
        self.view = None;
        self.server = None;
        // It has not entered, and its grant is void with its epoch.
        if matches!(self.caller, Caller::Granted(_)) {
            self.caller = Caller::Wants;
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        if self.caller == Caller::Inside {
            let holder = RequestId {
                node: self.me.node,
                incarnation: self.me.incarnation,
                seq: self.done + 1,
            };
            let lock = LockSummary {
                spec: LockSpec::exclusive(Algorithm::Semaphore),
                holders: vec![holder],
                held: Mode::Exclusive,
                waiters: Vec::new(),
                last: Last::default(),
                abandoned: false,
                suspects: Vec::new(),
            };
            summary.locks.insert(self.name.clone(), lock);
        }
        summary
    }

    pub(super) fn install(&mut self, view: Arc<View>, table: &Summary) {
        let serves = view.nodes().next() == Some(self.me.node);
        let holder = table
            .locks
            .get(&self.name)
            .and_then(|lock| lock.holders.first());
        self.server = serves.then(|| Server {
            holder: holder.map(|id| (id.node, id.seq)),
            ..Server::default()
        });
        self.view = Some(view);
        self.say();
    }

    /// Says how it stands to who serves.
    pub(super) fn say(&mut self) {
        let round = self.done + 1;
        let word = match self.caller {
            Caller::Idle => Word::Done { round: self.done },
            Caller::Wants => Word::Ask { round },
            Caller::Granted(_) | Caller::Inside => return,
        };
        if let Some(view) = &self.view
            && let Some(server) = view.nodes().next()
        {
            self.out.push((server, view.epoch, word));
        }
    }

    pub(super) fn receive(&mut self, from: NodeId, epoch: Epoch, word: Word) {
        let Some(view) = self.view.clone().filter(|view| view.epoch == epoch) else {
            return;
        };
        match (word, &mut self.server) {
            (Word::Grant { round, counter }, _) => {
                if self.caller == Caller::Wants && round == self.done + 1 {
                    let fence = Fence::from_parts(epoch, counter).expect("a fence");
                    self.caller = Caller::Granted(fence);
                }
            }
            (Word::Ask { round }, Some(server)) => {
                // That the round before is over was perhaps lost.
                server.over(from, round - 1);
                server.ask(from, round);
                self.serve(&view);
            }
            (Word::Done { round }, Some(server)) => {
                server.over(from, round);
                self.serve(&view);
            }
            (_, None) => {}
        }
    }

    fn serve(&mut self, view: &View) {
        let Some(server) = &mut self.server else {
            return;
        };
        if server.holder.is_none()
            && let Some(next) = server.queue.pop_front()
        {
            server.holder = Some(next);
            server.counter += 1;
        }
        // A holder that asks again has not heard.
        if let Some((node, round)) = server.holder {
            let counter = server.counter;
            if counter > 0 {
                self.out
                    .push((node, view.epoch, Word::Grant { round, counter }));
            }
        }
    }
}

impl Server {
    fn ask(&mut self, from: NodeId, round: u64) {
        let is_over = self
            .done
            .iter()
            .any(|(node, done)| *node == from && *done >= round);
        let is_known = self.holder == Some((from, round)) || self.queue.contains(&(from, round));
        if !is_over && !is_known {
            self.queue.push_back((from, round));
        }
    }

    fn over(&mut self, from: NodeId, round: u64) {
        let known = self.done.iter().find(|(node, _)| *node == from);
        let round = known.map_or(round, |(_, done)| round.max(*done));
        self.done.retain(|(node, _)| *node != from);
        self.done.push((from, round));
        if self
            .holder
            .is_some_and(|(node, its)| node == from && its <= round)
        {
            self.holder = None;
        }
        self.queue
            .retain(|(node, its)| *node != from || *its > round);
    }
}
