//! `distlock agent`: this host's member of a group, and a service for the programs on this host.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use crossbeam_channel::{Receiver, bounded, select};
use distlock::config::Listener;
use distlock::discovery::{GroupChoice, HOST_SOCKET, checked_socket, variable};
use distlock::status::Status;
use distlock::{Agent, Event, NodeId, StatusError};
use distlock_agent::protocol::membership::quorum::members;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tracing::Level;

use crate::args::{self, LogFormat};
use crate::audit;
use crate::exit::{self, Failure, quoted};
use crate::group;
use crate::log;
use crate::manager::{Manager, notify};
use crate::metrics::Endpoint;
use crate::quorum;
use crate::refusal;
use crate::signals::{self, Signals};
use crate::waiting::differs;

/// Open files for as many clients as an agent takes: a stream, a process, a command's pipe and the
/// command for each of 4,096, and some for the agent itself.
pub(crate) const OPEN_FILES: u64 = 4 * 4_096 + 256;

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps it from starting, or ends it before its time.
pub(crate) fn agent(args: &args::Agent) -> Result<ExitCode, Failure> {
    log::start(args.log_format, Level::INFO);
    match (serve(args), args.log_format) {
        (Err(failure), LogFormat::Json) => {
            tracing::error!(event = "ended", "{failure}");
            Ok(failure.code())
        }
        (done, _) => done,
    }
}

/// Starts an agent, a member or of a store: their configurations have the same methods. With it comes
/// where its metrics are served, and its audit log.
macro_rules! start {
    ($place:expr, $config:expr, $id:expr, $manager:expr, $start:expr) => {{
        let mut config = match $place {
            Place::At(path) => $config.with_socket(path),
            Place::Given(listener) => $config.with_listener(listener),
        };
        if let Some(watchdog) = $manager.watchdog() {
            config = config.with_watchdog(watchdog);
        }
        // Before the group hears of this agent.
        let endpoint = config.metrics().map(Endpoint::bind).transpose()?;
        let mut audit = None;
        if let Some(path) = config.audit().map(Path::to_owned) {
            let (log, auditor) = audit::open(&path, $id)?;
            config = config.with_auditor(auditor);
            audit = Some(log);
        }
        ($start(config)?, endpoint, audit)
    }};
}
fn serve(args: &args::Agent) -> Result<ExitCode, Failure> {
    // Before anything else is opened or started.
    let manager = Manager::meet()?;
    // Its socket is where it serves, and not an agent to connect to.
    let flags = args::Group {
        socket: None,
        ..args.group.clone()
    };
    let choice = group::agent(&flags, "agent")?;
    let place = Place::choose(&args.group, &manager)?;
    let socket = place.path();
    allow_open_files();
    // Its memory has the group's key. A core dump would have it, and what else runs as this user
    // could read it.
    set_dumpable(false).map_err(|errno| refusal::system("forbid core dumps", errno))?;
    // Before any thread starts: all of them inherit it.
    let signals = Signals::block().map_err(|error| refusal::system("read signals", error))?;
    let is_in_store = matches!(choice, GroupChoice::Store(_));
    let (agent, endpoint, audit) = match choice {
        GroupChoice::Store(choice) => {
            if args.trace.is_some() {
                let what = "locks in a store have no trace yet; leave out --trace";
                return Err(Failure::usage(what, "agent"));
            }
            let mut config = choice.load()?;
            if let Some(dir) = &flags.state_dir {
                config = config.with_state_dir(dir);
            }
            start!(place, config, 0, manager, Agent::from_store)
        }
        _ => {
            let mut config = group::member(&flags, "agent")?.load()?;
            if let Some(dir) = &args.trace {
                config = config.with_trace(dir);
            }
            let id = config.me().as_u16();
            start!(place, config, id, manager, Agent::from_config)
        }
    };
    if let Some(endpoint) = &endpoint {
        endpoint.serve(agent.clone())?;
    }
    let events = agent.events();
    notify(NotifyState::Ready);
    // Who closed standard output does not want to know.
    let _ = io::stdout().write_all(format!("ready: {}\n", readiness(&socket, &agent)).as_bytes());

    let ended = attend(&events, &deadly_signals(signals)?, is_in_store);
    notify(NotifyState::Stopping);
    let reason = agent.status().err();
    agent.close();
    if let Some(audit) = audit {
        audit.close();
    }
    match ended {
        Ended::Asked => Ok(ExitCode::SUCCESS),
        Ended::Refused(failure) => Err(failure),
        Ended::Itself => {
            let reason = match reason {
                // Of a session that ended, and not of a connection: there is none here.
                Some(StatusError::Disconnected { reason }) => reason,
                Some(error) => error.to_string(),
                None => "its session is over".to_owned(),
            };
            let what = format!("the agent ended: {reason}; then start it again");
            Err(Failure::new(exit::UNAVAILABLE, what))
        }
    }
}

/// The usual limit is for programs that use select(2), which this one does not. Where it may not be
/// raised, fewer clients are taken, and the others are told.
fn allow_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let wanted = OPEN_FILES.min(hard);
    if soft < wanted {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
    }
}

/// Where programs are served.
enum Place {
    At(PathBuf),
    Given(Listener),
}

