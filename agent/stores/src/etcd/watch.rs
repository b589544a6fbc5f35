//! Hints: a watch of the group's prefix, on a connection of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_protocol::Time;
use distlock_protocol::ledger::{Key, StoreEvent, StreamId};

use super::errors::{Meaning, UNAUTHENTICATED, meaning};
use super::http::{self, Piece};
use super::json::{Request, WatchMessage, watch_message};
use super::wire::{LONGEST_BODY, Wire};
use super::{Etcd, Link};

/// So long the watch goes on when nobody is interested any more: who waited for a lock often waits again.
const LINGER: Duration = Duration::from_secs(10);
/// After a failure at least so long passes before the next try.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// And at most so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A watch that has lasted so long is no failure.
const LONG: Duration = Duration::from_secs(10);
/// What is said in place of a watch is no longer than this.
const LONGEST_FAILURE: usize = 64 << 10;

/// The way hints take.
#[derive(Debug)]
pub(super) struct Watch {
    is_allowed: bool,
    /// Since when nobody is interested; `None` while somebody is.
    idle_since: Option<Time>,
    /// It is not opened before, as it has just failed.
    pause: Option<Time>,
    failures: u32,
    open: Option<Box<Open>>,
}

#[derive(Debug)]
struct Open {
    wire: Wire,
    since: Time,
    token: u64,
    status: Option<u16>,
    has_begun: bool,
    /// What has arrived of a line, or of a failure.
    line: Vec<u8>,
}

impl Watch {
    pub(super) const fn new(is_allowed: bool) -> Self {
        Self {
            is_allowed,
            idle_since: Some(Time::ZERO),
            pause: None,
            failures: 0,
            open: None,
        }
    }

    /// When something is to be done.
    pub(super) fn due(&self, patience: Duration) -> Option<Time> {
        match (&self.open, self.idle_since) {
            (Some(open), _) if !open.has_begun => Some(open.since + patience),
            (Some(_), Some(since)) => Some(since + LINGER),
            (Some(_), None) => None,
            (None, _) => self.pause,
        }
    }
}

impl Etcd {
    /// From now on these are worth a hint. So is all else that the group has, if it comes: a record may have changed
    /// between its reading and this call, as replies and hints have connections of their own; and the holder of
    /// a lock learns who queued, and need not find out by a write that is refused.
    pub(super) fn interested(&mut self, now: Time, keys: &BTreeSet<Key>) {
        self.watch.idle_since = match self.watch.idle_since {
            _ if !keys.is_empty() => None,
            None => Some(now),
            since => since,
        };
        self.watch_if_wanted(now);
    }

    /// Opens a watch if there is none and there should be.
    pub(super) fn watch_if_wanted(&mut self, now: Time) {
        let watch = &self.watch;
        let is_wanted = watch.is_allowed && watch.idle_since.is_none() && watch.open.is_none();
        let has_token = !self.token.is_wanted && !self.token.is_asked_for;
        if !is_wanted || self.link != Link::Up || !has_token || watch.pause.is_some() {
            return;
        }
        // If no certificate can be for the host, operations have found out.
        let Ok(wire) = self.open() else {
            return;
        };
        self.watch.open = Some(Box::new(Open {
            wire,
            since: now,
            token: self.token.number,
            status: None,
            has_begun: false,
            line: vec![],
        }));
    }

    /// Whether it is the watch that is connected.
    pub(super) fn watch_connected(&mut self, now: Time, stream: StreamId) -> bool {
        let request = Request::watch(&self.prefix);
        let token = self.token.text.as_ref().map(|token| token.as_str());
        let host = self.host_header();
        let Some(open) = self.watch.open_as(stream) else {
            return false;
        };
        open.token = self.token.number;
        let bytes = http::request(
            request.path,
            &host,
            token,
            request.body.as_ref().map(|body| &body[..]),
        );
        match open.wire.send(&bytes) {
            Ok(output) => self.outputs.extend(output),
            Err(_) => self.watch_broken(now),
        }
        true
    }

    /// Whether it is the watch that is over.
    pub(super) fn watch_disconnected(&mut self, now: Time, stream: StreamId) -> bool {
        let Some(open) = self.watch.open_as(stream) else {
            return false;
        };
        open.wire.is_gone = true;
        self.watch_broken(now);
        true
    }

    /// Whether it is the watch that says something.
    pub(super) fn watch_received(&mut self, now: Time, stream: StreamId, bytes: &[u8]) -> bool {
        let Some(open) = self.watch.open_as(stream) else {
            return false;
        };
        let (output, received) = open.wire.receive(bytes);
        self.outputs.extend(output);
        let mut is_over = received.is_err();
        while let Some(open) = &mut self.watch.open {
            match open.wire.piece() {
                Ok(None) => break,
                Ok(Some(Piece::Head { status, .. })) => open.status = Some(status),
                Ok(Some(Piece::Data(data))) => is_over |= !self.watch_data(&data),
                Ok(Some(Piece::End)) | Err(_) => {
                    self.watch_end();
                    is_over = true;
                }
            }
            if is_over {
                break;
            }
        }
        if is_over {
            self.watch_broken(now);
        }
        // Another token may be wanted.
        self.dispatch(now);
        true
    }

