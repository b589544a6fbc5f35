//! Discovery: which group a process uses, and how it reaches the group.
//!
//! The order is: what the caller asks for ([`GroupOptions`]); the environment (`DISTLOCK_SOCKET`,
//! `DISTLOCK_CONFIG` with `DISTLOCK_ID`, or `DISTLOCK_DIR` for the local group); this host's agent,
//! if [`HOST_SOCKET`] exists; the local group. A host that was ever in a configured group is never
//! given the local group instead: two processes that exclude each other by different groups would
//! hold one lock together.
//!
//! [`Agent::open`], `distlock_agent_open` of the C library and the program `distlock` all use it.

mod host;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::NodeId;
pub use distlock_agent::runtime::environment::variable;

pub use self::host::HOST_SOCKET;
use self::host::Host;
pub(crate) use self::host::host_endpoint;
use crate::agent::Agent;
use crate::config::{Config, NodeConfig};
use crate::error::OpenError;

/// The longest path that a socket can have on Linux, without the NUL that ends it.
const MAX_SOCKET_PATH: usize = 107;

/// What a caller asks for.
///
/// ```
/// use distlock::discovery::{GroupChoice, GroupOptions};
/// use distlock::{NodeId, OpenError};
///
/// // As of `distlock run --config shop.toml --id 3`.
/// let id = NodeId::new(3).expect("ids start at 1");
/// let GroupChoice::Member(member) = GroupOptions::new().config("shop.toml").id(id).find()? else {
///     panic!("a configuration makes this process a member");
/// };
/// assert_eq!(member.id, id);
/// // As of `distlock run --local`.
/// assert_eq!(GroupOptions::new().local().find()?, GroupChoice::Local);
/// // Two groups at once.
/// let both = GroupOptions::new().local().socket("/run/distlock/distlock.sock").find();
/// assert!(matches!(both, Err(OpenError::Options { .. })));
/// # Ok::<(), OpenError>(())
/// ```
///
/// What it leaves open is looked for in the environment, and then on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupOptions {
    local: bool,
    socket: Option<PathBuf>,
    config: Option<PathBuf>,
    id: Option<NodeId>,
    state_dir: Option<PathBuf>,
}

/// A group, and the way to reach it: what [`GroupOptions::find`] finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupChoice {
    /// The processes of this user on this host.
    Local,
    /// The group of the agent that serves this socket.
    Agent(PathBuf),
    /// A configured group, with this process as one of its members.
    Member(MemberChoice),
}

/// A member of a configured group: what [`GroupOptions::find_member`] finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MemberChoice {
    /// The group's configuration.
    pub config: PathBuf,
    /// The member's number in it.
    pub id: NodeId,
    /// Where the member keeps what must outlive the process; `None` is the default place.
    pub state_dir: Option<PathBuf>,
}

impl GroupOptions {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the local group, whatever the environment says and whatever this host has.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// Asks for the group of the agent that serves the socket `path`.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Asks to be a member of the group that the file `path` configures.
    #[must_use]
    pub fn config(mut self, path: impl Into<PathBuf>) -> Self {
        self.config = Some(path.into());
        self
    }

    /// Asks to be the member with this number.
    #[must_use]
    pub fn id(mut self, id: NodeId) -> Self {
        self.id = Some(id);
        self
    }

    /// Has the member keep its state below `base`.
    #[must_use]
    pub fn state_dir(mut self, base: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(base.into());
        self
    }

    /// Finds the group, in the order that the [module](self) tells.
    ///
    /// # Errors
    /// [`OpenError::Options`] if what was asked for, or what the environment says, is contradictory
    /// or incomplete; [`OpenError::HostGroup`] if this host has a configured group whose agent is
    /// not there; [`OpenError::Permission`] if this process may not see whether it has one.
    pub fn find(&self) -> Result<GroupChoice, OpenError> {
        self.find_on(&Host::this(), &variable)
    }

