//! Discovery: which group a process uses, and how it reaches the group.
//!
//! The order is: what the caller asks for ([`GroupOptions`]); the environment (`DISTLOCK_AT`,
//! `DISTLOCK_SOCKET`, `DISTLOCK_CONFIG` with `DISTLOCK_ID`, or `DISTLOCK_DIR` for the local group); this host's agent,
//! if [`HOST_SOCKET`] exists; the local group. A host that was ever in a configured group is never
//! given the local group instead: two processes that exclude each other by different groups would
//! hold one lock together.
//!
//! [`Agent::open`], `distlock_agent_open` of the C library and the program `distlock` all use it.

mod host;
mod place;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::NodeId;
pub use distlock_agent::runtime::environment::variable;

pub use self::host::HOST_SOCKET;
use self::host::Host;
pub(crate) use self::host::host_endpoint;
pub use self::place::StoreChoice;
use self::place::choice_at;
use crate::agent::Agent;
use crate::config::{Config, ConfigError, NodeConfig};
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
    at: Option<String>,
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
    /// A group whose locks a store has.
    Store(StoreChoice),
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

    /// Asks for the group at that place: a store's, like `etcd://10.0.0.1,10.0.0.2?group=shop` or
    /// `postgresql://app@db/shop`; or `local:`, `unix:/run/distlock/distlock.sock` for the agent that
    /// serves there, `file:shop.toml#2` for a member of the group that the file configures.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.at = Some(place.into());
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

    /// Finds of what this process is to be an agent, by the options and the environment: a member, or one
    /// that has its locks in a store.
    ///
    /// # Errors
    /// As for [`GroupOptions::find_member`], and if they name a group that has another agent, or none.
    pub fn find_agent(&self) -> Result<GroupChoice, OpenError> {
        let names_member = self.config.is_some() || self.id.is_some();
        let place = self.at.clone().map_or_else(
            || {
                let place = variable("DISTLOCK_AT").filter(|_| !names_member);
                place.map(OsString::into_string).transpose()
            },
            |place| Ok(Some(place)),
        );
        let choice = match place {
            Err(_) => return refused("DISTLOCK_AT is not UTF-8; correct it"),
            Ok(Some(_)) if names_member => {
                return refused("a place (--at) and a configuration (--config) name two groups");
            }
            Ok(Some(place)) => choice_at(&place)?,
            Ok(None) => self.configured(&variable)?,
        };
        if choice.has_own_agent() {
            return Ok(choice);
        }
        refused(format!(
            "{choice} has its agent elsewhere, or none: name a store, or a configuration"
        ))
    }

    fn find_on(
        &self,
        host: &Host<'_>,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<GroupChoice, OpenError> {
        let asks_for_member =
            self.config.is_some() || self.id.is_some() || self.state_dir.is_some();
        let asks_otherwise = self.local || self.socket.is_some() || asks_for_member;
        if let Some(place) = &self.at {
            return if asks_otherwise {
                refused(
                    "a place (--at) names the group already; leave out --local, --socket, --config, \
                     --id and --state-dir",
                )
            } else {
                choice_at(place)
            };
        }
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
            None if asks_for_member => self.configured(env),
            None => {
                if let Some(place) = env("DISTLOCK_AT") {
                    match place.to_str() {
                        Some(place) => choice_at(place),
                        None => refused("DISTLOCK_AT is not UTF-8; correct it"),
                    }
                } else if let Some(socket) = env("DISTLOCK_SOCKET") {
                    checked_socket(socket.into()).map(GroupChoice::Agent)
                } else if env("DISTLOCK_CONFIG").is_some() {
                    self.configured(env)
                } else if env("DISTLOCK_DIR").is_some() {
                    Ok(GroupChoice::Local)
                } else {
                    let agent = host.agent()?;
                    Ok(agent.map_or(GroupChoice::Local, GroupChoice::Agent))
                }
            }
        }
    }

    /// The group that a file configures: as a member of it, or by the store that the file names.
    fn configured(&self, env: &dyn Fn(&str) -> Option<OsString>) -> Result<GroupChoice, OpenError> {
        let path = self.config.clone();
        let path = path.or_else(|| env("DISTLOCK_CONFIG").map(PathBuf::from));
        let names_no_member = self.id.is_none() && env("DISTLOCK_ID").is_none();
        let Some(path) = path.filter(|_| names_no_member) else {
            return self.member(env).map(GroupChoice::Member);
        };
        match Config::load(&path) {
            Ok(config) if config.has_store() => Ok(GroupChoice::Store(StoreChoice::Config(path))),
            // What it says is wrong before what was left out.
            Err(error @ ConfigError::Invalid { .. }) => Err(error.into()),
            _ => self.member(env).map(GroupChoice::Member),
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
    /// Whether this process is then an agent itself: a member of its group, or one that has its locks in a
    /// store.
    pub fn has_own_agent(&self) -> bool {
        matches!(self, Self::Member(_) | Self::Store(_))
    }

    /// Opens the group.
    ///
    /// # Errors
    /// As for [`Agent::local`], [`Agent::connect`], [`Agent::from_config`] or `Agent::from_store`.
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
            Self::Store(choice) => choice.open(),
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
            Self::Store(StoreChoice::At(place)) => write!(f, "the group at {place}"),
            Self::Store(StoreChoice::Config(path)) => {
                write!(f, "the group of {}", path.display())
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
    /// (`DISTLOCK_AT`, `DISTLOCK_SOCKET`, `DISTLOCK_CONFIG` with `DISTLOCK_ID`, or `DISTLOCK_DIR`), through this
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
mod tests;
