//! Operations: how they wait, and what their answers mean.

use distlock_protocol::Time;
use distlock_protocol::ledger::{Op, OpId, Reply, StreamId};

use super::errors::{Meaning, meaning};
use super::json::{self, LONGEST_PAGE, Request};
use super::{Etcd, Job, Link};

/// So many operations wait at most; what comes then has an unknown outcome at once.
const LONGEST_QUEUE: usize = 10_000;
/// And so many bytes of them.
const MOST_BYTES: usize = 16 << 20;
/// A value is no longer than this. etcd takes 1.5 MiB, unless it is told otherwise.
const LONGEST_VALUE: usize = 8 << 20;
/// So often a request is sent, if it was not done for want of a token.
const MOST_TRIES: u32 = 3;

/// An operation that waits, or is under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: OpId,
    /// Without the value.
    op: Op,
    request: Request,
    /// If it could not be sent until then, nobody waits for it any more.
    pub(super) due: Time,
    tries: u32,
    /// The number of the token that it was sent with.
    token: u64,
    /// etcd has said this of it, and it is read whether it was done before.
    refusal: Option<String>,
}

impl Task {
    pub(super) const fn is_list(&self) -> bool {
        matches!(self.op, Op::List { .. })
    }

    /// Whether a read that shows `reply` proves that the write was not done.
    fn is_untouched(&self, reply: &Reply) -> bool {
        let Reply::Value(entry) = reply else {
            return false;
        };
        let version = entry.as_ref().map(|entry| entry.version);
        match &self.op {
            Op::Write { expect, .. } => version == *expect,
            Op::Remove { expect, .. } => version == Some(*expect),
            Op::Read { .. } | Op::List { .. } => false,
        }
    }
}

impl Etcd {
    /// Has `op` wait for a connection.
    pub(super) fn queue_op(&mut self, now: Time, id: OpId, mut op: Op) {
        if self.link != Link::Up || self.queue.len() >= LONGEST_QUEUE {
            return self.reply(id, Reply::Unknown);
        }
        if let Op::Write { value, .. } = &op
            && value.len() > LONGEST_VALUE
        {
            let why = "it is larger than 8 MiB".to_owned();
            return self.reply(id, Reply::Refused(why));
        }
        let request = Request::operation(&op, self.longest_page);
        let size = request.size();
        if !self.queue.is_empty() && self.queued_bytes + size > MOST_BYTES {
            return self.reply(id, Reply::Unknown);
        }
        if let Op::Write { value, .. } = &mut op {
            // It is in the request.
            *value = vec![];
        }
        self.queued_bytes += size;
        self.queue.push_back(Task {
            id,
            op,
            request,
            due: now + self.patience,
            tries: 0,
            token: 0,
            refusal: None,
        });
    }

    /// The next that waits.
    pub(super) fn take(&mut self) -> Option<Task> {
        let task = self.queue.pop_front()?;
        self.queued_bytes -= task.request.size();
        Some(task)
    }

    fn put_back(&mut self, task: Task) {
        self.queued_bytes += task.request.size();
        self.queue.push_front(task);
    }

    pub(super) fn send_task(&mut self, now: Time, stream: StreamId, mut task: Task) {
        task.tries += 1;
        task.token = self.token.number;
        let request = task.request.clone();
        self.send(now, stream, &request, Job::Do(Box::new(task)));
    }

    /// An operation is answered.
    pub(super) fn done(&mut self, now: Time, task: Task, status: u16, body: &[u8]) {
        if status != 200 {
            return self.failed(now, task, meaning(status, body));
        }
        let reading;
        let asked = match (&task.refusal, &task.op) {
            (Some(_), Op::Write { key, .. } | Op::Remove { key, .. }) => {
                reading = Op::Read { key: key.clone() };
                &reading
            }
            (_, op) => op,
        };
        let Some((header, reply)) = json::answer(asked, body) else {
            self.reply(task.id, Reply::Unknown);
            return self.fail(now, "a reply means nothing that etcd could mean");
        };
        if !self.store.answered(header) {
            self.reply(task.id, Reply::Unknown);
            return self.fail(now, "another cluster answers at the same address");
        }
        let reply = match &task.refusal {
            Some(why) if task.is_untouched(&reply) => Reply::Refused(why.clone()),
            // It was done, or another one was done before it.
            Some(_) => Reply::Unknown,
            None => reply,
        };
        if task.is_list() {
            self.longest_page = (self.longest_page * 2).min(LONGEST_PAGE);
        }
        self.reply(task.id, reply);
    }

    fn failed(&mut self, now: Time, mut task: Task, meaning: Meaning) {
        match meaning {
            // That the read is refused says nothing of the write.
            Meaning::Refused(_) if task.refusal.is_some() => self.reply(task.id, Reply::Unknown),
            Meaning::Refused(why) => self.reply(task.id, Reply::Refused(why)),
            Meaning::Full(why) => match &task.op {
                Op::Write { key, .. } | Op::Remove { key, .. } if task.refusal.is_none() => {
                    let read = Op::Read { key: key.clone() };
                    task.request = Request::operation(&read, 1);
                    task.refusal = Some(why);
                    self.put_back(task);
                }
                _ => self.reply(task.id, Reply::Unknown),
            },
            Meaning::SignIn if self.user.is_none() && task.refusal.is_none() => {
                let why = "etcd's users are switched on, and none is named here".to_owned();
                self.reply(task.id, Reply::Refused(why));
            }
            Meaning::SignIn if self.user.is_some() && task.tries < MOST_TRIES => {
                if task.token == self.token.number && !self.token.is_asked_for {
                    self.token.is_wanted = true;
                }
                self.put_back(task);
            }
            Meaning::Busy => self.reply(task.id, Reply::Unknown),
            Meaning::SignIn | Meaning::WrongPassword | Meaning::NoUsers => {
                self.reply(task.id, Reply::Unknown);
                self.fail(now, "etcd does not accept the token that it gave");
            }
            Meaning::NoPath => {
                self.reply(task.id, Reply::Unknown);
                self.fail(now, "there is no gateway any more");
            }
            Meaning::Unknown(why) => {
                self.reply(task.id, Reply::Unknown);
                self.fail(now, &why);
            }
        }
    }
}
