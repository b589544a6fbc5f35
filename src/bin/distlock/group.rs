//! Which group a command works with: the flag, else the environment, else this host's agent if
//! there is one, else the local group. What was chosen is never silently replaced by another.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::args;
use crate::exit::{self, Failure, quoted};

/// Where the agent of a host serves the programs on it.
pub(crate) const HOST_SOCKET: &str = "/run/distlock/distlock.sock";
/// The most bytes that the path of a socket can have on Linux, without the NUL that ends it.
const MAX_SOCKET_PATH: usize = 107;

/// A group, and the way into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The processes of this user on this host; the library finds the directory.
    Local,
    /// Through the agent that serves this socket.
    Host(PathBuf),
    /// As a member.
    Member(Member),
}

/// Which member, of which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The group's configuration.
    pub(crate) config: PathBuf,
    /// The member's number in it.
    pub(crate) id: u16,
    /// Where it keeps what must outlive it; `None` for the default.
    pub(crate) state_dir: Option<PathBuf>,
}

impl Group {
    /// The group that the flags, the environment and this host say; `command` is whose flags.
    ///
    /// # Errors
    /// 64 when they contradict each other or are not complete, 77 when it cannot be told whether
    /// this host has an agent.
    pub(crate) fn select(flags: &args::Group, command: &str) -> Result<Self, Failure> {
        Self::choose(
            flags,
            &|key| env::var_os(key),
            Path::new(HOST_SOCKET),
            command,
        )
    }

    fn choose(
        flags: &args::Group,
        env: &dyn Fn(&str) -> Option<OsString>,
        host_socket: &Path,
        command: &str,
    ) -> Result<Self, Failure> {
        let set = |key: &str| env(key).filter(|value| !value.is_empty());
        match (&flags.socket, &flags.config) {
            (Some(_), Some(_)) => Err(Failure::usage(
                "--socket and --config name two groups; give one",
                command,
            )),
            (Some(_), None) if flags.id.is_some() || flags.state_dir.is_some() => {
                Err(Failure::usage(
                    "--id and --state-dir go with --config, not with --socket",
                    command,
                ))
            }
            (Some(socket), None) => checked_socket(socket.clone(), command).map(Self::Host),
            (None, Some(_)) => Member::choose(flags, &set, command).map(Self::Member),
            // A number without a file: the environment must have the file.
            (None, None) if flags.id.is_some() || flags.state_dir.is_some() => {
                Member::choose(flags, &set, command).map(Self::Member)
            }
            (None, None) => {
                if let Some(socket) = set("DISTLOCK_SOCKET") {
                    checked_socket(socket.into(), command).map(Self::Host)
                } else if set("DISTLOCK_CONFIG").is_some() {
                    Member::choose(flags, &set, command).map(Self::Member)
                } else if set("DISTLOCK_DIR").is_some() {
                    Ok(Self::Local)
                } else {
                    host_or_local(host_socket)
                }
            }
        }
    }
}

impl Member {
    /// The member that the flags and the environment say; `command` is whose flags.
    ///
    /// # Errors
    /// 64 when they do not say which.
    pub(crate) fn select(flags: &args::Group, command: &str) -> Result<Self, Failure> {
        let set = |key: &str| env::var_os(key).filter(|value| !value.is_empty());
        Self::choose(flags, &set, command)
    }

    fn choose(
        flags: &args::Group,
        set: &dyn Fn(&str) -> Option<OsString>,
        command: &str,
    ) -> Result<Self, Failure> {
        let config = flags
            .config
            .clone()
            .or_else(|| set("DISTLOCK_CONFIG").map(PathBuf::from));
        let Some(config) = config else {
            return Err(Failure::usage(
                "no configuration given; name it with --config FILE or in DISTLOCK_CONFIG",
                command,
            ));
        };
        let id = match (flags.id, set("DISTLOCK_ID")) {
            (Some(id), _) => id,
            (None, Some(text)) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(id @ 1..) => id,
                _ => {
                    let text = quoted(&text);
                    let why = format!("DISTLOCK_ID is {text}, and not a number from 1 to 65535");
                    return Err(Failure::usage(why, command));
                }
            },
            (None, None) => {
                return Err(Failure::usage(
                    "a configuration, and not which of its members this is; say --id N or DISTLOCK_ID",
                    command,
                ));
            }
        };
        let state_dir = flags
            .state_dir
            .clone()
            .or_else(|| set("DISTLOCK_STATE_DIR").map(PathBuf::from));
        Ok(Self {
            config,
            id,
            state_dir,
        })
    }
}

