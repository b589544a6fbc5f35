//! The service manager that started this program, if one did: systemd, or another that speaks its
//! protocols. It may have passed a socket, may want to hear what becomes of the agent, and may
//! watch over it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use distlock::config::{Listener, Watchdog};
use sd_notify::NotifyState;

use crate::exit::{CONFIG, Failure, quoted, say};

/// What the manager has said in the environment.
#[derive(Debug)]
pub(crate) struct Manager {
    /// The socket at which to serve.
    pub(crate) listener: Option<Listener>,
    /// After how long a silence it ends this process.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Takes what was said to this process, and removes it from the environment. To be called
    /// before a thread is started or a file opened.
    ///
    /// # Errors
    /// 78 if what was passed is anything but one Unix stream socket that listens.
    pub(crate) fn meet() -> Result<Self, Failure> {
        #[expect(unsafe_code, reason = "the environment can only be changed so")]
        // SAFETY: this process has no other thread yet that could read the environment.
        let (passed, watchdog) = unsafe {
            (
                sd_notify::listen_fds_with_names_and_unset_env(),
                sd_notify::watchdog_enabled_and_unset_env(),
            )
        };
        let passed: Vec<_> = passed
            .map_err(|error| {
                Failure::new(
                    CONFIG,
                    format_args!(
                        "the service manager passes sockets in a way that is none: {error}; \
                         correct LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES, or unset them"
                    ),
                )
            })?
            .collect();
        let listener = match &passed[..] {
            [] => None,
            [(fd, name)] => {
                #[expect(unsafe_code, reason = "so sockets are passed")]
                // SAFETY: it was open when this program started, or the look above had failed, and
                // it was passed to this process alone, in which nobody else has looked for it.
                let fd = unsafe { OwnedFd::from_raw_fd(*fd) };
                Some(Listener::new(fd).map_err(|error| unfit(name, &error))?)
            }
            several => {
                let names: Vec<_> = several.iter().map(|(_, name)| quoted(name)).collect();
                return Err(Failure::new(
                    CONFIG,
                    format_args!(
                        "the service manager passes {} sockets ({}), and an agent serves at one; \
                         leave one of them",
                        several.len(),
                        names.join(", ")
                    ),
                ));
            }
        };
        Ok(Self { listener, watchdog })
    }

    /// What keeps the manager's watchdog quiet, where it watches. Twice as often as it must be
    /// heard, so that one word may come late.
    pub(crate) fn watchdog(&self) -> Option<Watchdog> {
        let limit = self.watchdog.filter(|limit| !limit.is_zero())?;
        Some(Watchdog::new(limit / 2, || notify(NotifyState::Watchdog)))
    }
}

fn unfit(name: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        CONFIG,
        format_args!(
            "an agent cannot serve at what the service manager passes as {}: {why}; pass a Unix \
             stream socket that listens, as ListenStream= with a path makes one",
            quoted(name)
        ),
    )
}

/// Tells the manager, if it wants to know.
pub(crate) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        say(format_args!("cannot tell the service manager: {error}"));
    }
}
