//! Which configuration, which member, and which agent is looked at: by the flags, the environment, and the
//! files of the packaged agent.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use distlock::NodeId;
use distlock::discovery::{HOST_SOCKET, checked_socket, variable};

use crate::args;
use crate::exit::Failure;
use crate::group::{self, HOST_CONFIG};

const ENVIRONMENT: &str = "/etc/distlock/agent.env";
const STATE: &str = "/var/lib/distlock";

/// What is looked at.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) config: Option<PathBuf>,
    id: Option<OsString>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) socket: PathBuf,
}

impl Target {
    /// What the flags say, else the environment, else the packaged files.
    ///
    /// # Errors
    /// 64 if that is the local group, a member without a configuration, or no socket's path.
    pub(super) fn choose(flags: &args::Group) -> Result<Self, Failure> {
        Self::choose_by(flags, &variable, &Packaged::here())
    }

    fn choose_by(
        flags: &args::Group,
        env: &dyn Fn(&str) -> Option<OsString>,
        packaged: &Packaged,
    ) -> Result<Self, Failure> {
        if flags.local {
            let what =
                "the local group has no agent and no configuration to look at; leave out --local";
            return Err(Failure::usage(what, "doctor"));
        }
        let named = flags.config.clone();
        let named = named.or_else(|| env("DISTLOCK_CONFIG").map(PathBuf::from));
        // A socket that is named may be of another group than the host's.
        let is_socket_named = flags.socket.is_some() || env("DISTLOCK_SOCKET").is_some();
        let package = match named {
            None if !is_socket_named => packaged.config.as_ref().map(|_| packaged),
            _ => None,
        };
        let config = named.or_else(|| package.and_then(|it| it.config.clone()));
        if config.is_none() && (flags.id.is_some() || flags.state_dir.is_some()) {
            let what = "a member's number and its state directory go with a configuration; name that \
                        with --config";
            return Err(Failure::usage(what, "doctor"));
        }
        let set = |name: &str| env(name).or_else(|| package.and_then(|it| it.variable(name)));
        let id = flags.id.map(|id| id.to_string().into());
        let socket = flags.socket.clone();
        let socket = socket.or_else(|| set("DISTLOCK_SOCKET").map(PathBuf::from));
        let socket = checked_socket(socket.unwrap_or_else(|| HOST_SOCKET.into()));
        let state_dir = flags.state_dir.clone();
        let state_dir = state_dir.or_else(|| set("DISTLOCK_STATE_DIR").map(PathBuf::from));
        Ok(Self {
            config,
            id: id.or_else(|| set("DISTLOCK_ID")),
            state_dir: state_dir.or_else(|| package.map(|_| STATE.into())),
            socket: socket.map_err(|error| group::refusal(error, "doctor"))?,
        })
    }

    /// Which member it is, if that was said.
    ///
    /// # Errors
    /// 64 if it is no member's number.
    pub(super) fn id(&self) -> Result<Option<NodeId>, Failure> {
        let Some(text) = &self.id else {
            return Ok(None);
        };
        let id = text.to_str().and_then(|text| text.parse().ok());
        id.map(Some).ok_or_else(|| {
            let what =
                format!("DISTLOCK_ID is {text:?}, and not a number from 1 to 65535; correct it");
            Failure::usage(what, "doctor")
        })
    }
}

/// What the package's agent is started with, where there is such a configuration.
#[derive(Debug, Default)]
struct Packaged {
    config: Option<PathBuf>,
    environment: Vec<u8>,
}

impl Packaged {
    fn here() -> Self {
        let config = Path::new(HOST_CONFIG);
        Self {
            config: config.symlink_metadata().is_ok().then(|| config.to_owned()),
            environment: fs::read(ENVIRONMENT).unwrap_or_default(),
        }
    }

    /// A variable in the file, of lines NAME=VALUE as systemd reads them: the last counts.
    fn variable(&self, name: &str) -> Option<OsString> {
        let lines = self.environment.split(|&byte| byte == b'\n');
        let mut values = lines.filter_map(|line| {
            let line = line.trim_ascii().strip_prefix(name.as_bytes())?;
            Some(line.strip_prefix(b"=")?.trim_ascii())
        });
        let value = values.next_back()?;
        let quoted = |quote: &[u8]| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(value);
        (!value.is_empty()).then(|| OsStr::from_bytes(value).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        flags: &args::Group,
        env: &[(&str, &str)],
        packaged: &Packaged,
    ) -> Result<Target, Failure> {
        let get = |key: &str| env.iter().find(|(k, _)| *k == key).map(|(_, v)| v.into());
        Target::choose_by(flags, &get, packaged)
    }

    fn packaged(environment: &str) -> Packaged {
        Packaged {
            config: Some(HOST_CONFIG.into()),
            environment: environment.into(),
        }
    }

    fn path(target: &Option<PathBuf>) -> &str {
        target.as_ref().map_or("", |it| it.to_str().unwrap())
    }

    #[test]
    fn flags_then_environment_then_the_packaged_files() {
        let flags = args::Group {
            config: Some("f".into()),
            id: Some(3),
            socket: Some("s".into()),
            state_dir: Some("d".into()),
            ..args::Group::default()
        };
        let env = [
            ("DISTLOCK_CONFIG", "ec"),
            ("DISTLOCK_ID", "4"),
            ("DISTLOCK_SOCKET", "es"),
            ("DISTLOCK_STATE_DIR", "ed"),
        ];
        let files = packaged("# which\nDISTLOCK_ID=5\n DISTLOCK_ID=\"6\"\r\n");
        let none = args::Group::default();
        for (flags, env, files, expected) in [
            (&flags, &env[..], &files, ("f", Some(3), "d", "s")),
            (&none, &env, &files, ("ec", Some(4), "ed", "es")),
            (
                &none,
                &[],
                &files,
                (HOST_CONFIG, Some(6), STATE, HOST_SOCKET),
            ),
            // An agent that is named need not be of the host's group.
            (&none, &env[2..3], &files, ("", None, "", "es")),
            (&none, &env[..1], &files, ("ec", None, "", HOST_SOCKET)),
            (
                &none,
                &[],
                &Packaged::default(),
                ("", None, "", HOST_SOCKET),
            ),
        ] {
            let target = choose(flags, env, files).unwrap();
            let id = target.id().unwrap().map(NodeId::as_u16);
            let socket = target.socket.to_str().unwrap();
            let (config, state) = (path(&target.config), path(&target.state_dir));
            assert_eq!((config, id, state, socket), expected);
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_wrong_usage() {
        let none = Packaged::default();
        for flags in [
            args::Group {
                local: true,
                ..args::Group::default()
            },
            args::Group {
                id: Some(1),
                ..args::Group::default()
            },
            args::Group {
                socket: Some("@abstract".into()),
                ..args::Group::default()
            },
        ] {
            choose(&flags, &[], &none).unwrap_err();
        }
        let target = choose(
            &args::Group::default(),
            &[("DISTLOCK_CONFIG", "c"), ("DISTLOCK_ID", "one")],
            &none,
        );
        target.unwrap().id().unwrap_err();
    }
}
