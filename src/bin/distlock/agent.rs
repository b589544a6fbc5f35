//! `distlock agent`: this host's member of a group, and a service for the programs on this host.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use crossbeam_channel::{Receiver, bounded, select};
use distlock::Event;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sd_notify::NotifyState;

use crate::args;
use crate::exit::{self, Failure, quoted, say};
use crate::group::{HOST_SOCKET, Member};
use crate::refusal;
use crate::signals::{self, Signals};
use crate::waiting::differs;
use crate::way;

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps it from starting, or ends it before its time.
pub(crate) fn agent(args: &args::Agent) -> Result<ExitCode, Failure> {
    let member = Member::select(&args.group, "agent")?;
    let socket = socket(&args.group)?;
    // Before any thread starts: all of them inherit it.
    let signals = Signals::block().map_err(|error| refusal::system("read signals", error))?;
    let agent = way::join(&member, Some(socket))?;
    let events = agent.events();
    notify(NotifyState::Ready);
    // Who closed standard output does not want to know.
    let _ = writeln!(io::stdout(), "ready").and_then(|()| io::stdout().flush());

    let ended = attend(&events, &deadly_signals(signals)?);
    notify(NotifyState::Stopping);
    let reason = agent.status().err();
    agent.close();
    match ended {
        Ended::Asked => Ok(ExitCode::SUCCESS),
        Ended::Refused(failure) => Err(failure),
        Ended::Itself => {
            let reason = reason.map_or_else(|| "its session is over".into(), |r| r.to_string());
            let what = format_args!("the agent ended: {reason}; start it again");
            Err(Failure::new(exit::UNAVAILABLE, what))
        }
    }
}

/// Tells the service manager that started this, if one did and wants to know.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        say(format_args!("cannot tell the service manager: {error}"));
    }
}

/// Where to serve: the flag, else the environment, else where programs look by themselves.
fn socket(flags: &args::Group) -> Result<PathBuf, Failure> {
    let named = flags.socket.clone().or_else(|| {
        let set = env::var_os("DISTLOCK_SOCKET").filter(|path| !path.is_empty());
        set.map(PathBuf::from)
    });
    let Some(named) = named else {
        let socket = Path::new(HOST_SOCKET);
        // Made by the system at boot where it starts the agent, and by root otherwise. Whether
        // that is so, and whether it can be used, shows when the socket is bound.
        let _ = socket.parent().map(fs::create_dir);
        return Ok(socket.to_owned());
    };
    std::path::absolute(&named).map_err(|error| {
        let what = format_args!("--socket {} is no path: {error}; name one", quoted(&named));
        Failure::usage(what, "agent")
    })
}

/// How the agent's time ended.
enum Ended {
    /// By a signal.
    Asked,
    /// By the others, whose configuration is another.
    Refused(Failure),
    /// By itself: another process has its place, or it failed.
    Itself,
}

/// Tells whoever runs the agent what happens in the group, until it is over.
fn attend(events: &Receiver<Event>, asked: &Receiver<i32>) -> Ended {
    // With these there is no talk, and so they fall silent again and again.
    let mut strangers = BTreeSet::new();
    loop {
        let event = select! {
            recv(asked) -> _ => return Ended::Asked,
            recv(events) -> event => event,
        };
        match event {
            Ok(Event::View { epoch, members }) => {
                strangers.clear();
                let ids: Vec<_> = members.iter().map(ToString::to_string).collect();
                say(format_args!(
                    "epoch {epoch} is in force, of members {}",
                    ids.join(", ")
                ));
            }
            Ok(Event::Suspect { member } | Event::Alive { member })
                if strangers.contains(&member) => {}
            Ok(Event::Suspect { member }) => say(format_args!("member {member} is silent")),
            Ok(Event::Alive { member }) => say(format_args!("member {member} is heard again")),
            Ok(Event::Disagreement {
                member,
                key,
                ours,
                theirs,
                refused,
            }) => {
                strangers.insert(member);
                let why = differs(
                    member.as_u16(),
                    &format!("{key}: {theirs} there, {ours} here"),
                );
                if refused {
                    return Ended::Refused(why);
                }
                say(why);
            }
            Ok(Event::Superseded) | Err(_) => return Ended::Itself,
            Ok(_) => {}
        }
    }
}

/// The first signal that asks to end, and a thread that waits for it. A second one ends the
/// process at once.
fn deadly_signals(signals: Signals) -> Result<Receiver<i32>, Failure> {
    let (sender, receiver) = bounded(1);
    let listen = move || loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        while let Ok(Some(number)) = signals.next() {
            if !signals::is_deadly(number) {
                signals::let_act(number);
            } else if sender.try_send(number).is_err() {
                signals::die_of(number);
            }
        }
    };
    let thread = thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen);
    thread.map_err(|error| refusal::system("start a thread", error))?;
    Ok(receiver)
}