impl Place {
    /// At the socket that the service manager passes; else where the flag says, else the
    /// environment, else where programs look by themselves.
    fn choose(flags: &args::Group, manager: &Manager) -> Result<Self, Failure> {
        let named = flags.socket.clone().or_else(|| {
            let set = variable("DISTLOCK_SOCKET");
            set.map(PathBuf::from)
        });
        if let Some(listener) = &manager.listener {
            return match named {
                Some(named) if !is_at(listener, &named) => {
                    let what = format!(
                        "the service manager passes another socket than {}; leave out --socket \
                         and DISTLOCK_SOCKET, or name that one",
                        quoted(&named)
                    );
                    Err(Failure::usage(what, "agent"))
                }
                _ => Ok(Self::Given(listener.clone())),
            };
        }
        let named = named.unwrap_or_else(|| HOST_SOCKET.into());
        let named = checked_socket(named).map_err(|error| group::refusal(error, "agent"))?;
        let path = std::path::absolute(named).map_err(|error| {
            let what = format!("the socket has no absolute path: {error}; give one");
            Failure::usage(what, "agent")
        })?;
        if path == Path::new(HOST_SOCKET) {
            // Made by the system at boot where it starts the agent, and by root otherwise. Whether
            // that is so, and whether it can be used, shows when the socket is bound.
            let mut directory = DirBuilder::new();
            // Whatever the umask: who may write there can take the agent's place.
            directory.mode(0o755);
            let _ = path.parent().map(|path| directory.create(path));
        }
        Ok(Self::At(path))
    }

    /// The path at which it is, for a message.
    fn path(&self) -> PathBuf {
        match self {
            Self::At(path) => path.clone(),
            // A listener that has none is refused.
            Self::Given(listener) => listener.path().unwrap_or_default(),
        }
    }
}

/// Whether `listener` is what programs find at `path`, however that is spelled.
fn is_at(listener: &Listener, path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let own = listener.path().and_then(|own| identity(&own));
    own.is_some() && own == identity(path)
}

/// Where programs can connect, and who has to be there before they get a lock.
fn readiness(socket: &Path, agent: &Agent) -> String {
    let mut text = format!("listens at {}", socket.display());
    // Nobody was heard yet, so that nobody is asked and this takes no time.
    let Ok(Status { quorum, .. }) = agent.status() else {
        return text;
    };
    let missing: Vec<_> = quorum
        .missing
        .iter()
        .filter_map(|id| NodeId::new(*id))
        .collect();
    if !quorum.ok && !missing.is_empty() {
        let members = members(&missing);
        text += &match quorum.founded {
            true => format!(", waits for a majority of the voters: {members} not heard yet"),
            false => format!(
                ", waits for the founding, for which every listed member must be there once: \
                 {members} not heard yet"
            ),
        };
    }
    text
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
fn attend(events: &Receiver<Event>, asked: &Receiver<i32>, is_in_store: bool) -> Ended {
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
                tracing::info!(
                    event = "view",
                    epoch = epoch.as_u32(),
                    "epoch {epoch} is in force, of members {}",
                    ids.join(", ")
                );
            }
            Ok(Event::Suspect { member } | Event::Alive { member })
                if strangers.contains(&member) => {}
            Ok(Event::Suspect { member }) => {
                let id = member.as_u16();
                tracing::warn!(event = "silent", member = id, "member {member} is silent");
            }
            Ok(Event::Alive { member }) => {
                let id = member.as_u16();
                tracing::info!(
                    event = "heard",
                    member = id,
                    "member {member} is heard again"
                );
            }
            Ok(Event::Quorum(told)) if told.ok => {
                tracing::info!(event = "quorum", "there is a quorum again");
            }
            Ok(Event::Quorum(told)) => {
                tracing::error!(event = "no-quorum", "{}", quorum::failure(&told));
            }
            Ok(Event::Disagreement {
                member,
                key,
                ours,
                theirs,
                refused,
            }) => {
                strangers.insert(member);
                let why = differs(member.as_u16(), &key, &ours, &theirs);
                if refused {
                    return Ended::Refused(why);
                }
                let id = member.as_u16();
                tracing::error!(event = "files-differ", member = id, "{why}");
            }
            Ok(Event::Excluded { epoch }) => {
                let epoch_number = epoch.as_u32();
                if is_in_store {
                    tracing::error!(
                        event = "excluded",
                        epoch = epoch_number,
                        "this agent's session in the store has ended, as it was not renewed in time or \
                         the store is another: what it held is lost; it begins a new one by itself"
                    );
                    continue;
                }
                tracing::error!(
                    event = "excluded",
                    epoch = epoch_number,
                    "the group has gone on without this member, which was silent for too long, in epoch \
                     {epoch}: what it held is lost; it comes back by itself"
                );
            }
            Ok(Event::Removed) => return Ended::Refused(removed()),
            Ok(Event::Superseded) | Err(_) => return Ended::Itself,
            Ok(_) => {}
        }
    }
}

/// Started again, it would hear the same: so the code is one that service managers stop at.
fn removed() -> Failure {
    Failure::new(
        exit::CONFIG,
        "this member was removed from the group; to have it back, say 'distlock members add' at \
         another one, and then start it again",
    )
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
