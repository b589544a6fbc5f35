//! The agent thread: waits for the network, the timers, the clients and the application's threads,
//! and does what they cannot wait for themselves.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mio::{Events, Poll, Token};

use super::clients::Service;
use super::durable::{StateDir, StateError};
use super::error::SessionEnd;
use super::handoff::Shared;
use super::lifeline;
use super::pulse::Heart;
use super::turn::Task;
use crate::protocol::{Input, Time};

pub(super) const TRANSPORT: Token = Token(0);
pub(super) const WAKER: Token = Token(1);
pub(super) const SERVICE: Token = Token(2);
/// Events taken from the poll at once.
pub(super) const EVENTS: usize = 256;
/// Datagrams taken in one stay in the mutex, for which the application's threads wait.
const RECEIVE_LIMIT: usize = 32;
/// Records written in one round. The core has one outstanding at a time, and asks for the next
/// when it hears that the last is on disk.
const PERSIST_LIMIT: usize = 4;

/// What belongs to the agent thread alone.
#[derive(Debug)]
pub(super) struct EventLoop {
    pub(super) shared: Arc<Shared>,
    pub(super) poll: Poll,
    pub(super) state: StateDir,
    pub(super) service: Option<Service>,
    pub(super) heart: Option<Heart>,
}

impl EventLoop {
    /// Runs until the session is over, however it ends. When it returns, sockets, files and the
    /// lock on the state directory are gone.
    pub(super) fn run(mut self) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let end = match served {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(SessionEnd::Poll {
                what: error.to_string(),
            }),
            Err(_) => Some(SessionEnd::Panicked),
        };
        if let Some(end) = end {
            tracing::error!("{end}");
            let mut turn = self.shared.turn();
            turn.end(end);
            turn.finish();
        }
        // A panic here leaves the commands to their runners.
        let _ = catch_unwind(AssertUnwindSafe(|| self.end_commands()));
    }

    /// Ends what clients run under locks that were lost with the session. Where the session was
    /// closed in order they had their time before it.
    fn end_commands(&mut self) {
        let Some(service) = self.service.take() else {
            return;
        };
        let commands = service.close();
        let turn = self.shared.turn();
        let is_closed = turn.end_of_session() == Some(&SessionEnd::Closed);
        let limit = turn.limit();
        drop(turn);
        if !is_closed {
            let lease = self.shared.identity.settings.lease;
            lifeline::end_all(commands, limit, lease, || {
                self.heart.iter_mut().for_each(Heart::work)
            });
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut readable = true;
        let mut service_at = Some(Time::ZERO);
        loop {
            let mut turn = self.shared.turn();
            let beat_at = self.heart.as_ref().map(Heart::next);
            let mut timeout = turn.plan_sleep(service_at.into_iter().chain(beat_at).min());
            drop(turn);
            if readable {
                timeout = Some(std::time::Duration::ZERO);
            }
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    TRANSPORT => readable = true,
                    WAKER => {}
                    _ => self
                        .service
                        .iter_mut()
                        .for_each(|service| service.note(event)),
                }
            }
            // Of what a waiting thread takes off the socket, and may have left, no event tells.
            readable |= self.shared.spin.is_taken();
            readable = self.step(readable);
            self.persist();
            self.do_tasks();
            service_at = self.serve_clients();
            let over = self.shared.turn().end_of_session().is_some();
            if over {
                return Ok(());
            }
            // Only here, when all of the round is done.
            self.heart.iter_mut().for_each(Heart::work);
        }
    }

    /// Takes what has arrived and looks at the timers; whether more may have arrived.
    fn step(&self, readable: bool) -> bool {
        let mut turn = self.shared.turn();
        turn.awake();
        let more = readable && turn.receive(RECEIVE_LIMIT);
        turn.expire();
        turn.expire_reports();
        turn.expire_change();
        turn.finish();
        more
    }

    /// Puts on disk what the core wants there, and tells it so.
    fn persist(&mut self) {
        for _ in 0..PERSIST_LIMIT {
            if let Err(error) = self.persist_once() {
                tracing::error!("{error}");
                let mut turn = self.shared.turn();
                turn.end(SessionEnd::State {
                    what: error.to_string(),
                });
                turn.finish();
            }
        }
    }

    /// The mutex is not held while the disk is waited for.
    pub(super) fn persist_once(&mut self) -> Result<(), StateError> {
        let record = self.shared.turn().take_persist();
        if let Some(record) = record {
            self.state.write(record)?;
            let mut turn = self.shared.turn();
            turn.step(Input::Persisted);
            turn.finish();
        }
        Ok(())
    }

    fn do_tasks(&mut self) {
        let tasks = self.shared.turn().take_tasks();
        for task in tasks {
            match task {
                Task::Note { from, bytes } => {
                    let mut turn = self.shared.turn();
                    turn.handle_note(from, &bytes);
                    turn.finish();
                }
                Task::Tell { client, message } => {
                    if let Some(service) = &mut self.service {
                        service.tell(client, &message);
                    }
                }
                Task::Lease(lease) => {
                    if let Some(service) = &mut self.service {
                        service.renew(lease, &self.shared);
                    }
                }
                Task::Lost { client, id, limit } => {
                    if let Some(service) = &mut self.service {
                        let registry = self.poll.registry();
                        service.lose(client, id, limit, &self.shared, registry);
                    }
                }
                Task::TellAll(event) => {
                    if let Some(service) = &mut self.service {
                        service.tell_listeners(&event);
                    }
                }
            }
        }
    }

    fn serve_clients(&mut self) -> Option<Time> {
        self.service
            .as_mut()
            .and_then(|service| service.work(&self.shared, self.poll.registry()))
    }
}
