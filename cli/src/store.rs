//! `distlock store`: a store, looked at and cared for.

use std::fmt::Write;
use std::process::ExitCode;

use distlock::LockName;
use distlock::config::StoreConfig;
use distlock::discovery::GroupChoice;
use distlock::store::{StoreAdmin, StoreError, schema};

use crate::args::{self, StoreCheck, StoreCommand, StoreGc, StoreInit};
use crate::exit::{self, CONFIG, Failure, UNAVAILABLE, clean};
use crate::group;

/// Does what is asked of a store.
///
/// # Errors
/// 64 if no store is named; 69 if it does not answer; 77 or 78 if a password or certificate cannot be used,
/// or the store is not as it is required to be.
pub(crate) fn store(command: &StoreCommand) -> Result<ExitCode, Failure> {
    match command {
        StoreCommand::Check(args) => check(args),
        StoreCommand::Init(args) => init(args),
        StoreCommand::Gc(args) => collect(args),
    }
}

/// The store that the flags and the environment name.
///
/// # Errors
/// 64 if they name none.
pub(crate) fn named(flags: &args::Group, command: &str) -> Result<StoreConfig, Failure> {
    match group::agent(flags, command)? {
        GroupChoice::Store(choice) => Ok(choice.load()?),
        other => Err(Failure::usage(
            format_args!("{other} is in no store; name one with --at, like etcd://10.0.0.1"),
            command,
        )),
    }
}

fn check(args: &StoreCheck) -> Result<ExitCode, Failure> {
    let config = named(&args.group, "store check")?;
    let mut store = StoreAdmin::connect(&config)?;
    let contents = store.contents()?;
    let keeps = if store.keeps() { "yes" } else { "no" };
    let mut text = String::new();
    let _ = writeln!(text, "store      {}", clean(config.url()));
    let _ = writeln!(text, "group      {}", clean(config.group()));
    let _ = writeln!(text, "lease      {:?}", config.lease());
    let _ = writeln!(text, "answers    after {:.1?}", store.took());
    let _ = writeln!(text, "keeps      {keeps}");
    for doubt in store.doubts() {
        let _ = writeln!(text, "           {}", clean(doubt));
    }
    let _ = writeln!(text, "identity   {}", clean(store.identity()));
    let _ = writeln!(
        text,
        "locks      {}, held {} times, waited for {} times, by {} agents",
        contents.locks, contents.holders, contents.waiters, contents.sessions
    );
    for unreadable in &contents.unreadable {
        let _ = writeln!(text, "unreadable {}", clean(unreadable));
    }
    exit::print(text.as_bytes(), "what the store is")?;
    if !store.keeps() && config.requires_keeping() {
        let what = "the store may forget what it has acknowledged, and require = \"keeps\" refuses \
                    that; have it keep everything, or leave the key out";
        return Err(Failure::new(CONFIG, what));
    }
    Ok(ExitCode::SUCCESS)
}

fn init(args: &StoreInit) -> Result<ExitCode, Failure> {
    let config = named(&args.group, "store init")?;
    match schema(&config) {
        Some(statements) if args.print => exit::print(statements.as_bytes(), "the statements"),
        None if args.print => Ok(ExitCode::SUCCESS),
        _ => {
            StoreAdmin::initialize(&config)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn collect(args: &StoreGc) -> Result<ExitCode, Failure> {
    let config = named(&args.group, "store gc")?;
    let mut store = StoreAdmin::connect(&config)?;
    let idle = args.idle.into();
    let collected = store.collect(idle, args.dry_run)?;
    let mut text = String::new();
    for name in &collected.locks {
        let _ = writeln!(text, "{}", clean(&name.to_string()));
    }
    exit::print(text.as_bytes(), "what was removed")
}

/// Refuses a fence that is lower than the last one that the store has given of the lock.
///
/// # Errors
/// 1 if it is lower; 69 if that cannot be known.
pub(crate) fn check_fence(
    config: &StoreConfig,
    name: &LockName,
    fence: u64,
) -> Result<(), Failure> {
    let mut store = StoreAdmin::connect(config)?;
    match store.last_fence(name)? {
        None => Err(Failure::new(
            UNAVAILABLE,
            format_args!(
                "the store has no record of {}, so nobody knows its last fence; check the group and \
                 the lock's name",
                exit::quoted(name.to_string())
            ),
        )),
        Some(last) if fence < last.as_u64() => Err(Failure::new(
            exit::NOT_ACQUIRED,
            format_args!(
                "fence {fence} is refused: {last} has been given since, so its holder has lost the \
                 lock"
            ),
        )),
        Some(_) => Ok(()),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(
            UNAVAILABLE,
            format_args!("{error}; see that it runs and that this user may use it"),
        )
    }
}
