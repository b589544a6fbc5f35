//! Every public error tells its cause once: in its own line, or by `source()`, and never in both.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use distlock::clock::{ClockTooFar, LamportClock};
use distlock::multicast::{InstallError, MulticastError, ReceiveError, ViewError};
use distlock::{
    Address, Algorithm, ClusterId, Config, ConfigError, DirectoryFault, ElectionAlgorithm, Fence,
    FenceError, HandleError, LockError, LockName, MembersError, OpenError, ProcessError,
    SignalError, StatusError, TimedLockError, TryLockError, UnlockError,
};

/// As the system says it; nothing else says that.
fn system() -> io::Error {
    io::Error::other("the system's own words")
}

fn what() -> String {
    "what was tried".to_owned()
}

fn path() -> PathBuf {
    "/run/x".into()
}

fn check(error: &(dyn Error + Send + Sync + 'static)) {
    let mut error: &dyn Error = error;
    while let Some(source) = error.source() {
        let (line, cause) = (error.to_string(), source.to_string());
        assert!(!line.contains(&cause), "{line:?} has its source {cause:?}");
        error = source;
    }
    assert!(!error.to_string().contains('\n'), "{error}");
}

fn fails<T>(result: Result<T, impl Error + Send + Sync + 'static>) {
    check(&result.err().expect("it is refused"));
}

#[test]
fn to_open_an_agent() {
    let source_name = "shop.toml".to_owned();
    for error in [
        ConfigError::Read {
            path: path(),
            source: system(),
        },
        ConfigError::Invalid {
            source_name: source_name.clone(),
            line: 1,
            reason: what(),
        },
        ConfigError::NoSuchMember {
            source_name,
            id: 3,
            members: Vec::new(),
        },
    ] {
        check(&error);
        check(&OpenError::Config(error));
    }
    for error in [
        OpenError::Directory {
            path: path(),
            fault: DirectoryFault::Symlink,
        },
        OpenError::Permission {
            what: what(),
            source: system(),
            hint: what(),
        },
        OpenError::AddressInUse {
            address: "udp:127.0.0.1:7400".to_owned(),
            source: system(),
        },
        OpenError::SocketInUse {
            socket: path(),
            pid: Some(1),
        },
        OpenError::Unreachable {
            socket: path(),
            source: system(),
        },
        OpenError::OtherBuild { socket: path() },
        OpenError::HostGroup {
            socket: path(),
            source: system(),
            evidence: vec![path()],
        },
        OpenError::Options { reason: what() },
        OpenError::TooManyClients { socket: path() },
        OpenError::Damaged {
            path: path(),
            reason: what(),
        },
        OpenError::NoService,
        OpenError::TooManyFiles {
            what: what(),
            source: system(),
        },
        OpenError::Io {
            what: what(),
            source: system(),
        },
    ] {
        check(&error);
    }
    fails(Config::load("/nonexistent/distlock.toml"));
    fails(distlock::Agent::connect("/nonexistent/distlock.sock"));
    fails(distlock::Agent::local_in("/proc/self/distlock"));
}

#[test]
fn to_lock_and_to_unlock() {
    let failures = || {
        [
            LockError::NoQuorum {
                missing: Vec::new(),
            },
            LockError::Deadlock,
            LockError::NotShareable {
                actual: Algorithm::Bakery,
            },
            LockError::Limit { what: what() },
            LockError::NoAnswer { silent: Vec::new() },
            LockError::Disconnected { reason: what() },
            LockError::Finished,
            LockError::Io {
                what: what(),
                source: system(),
            },
        ]
    };
    for error in failures() {
        check(&error);
    }
    for error in failures() {
        check(&TryLockError::Failed(error));
    }
    for error in failures() {
        check(&TimedLockError::Failed(error));
    }
    check(&UnlockError::Lost);
    check(&UnlockError::Io {
        what: what(),
        source: system(),
    });
    check(&HandleError::Name(
        LockName::new("").expect_err("it is empty"),
    ));
    check(&HandleError::NoElections {
        asked: ElectionAlgorithm::Bully,
    });
}

#[test]
fn of_an_agent_that_was_opened() {
    check(&ProcessError::Ended { reason: what() });
    check(&SignalError::Io { source: system() });
    check(&MembersError::Refused { reason: what() });
    check(&StatusError::Unavailable { reason: what() });
    check(&StatusError::Io {
        what: what(),
        source: system(),
    });
}

#[test]
fn at_a_resource() {
    let (lower, higher) = (Fence::new(1), Fence::new(2));
    check(&FenceError::Refused {
        fence: lower.expect("not 0"),
        highest: higher.expect("not 0"),
        file: path(),
    });
    check(&FenceError::Io {
        doing: "open",
        file: path(),
        source: system(),
    });
    fails(distlock::FenceChecker::new("/nonexistent/x.fence").highest());
}

#[test]
fn of_texts_that_are_none() {
    for text in ["", "x", "-1", "18446744073709551616"] {
        fails(text.parse::<Fence>());
        fails(text.parse::<Algorithm>());
        fails(text.parse::<ElectionAlgorithm>());
        fails(text.parse::<ClusterId>());
    }
    for text in ["", "udp:", "udp:host:7400", "udp:127.0.0.1:0", "unix:"] {
        fails(text.parse::<Address>());
    }
}

#[test]
fn of_clocks_and_multicast() {
    let far: Result<u64, ClockTooFar> = LamportClock::new().receive(u64::MAX);
    fails(far);
    check(&MulticastError::Full("payload"));
    check(&ReceiveError::Nonsense);
    check(&InstallError::NotFrozen);
    check(&ViewError::TwoViews);
}