/// The path of a socket as a user has named it, if a socket can have it.
///
/// # Errors
/// 64 if none can.
pub(crate) fn checked_socket(path: PathBuf, command: &str) -> Result<PathBuf, Failure> {
    match path.as_os_str().len() {
        0 => Err(Failure::usage("the path of the socket is empty", command)),
        // Elsewhere that stands for an abstract name.
        _ if path.as_os_str().as_encoded_bytes().starts_with(b"@") => Err(Failure::usage(
            format_args!(
                "{} is an abstract name, which is anybody's to take: name the path of a socket; a \
                 file of this name is ./{0}",
                path.display()
            ),
            command,
        )),
        1..=MAX_SOCKET_PATH => Ok(path),
        len => Err(Failure::usage(
            format_args!(
                "the path of a socket has at most {MAX_SOCKET_PATH} bytes, and {} has {len}",
                quoted(&path)
            ),
            command,
        )),
    }
}

/// A socket that is there counts, served or not: what its group guards is not guarded by another.
fn host_or_local(socket: &Path) -> Result<Group, Failure> {
    match socket.symlink_metadata() {
        Ok(_) => Ok(Group::Host(socket.to_owned())),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Group::Local)
        }
        Err(error) => Err(Failure::new(
            exit::NO_PERMISSION,
            format_args!(
                "cannot tell whether this host has an agent: {}: {error}; ask who runs it for \
                 access, or set DISTLOCK_DIR for a group of your own",
                quoted(socket)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(flags: &args::Group, env: &[(&str, &str)], socket: &Path) -> Result<Group, Failure> {
        let get = |key: &str| env.iter().find(|(k, _)| *k == key).map(|(_, v)| v.into());
        Group::choose(flags, &get, socket, "run")
    }

    fn flags(socket: Option<&str>, config: Option<&str>, id: Option<u16>) -> args::Group {
        let (socket, config) = (socket.map(Into::into), config.map(Into::into));
        args::Group {
            socket,
            config,
            id,
            state_dir: None,
        }
    }

    fn member(config: &str, id: u16) -> Group {
        Group::Member(Member {
            config: config.into(),
            id,
            state_dir: None,
        })
    }

    const NOWHERE: &str = "/nonexistent/distlock.sock";

    #[test]
    fn flag_then_environment_then_host_then_local() {
        let nowhere = Path::new(NOWHERE);
        let none = flags(None, None, None);
        let env = [
            ("DISTLOCK_SOCKET", "s"),
            ("DISTLOCK_CONFIG", "c"),
            ("DISTLOCK_ID", "7"),
            ("DISTLOCK_DIR", "d"),
        ];
        let is = |flags: &args::Group, env: &[(&str, &str)], socket: &Path, group: Group| {
            assert_eq!(choose(flags, env, socket).expect("a choice"), group);
        };
        is(
            &flags(Some("f"), None, None),
            &env,
            nowhere,
            Group::Host("f".into()),
        );
        is(&flags(None, Some("f"), None), &env, nowhere, member("f", 7));
        is(
            &flags(None, Some("f"), Some(3)),
            &env,
            nowhere,
            member("f", 3),
        );
        is(&flags(None, None, Some(3)), &env, nowhere, member("c", 3));
        is(&none, &env, nowhere, Group::Host("s".into()));
        is(&none, &env[1..], nowhere, member("c", 7));
        let exists = Path::new("/");
        is(&none, &env[3..], exists, Group::Local);
        is(
            &none,
            &[("DISTLOCK_SOCKET", ""), ("DISTLOCK_DIR", "")],
            exists,
            Group::Host("/".into()),
        );
        is(&none, &[], nowhere, Group::Local);
    }

    #[test]
    fn contradictions_and_halves_are_refused() {
        let refused = |flags: &args::Group, env: &[(&str, &str)]| {
            let failure = choose(flags, env, Path::new(NOWHERE)).expect_err("a refusal");
            assert_eq!(failure.code(), exit::USAGE);
        };
        refused(&flags(Some("s"), Some("c"), Some(1)), &[]);
        refused(&flags(Some("s"), None, Some(1)), &[]);
        refused(&flags(None, Some("c"), None), &[]);
        refused(&flags(None, None, Some(1)), &[]);
        for id in ["0", "65536", "x", "-1", "1 "] {
            refused(&flags(None, Some("c"), None), &[("DISTLOCK_ID", id)]);
        }
    }
}
