//! `distlock top`: a group on one screen, again and again: members, the lease, rates, and the locks with
//! their holders and waiters.

pub(crate) mod args;
mod gather;
mod keys;
mod model;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use crossbeam_channel::TryRecvError;
use distlock::discovery::GroupChoice;
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use self::args::Top;
use crate::colours::{self, Styles};
use crate::exit::{self, Failure, IO, UNAVAILABLE};
use crate::signals::{self, Signals};
use crate::status::await_view;
use crate::terminal::Terminal;
use crate::{group, refusal, way};
use gather::{Gatherer, News};
use keys::{Asked, Controls, Decoder, Key};
use model::{Look, Model};
use screen::Screen;
use view::{Screenful, Stale};

/// How long the rest of a key may take that sends several bytes; so the escape key takes as long.
const KEY_TIME: Duration = Duration::from_millis(50);
/// How often it is drawn how old it is what is shown, if nothing comes.
const TICK: Duration = Duration::from_secs(1);
/// An agent that answers late is not gone at once.
const LATE: Duration = Duration::from_secs(2);
/// Where standard output is no terminal, and COLUMNS says nothing.
const COLUMNS: u16 = 80;

/// Shows the group until a key or a signal ends it; with `--once` it is printed.
///
/// # Errors
/// As for `status`; 64 if standard output is no terminal.
pub(crate) fn top(args: &Top) -> Result<ExitCode, Failure> {
    let is_terminal = io::stdout().is_terminal();
    if !args.once && !is_terminal {
        let what = "standard output is no terminal: use --once to print one screen";
        return Err(Failure::usage(what, "top"));
    }
    let group = group::select(&args.group, "top")?;
    if args.once {
        return once(&group, args.interval);
    }
    let signals = Signals::block().map_err(|error| refusal::system("read signals", error))?;
    let gatherer = Gatherer::start(group, args.interval)?;
    let mut session = Session::new(args.interval, signals);
    let ended = session.run(&gatherer);
    // Before anything is said.
    drop(session.screen.take());
    gatherer.close();
    match ended? {
        End::Key => Ok(ExitCode::SUCCESS),
        End::Signal(number) => {
            signals::die_of(number);
            // The first process of a container cannot be ended so.
            Ok(ExitCode::from(u8::try_from(128 + number).unwrap_or(255)))
        }
    }
}

fn once(group: &GroupChoice, interval: Duration) -> Result<ExitCode, Failure> {
    let agent = way::open(group)?;
    if let GroupChoice::Member(_) = group {
        await_view(&agent);
    }
    let before = gather::look(&agent, None)?;
    clock::sleep((before.at + interval).since(clock::now()));
    let now = gather::look(&agent, Some(&before))?;
    let width = colours::columns().unwrap_or(COLUMNS);
    let text = view::text(&Model::new(Some(&before), &now), interval, width);
    exit::print(text.as_bytes(), "the screen")
}

/// How it ended.
enum End {
    Key,
    Signal(i32),
}

struct Session {
    interval: Duration,
    signals: Signals,
    /// The terminal that can stop this process; `None` if the session has none.
    terminal: Option<Terminal>,
    /// From the first look on.
    screen: Option<Screen>,
    styles: Styles,
    decoder: Decoder,
    controls: Controls,
    last: Option<Box<Look>>,
    model: Option<Model>,
    /// Paused, this is shown.
    frozen: Option<Model>,
    /// When the agent told something last, and why it has not since.
    told: Time,
    why: Option<String>,
}

impl Session {
    fn new(interval: Duration, signals: Signals) -> Self {
        Self {
            interval,
            signals,
            terminal: Terminal::open(),
            screen: None,
            styles: Styles::of_terminal(),
            decoder: Decoder::default(),
            controls: Controls::default(),
            last: None,
            model: None,
            frozen: None,
            told: clock::now(),
            why: None,
        }
    }

