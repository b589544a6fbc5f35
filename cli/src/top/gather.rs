//! A thread that asks the agent, again and again: an agent that does not answer holds up no keys.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};
use distlock::discovery::GroupChoice;
use distlock::status::REPORT_TIME;
use distlock::{Agent, StatusError};
use distlock_agent::runtime::clock;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::model::Look;
use crate::exit::Failure;
use crate::refusal;
use crate::status::await_view;
use crate::watch::keep_unanswered;

/// What the agent told, or why it told nothing.
pub(super) type News = Result<Box<Look>, Failure>;

/// The thread, as the other one sees it.
pub(super) struct Gatherer {
    pub(super) news: Receiver<News>,
    bell: Arc<EventFd>,
    agent: Arc<Mutex<Option<Agent>>>,
    is_member: bool,
}

impl Gatherer {
    /// Starts it. Signals are blocked for it if they are for the thread that calls.
    ///
    /// # Errors
    /// If the system has no room for a thread or a descriptor.
    pub(super) fn start(group: GroupChoice, interval: Duration) -> Result<Self, Failure> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_value_and_flags(0, flags);
        let bell = bell.map_err(|errno| refusal::system("open an eventfd", errno))?;
        let (sender, news) = unbounded();
        let gatherer = Self {
            news,
            bell: Arc::new(bell),
            agent: Arc::default(),
            is_member: group.has_own_agent(),
        };
        let (bell, agent) = (Arc::clone(&gatherer.bell), Arc::clone(&gatherer.agent));
        thread::Builder::new()
            .name("gather".to_owned())
            .spawn(move || gather(&group, interval, &agent, &sender, &bell))
            .map_err(|error| refusal::system("start a thread", error))?;
        Ok(gatherer)
    }

    /// Reads what has been rung since; the news are to be looked at after that.
    pub(super) fn hush(&self) {
        let _ = self.bell.read();
    }

    /// A member leaves its group; a client has nothing to say.
    pub(super) fn close(self) {
        if self.is_member {
            let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(agent) = agent.as_ref() {
                agent.close();
            }
        }
    }
}

impl AsFd for Gatherer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

fn gather(
    group: &GroupChoice,
    interval: Duration,
    shared: &Mutex<Option<Agent>>,
    news: &Sender<News>,
    bell: &EventFd,
) {
    let share = |agent| *shared.lock().unwrap_or_else(PoisonError::into_inner) = agent;
    let mut agent: Option<Agent> = None;
    let mut last: Option<Box<Look>> = None;
    loop {
        let asked = clock::now();
        let opened = match agent.take() {
            Some(agent) => Ok(agent),
            None => open(group, &share),
        };
        let told = opened.and_then(|opened| {
            let told = look(&opened, last.as_deref());
            // What is busy now answers later. Anything else takes a new connection.
            if matches!(told, Ok(_) | Err(StatusError::Unavailable { .. })) {
                agent = Some(opened);
            } else {
                share(None);
            }
            told.map(Box::new).map_err(Failure::from)
        });
        if let Ok(look) = &told {
            last = Some(look.clone());
        }
        if news.send(told).is_err() {
            return;
        }
        let _ = bell.write(1);
        clock::sleep((asked + interval).since(clock::now()));
    }
}

/// Not as other commands open it, which tell a member's warnings: there is a screen.
fn open(group: &GroupChoice, share: &impl Fn(Option<Agent>)) -> Result<Agent, Failure> {
    let agent = group.open()?;
    share(Some(agent.clone()));
    if let GroupChoice::Member(_) = group {
        await_view(&agent);
    }
    Ok(agent)
}

/// Asks once; what was seen in `last` stands for members that did not answer in time.
///
/// # Errors
/// If the agent does not answer.
pub(super) fn look(agent: &Agent, last: Option<&Look>) -> Result<Look, StatusError> {
    let at = clock::now();
    let metrics = agent.metrics()?;
    let asked = clock::now();
    let mut status = agent.status()?;
    if let Some(last) = last
        && clock::now().since(asked) >= REPORT_TIME
    {
        keep_unanswered(&last.status, &mut status);
    }
    Ok(Look {
        at,
        wall: SystemTime::now(),
        status,
        metrics,
    })
}