    /// Some of a watch's lines; whether it goes on.
    fn watch_data(&mut self, data: &[u8]) -> bool {
        let Some(open) = &mut self.watch.open else {
            return false;
        };
        let is_good = open.status == Some(200);
        let longest = if is_good {
            LONGEST_BODY
        } else {
            LONGEST_FAILURE
        };
        if open.line.len() + data.len() > longest {
            return false;
        }
        open.line.extend_from_slice(data);
        if !is_good || !data.contains(&b'\n') {
            return true;
        }
        let mut lines = std::mem::take(&mut open.line);
        let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else {
            return true;
        };
        let rest = lines.split_off(end + 1);
        for line in lines.split(|byte| *byte == b'\n') {
            if !line.is_empty() && !self.watch_line(line) {
                return false;
            }
        }
        if let Some(open) = &mut self.watch.open {
            open.line = rest;
        }
        true
    }

    /// A line of a watch; whether it goes on.
    fn watch_line(&mut self, line: &[u8]) -> bool {
        match watch_message(line) {
            Some(WatchMessage::Created) => {
                if let Some(open) = &mut self.watch.open {
                    open.has_begun = true;
                }
                // What has happened before this is not told.
                self.event(StoreEvent::Missed);
                true
            }
            Some(WatchMessage::Changes(header, changes)) => {
                // Nothing of another store is worth anything.
                if !self.store.is_same(header) {
                    return false;
                }
                for (key, entry) in changes {
                    if key.as_str().starts_with(&self.prefix) {
                        self.event(StoreEvent::Changed(key, entry));
                    }
                }
                true
            }
            Some(WatchMessage::Over { code, why }) => {
                // Each version says in its own way that a token counts no more.
                let words = [
                    "invalid auth token",
                    "revision of auth store",
                    "Unauthenticated",
                ];
                if code == UNAUTHENTICATED || words.iter().any(|words| why.contains(words)) {
                    self.watch_wants_token();
                }
                false
            }
            None => false,
        }
    }

    /// The server has ended it: perhaps with a reason, in place of a watch.
    fn watch_end(&mut self) {
        let Some(open) = &self.watch.open else {
            return;
        };
        let Some(status) = open.status.filter(|status| *status != 200) else {
            return;
        };
        // Some versions have it as an error of the stream.
        let is_unknown = match watch_message(&open.line) {
            Some(WatchMessage::Over { code, .. }) => code == UNAUTHENTICATED,
            _ => meaning(status, &open.line) == Meaning::SignIn,
        };
        if is_unknown {
            self.watch_wants_token();
        }
    }

    fn watch_wants_token(&mut self) {
        let token = self.watch.open.as_ref().map(|open| open.token);
        if self.user.is_some() && token == Some(self.token.number) && !self.token.is_asked_for {
            self.token.is_wanted = true;
        }
    }

    /// It is over, and is opened anew.
    fn watch_broken(&mut self, now: Time) {
        let Some(open) = self.watch.open.take() else {
            return;
        };
        self.outputs.extend(open.wire.close());
        if open.has_begun {
            self.event(StoreEvent::Missed);
        }
        if now.since(open.since) >= LONG {
            self.watch.failures = 0;
        }
        let longest = LONGEST_PAUSE.min(SHORTEST_PAUSE * (2 << self.watch.failures.min(10)));
        self.watch.failures = self.watch.failures.saturating_add(1);
        let pause = SHORTEST_PAUSE + self.chance.below(longest.saturating_sub(SHORTEST_PAUSE));
        self.watch.pause = Some(now + pause);
    }

    /// Closes it, as there is no connection any more, or nobody is interested. The next one is no failure.
    pub(super) fn close_watch(&mut self) {
        if let Some(open) = self.watch.open.take() {
            self.outputs.extend(open.wire.close());
        }
    }

    pub(super) fn watch_timeout(&mut self, now: Time) {
        if self
            .watch
            .idle_since
            .is_some_and(|since| since + LINGER <= now)
        {
            self.close_watch();
        }
        // A server that accepts connections and says nothing.
        let patience = self.patience;
        let open = self.watch.open.as_ref();
        if open.is_some_and(|open| !open.has_begun && open.since + patience <= now) {
            self.watch_broken(now);
        }
        if self.watch.pause.is_some_and(|pause| pause <= now) {
            self.watch.pause = None;
        }
        self.watch_if_wanted(now);
    }
}

impl Watch {
    fn open_as(&mut self, stream: StreamId) -> Option<&mut Open> {
        let open = self.open.as_deref_mut();
        open.filter(|open| open.wire.stream == stream)
    }
}