    /// Finds which member this process is, by the options and the environment.
    ///
    /// # Errors
    /// [`OpenError::Options`] if they do not say.
    pub fn find_member(&self) -> Result<MemberChoice, OpenError> {
        self.member(&variable)
    }

    fn find_on(
        &self,
        host: &Host<'_>,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<GroupChoice, OpenError> {
        let asks_for_member =
            self.config.is_some() || self.id.is_some() || self.state_dir.is_some();
        match &self.socket {
            _ if self.local && (asks_for_member || self.socket.is_some()) => {
                refused("the local group has no agent and no configuration; leave out one of both")
            }
            _ if self.local => Ok(GroupChoice::Local),
            Some(_) if self.config.is_some() => refused(
                "the socket of an agent (--socket) and a configuration (--config) name two groups; \
                 give one of both",
            ),
            Some(_) if asks_for_member => refused(
                "the number of a member (--id) and its state directory (--state-dir) go with a \
                 configuration, not with the socket of an agent; leave out one of both",
            ),
            Some(socket) => checked_socket(socket.clone()).map(GroupChoice::Agent),
            None if asks_for_member => self.member(env).map(GroupChoice::Member),
            None => {
                if let Some(socket) = env("DISTLOCK_SOCKET") {
                    checked_socket(socket.into()).map(GroupChoice::Agent)
                } else if env("DISTLOCK_CONFIG").is_some() {
                    self.member(env).map(GroupChoice::Member)
                } else if env("DISTLOCK_DIR").is_some() {
                    Ok(GroupChoice::Local)
                } else {
                    let agent = host.agent()?;
                    Ok(agent.map_or(GroupChoice::Local, GroupChoice::Agent))
                }
            }
        }
    }

    fn member(&self, env: &dyn Fn(&str) -> Option<OsString>) -> Result<MemberChoice, OpenError> {
        if self.local || self.socket.is_some() {
            return refused(
                "a member has a configuration, and neither another agent's socket nor the local \
                 group; leave that out",
            );
        }
        let config = self.config.clone();
        let Some(config) = config.or_else(|| env("DISTLOCK_CONFIG").map(PathBuf::from)) else {
            return refused(
                "no configuration given; name it with --config FILE or in DISTLOCK_CONFIG",
            );
        };
        let id = match (self.id, env("DISTLOCK_ID")) {
            (Some(id), _) => id,
            (None, Some(text)) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(id) => id,
                None => {
                    return refused(format!(
                        "DISTLOCK_ID is {text:?}, and not a number from 1 to 65535; correct it"
                    ));
                }
            },
            (None, None) => {
                return refused(
                    "a configuration, and not which of its members this is; say --id N or set \
                     DISTLOCK_ID",
                );
            }
        };
        let state_dir = self.state_dir.clone();
        Ok(MemberChoice {
            config,
            id,
            state_dir: state_dir.or_else(|| env("DISTLOCK_STATE_DIR").map(PathBuf::from)),
        })
    }
}

impl GroupChoice {
    /// Opens the group.
    ///
    /// # Errors
    /// As for [`Agent::local`], [`Agent::connect`] or [`Agent::from_config`].
    pub fn open(&self) -> Result<Agent, OpenError> {
        self.open_by(|socket| Agent::connect(socket))
    }

    /// Opens the group as [`GroupChoice::open`] does; the host's agent, if it is that one's group, has
    /// to answer within `time`, as [`Agent::connect_within`] has it.
    ///
    /// # Errors
    /// As for [`GroupChoice::open`].
    pub fn open_within(&self, time: Duration) -> Result<Agent, OpenError> {
        self.open_by(|socket| Agent::connect_within(socket, time))
    }