    fn run(&mut self, gatherer: &Gatherer) -> Result<End, Failure> {
        loop {
            self.await_any(gatherer)?;
            if let Some(end) = self.take_signals()? {
                return Ok(end);
            }
            gatherer.hush();
            loop {
                match gatherer.news.try_recv() {
                    Ok(news) => self.take(news)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        let what = "the thread that asks the agent has ended; please report this";
                        return Err(Failure::new(UNAVAILABLE, what));
                    }
                }
            }
            if self.take_keys()? == Asked::Quit {
                return Ok(End::Key);
            }
            self.draw()?;
        }
    }

    /// Waits for a signal, a key or news, at most until the age of what is shown is to be drawn.
    fn await_any(&self, gatherer: &Gatherer) -> Result<(), Failure> {
        let time = if self.decoder.is_in_doubt() {
            KEY_TIME
        } else {
            TICK
        };
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(gatherer.as_fd(), PollFlags::POLLIN),
        ];
        let keys = self.screen.as_ref().map(|screen| screen.keys().as_fd());
        fds.extend(keys.map(|keys| PollFd::new(keys, PollFlags::POLLIN)));
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, time) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(refusal::system("wait for keys", errno)),
        }
    }

    fn take_signals(&mut self) -> Result<Option<End>, Failure> {
        let next = |signals: &Signals| signals.next();
        while let Some(number) =
            next(&self.signals).map_err(|error| refusal::system("read signals", error))?
        {
            match number {
                libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => self.stop(number)?,
                // After a stop that could not be handled.
                libc::SIGCONT => self.resume()?,
                number if signals::is_deadly(number) => return Ok(Some(End::Signal(number))),
                // The size is looked at whenever something is drawn.
                _ => {}
            }
        }
        Ok(None)
    }

    /// Stops this process with the terminal as it was before.
    fn stop(&mut self, number: i32) -> Result<(), Failure> {
        if let Some(screen) = &mut self.screen {
            screen.leave();
        }
        signals::let_act(number);
        self.resume()
    }

    /// Takes the terminal again, once this process is in the foreground.
    fn resume(&mut self) -> Result<(), Failure> {
        while !self.terminal.as_ref().is_none_or(Terminal::is_ours) {
            signals::let_act(libc::SIGTTOU);
            if !signals::is_pending(Signal::SIGCONT) {
                // There is nobody who could continue it, and so the kernel did not stop it.
                let what = "others use this terminal; start it in the foreground";
                return Err(Failure::new(UNAVAILABLE, what));
            }
            while let Ok(Some(_)) = self.signals.next() {}
        }
        match &mut self.screen {
            Some(screen) => screen.enter().map_err(|error| unusable(&error)),
            None => Ok(()),
        }
    }

    fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            Ok(look) => {
                self.model = Some(Model::new(self.last.as_deref(), &look));
                self.last = Some(look);
                self.told = clock::now();
                self.why = None;
                if self.screen.is_none() {
                    self.resume()?;
                    self.screen = Some(Screen::take().map_err(|error| unusable(&error))?);
                }
                Ok(())
            }
            Err(failure) if self.last.is_none() => Err(failure),
            Err(failure) => {
                self.why = Some(failure.to_string());
                Ok(())
            }
        }
    }

    fn take_keys(&mut self) -> Result<Asked, Failure> {
        let Some(screen) = &self.screen else {
            return Ok(Asked::Draw);
        };
        let keys = screen.keys();
        let mut fds = [PollFd::new(keys.as_fd(), PollFlags::POLLIN)];
        let is_ready = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        let pressed: Vec<Key> = if is_ready {
            let mut bytes = [0; 256];
            match nix::unistd::read(keys, &mut bytes) {
                // It was hung up.
                Ok(0) | Err(Errno::EIO) => return Ok(Asked::Quit),
                Ok(count) => self.decoder.keys(&bytes[..count]),
                Err(Errno::EINTR | Errno::EAGAIN) => Vec::new(),
                Err(errno) => return Err(unusable(&errno.into())),
            }
        } else {
            self.decoder.settle().into_iter().collect()
        };
        for key in pressed {
            match self.controls.press(key) {
                Asked::Draw => {}
                Asked::Quit => return Ok(Asked::Quit),
                Asked::Repaint => {
                    if let Some(screen) = &mut self.screen {
                        screen.enter().map_err(|error| unusable(&error))?;
                    }
                }
            }
        }
        Ok(Asked::Draw)
    }

    fn draw(&mut self) -> Result<(), Failure> {
        if !self.controls.is_paused {
            self.frozen.clone_from(&self.model);
        }
        let (Some(screen), Some(model)) = (&mut self.screen, &self.frozen) else {
            return Ok(());
        };
        let age = clock::now().since(self.told);
        let is_late = age > self.interval * 2 + LATE;
        let stale = (self.why.is_some() || is_late).then(|| Stale {
            age,
            why: match &self.why {
                Some(why) => why.clone(),
                None => "the agent does not answer".to_owned(),
            },
        });
        let shown = Screenful {
            model,
            controls: &self.controls,
            interval: self.interval,
            stale: stale.as_ref(),
            styles: self.styles,
        };
        let mut fits = (0, 0);
        let drawn = screen.draw(|frame| fits = view::draw(frame, &shown));
        drawn.map_err(|error| unusable(&error))?;
        self.controls.fit(fits.0, fits.1);
        Ok(())
    }
}

fn unusable(error: &io::Error) -> Failure {
    Failure::new(
        IO,
        format_args!("cannot use the terminal: {error}; check standard input and output"),
    )
}