    fn open_by(
        &self,
        connect: impl FnOnce(&Path) -> Result<Agent, OpenError>,
    ) -> Result<Agent, OpenError> {
        match self {
            Self::Local => Agent::local(),
            Self::Agent(socket) => connect(socket).map_err(|error| match error {
                OpenError::Unreachable { socket, source } if socket == Path::new(HOST_SOCKET) => {
                    Host::this().unserved(socket, source)
                }
                error => error,
            }),
            Self::Member(member) => Agent::from_config(member.load()?),
        }
    }
}

/// Names the group, for a message.
impl fmt::Display for GroupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => write!(f, "the local group of user {}", nix::unistd::geteuid()),
            Self::Agent(socket) => write!(f, "the group of the agent at {}", socket.display()),
            Self::Member(MemberChoice { config, id, .. }) => {
                write!(f, "the group of {}, as member {id}", config.display())
            }
        }
    }
}

impl MemberChoice {
    /// Reads the configuration.
    ///
    /// # Errors
    /// If it cannot be read, is refused, or has no such member.
    pub fn load(&self) -> Result<NodeConfig, OpenError> {
        let node = Config::load(&self.config)?.node(self.id.as_u16())?;
        Ok(match &self.state_dir {
            Some(base) => node.with_state_dir(base),
            None => node,
        })
    }
}

impl Agent {
    /// Opens the group that this process is told to use, or else this host's: by the environment
    /// (`DISTLOCK_SOCKET`, `DISTLOCK_CONFIG` with `DISTLOCK_ID`, or `DISTLOCK_DIR`), through this
    /// host's agent, or the local group if this host has no configured one. `distlock run` looks in
    /// the same order.
    ///
    /// # Errors
    /// As for [`GroupOptions::find`] and [`GroupChoice::open`].
    pub fn open() -> Result<Self, OpenError> {
        GroupOptions::new().find()?.open()
    }
}

/// The path of a socket as a caller has named it, if a socket can have it.
///
/// # Errors
/// If none can.
pub fn checked_socket(path: PathBuf) -> Result<PathBuf, OpenError> {
    match path.as_os_str().len() {
        0 => refused("the path of the socket is empty; name one"),
        // Elsewhere that stands for an abstract name.
        _ if path.as_os_str().as_encoded_bytes().starts_with(b"@") => refused(format!(
            "{} is an abstract name, which is anybody's to take: name the path of a socket; a file \
             of this name is ./{0}",
            path.display()
        )),
        1..=MAX_SOCKET_PATH => Ok(path),
        len => refused(format!(
            "the path of a socket has at most {MAX_SOCKET_PATH} bytes, and {} has {len}; name a \
             shorter one",
            path.display()
        )),
    }
}

fn refused<T>(reason: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Options {
        reason: reason.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A host of a test's own.
    struct Place {
        dir: TempDir,
        paths: [PathBuf; 3],
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let paths = ["distlock.sock", "distlock.toml", "state"].map(|x| dir.path().join(x));
            Self { dir, paths }
        }

        fn host(&self) -> Host<'_> {
            let [socket, config, state] = &self.paths;
            Host {
                socket,
                config,
                state,
            }
        }

        fn find(
            &self,
            options: &GroupOptions,
            env: &[(&str, &str)],
        ) -> Result<GroupChoice, OpenError> {
            let get = |key: &str| env.iter().find(|(k, _)| *k == key).map(|(_, v)| v.into());
            options.find_on(&self.host(), &get)
        }
    }

    fn id(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn member(config: &str, number: u16) -> GroupChoice {
        GroupChoice::Member(MemberChoice {
            config: config.into(),
            id: id(number),
            state_dir: None,
        })
    }

    #[test]
    fn options_then_environment_then_host_then_local() {
        let none = GroupOptions::new();
        let env = [
            ("DISTLOCK_SOCKET", "s"),
            ("DISTLOCK_CONFIG", "c"),
            ("DISTLOCK_ID", "7"),
            ("DISTLOCK_DIR", "d"),
        ];
        let place = Place::new();
        let is = |options: &GroupOptions, env: &[(&str, &str)], group: GroupChoice| {
            assert_eq!(place.find(options, env).unwrap(), group);
        };
        let agent = |path: &Path| GroupChoice::Agent(path.to_owned());
        is(&none.clone().local(), &env, GroupChoice::Local);
        is(&none.clone().socket("f"), &env, agent("f".as_ref()));
        is(&none.clone().config("f"), &env, member("f", 7));
        is(&none.clone().config("f").id(id(3)), &env, member("f", 3));
        is(&none.clone().id(id(3)), &env, member("c", 3));
        is(&none, &env, agent("s".as_ref()));
        is(&none, &env[1..], member("c", 7));
        is(&none, &env[3..], GroupChoice::Local);
        is(&none, &[], GroupChoice::Local);
        File::create(&place.paths[0]).unwrap();
        is(&none, &[], agent(&place.paths[0]));
        is(&none, &env[3..], GroupChoice::Local);
        is(&none.local(), &[], GroupChoice::Local);
    }

    /// Whatever tells of a configured group is enough, be it a link that leads nowhere.
    #[test]
    fn a_host_with_a_configured_group_has_no_local_one_by_default() {
        for at in [1, 2] {
            for is_link in [false, true] {
                let place = Place::new();
                let path = &place.paths[at];
                match is_link {
                    true => symlink("nowhere", path).unwrap(),
                    false => fs::create_dir(path).unwrap(),
                }
                let refused = place.find(&GroupOptions::new(), &[]).unwrap_err();
                let OpenError::HostGroup { evidence, .. } = &refused else {
                    panic!("{refused}");
                };
                assert_eq!(evidence, std::slice::from_ref(path));
                let text = refused.to_string();
                assert!(text.contains(path.to_str().unwrap()), "{text}");
                assert!(text.contains("--local"), "{text}");
                let local = place.find(&GroupOptions::new().local(), &[]).unwrap();
                assert_eq!(local, GroupChoice::Local);
            }
        }
    }

    #[test]
    fn the_mark_of_a_host_is_made_once() {
        let place = Place::new();
        place.host().mark().unwrap();
        place.host().mark().unwrap();
        assert!(place.paths[2].is_dir());
        let refused = place.find(&GroupOptions::new(), &[]).unwrap_err();
        assert!(matches!(refused, OpenError::HostGroup { .. }), "{refused}");
        // As systemd makes it, before what it leads to is mounted.
        let place = Place::new();
        symlink("private/distlock", &place.paths[2]).unwrap();
        place.host().mark().unwrap();
        let nowhere = place.dir.path().join("nowhere/state");
        let host = Host {
            state: &nowhere,
            ..place.host()
        };
        let refused = host.mark().unwrap_err().to_string();
        assert!(refused.contains(nowhere.to_str().unwrap()), "{refused}");
    }

    #[test]
    fn contradictions_and_halves_are_refused() {
        let place = Place::new();
        let refused = |options: GroupOptions, env: &[(&str, &str)]| {
            let refused = place.find(&options, env).unwrap_err();
            assert!(matches!(refused, OpenError::Options { .. }), "{refused}");
        };
        let none = GroupOptions::new;
        refused(none().socket("s").config("c").id(id(1)), &[]);
        refused(none().socket("s").id(id(1)), &[]);
        refused(none().config("c"), &[]);
        refused(none().id(id(1)), &[]);
        refused(none().local().socket("s"), &[]);
        refused(none().local().config("c").id(id(1)), &[]);
        refused(none().local().id(id(1)), &[("DISTLOCK_CONFIG", "c")]);
        refused(none().socket(""), &[]);
        refused(none().socket("@x"), &[]);
        refused(none().socket("x".repeat(MAX_SOCKET_PATH + 1)), &[]);
        for id in ["0", "65536", "x", "-1", "1 "] {
            refused(none().config("c"), &[("DISTLOCK_ID", id)]);
        }
    }
}
