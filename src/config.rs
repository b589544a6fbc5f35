//! The configuration of a group: one file, the same on every host.
//!
//! ```toml
//! lease = "5s"                        # the default
//! lock_delay = "0s"                   # the default
//! algorithm = "manager"               # the default, for locks that are not listed
//! election = "bully"                  # the default; or "ring", "chang-roberts"
//! key_file = "group.key"              # what distlock keygen wrote: datagrams are sealed
//! multicast = "udp:239.255.77.1:7400" # one datagram for many; by default each has its own
//!
//! [group]
//! name = "shop"
//!
//! [[member]]
//! id = 1                              # 1 to 65535
//! address = "udp:127.0.0.1:7401"      # or "unix:/run/distlock/1.sock"
//!
//! [[member]]
//! id = 2
//! address = "udp:127.0.0.1:7402"
//!
//! [[lock]]
//! name = "printer"
//! algorithm = "token-ring"
//!
//! [[lock]]
//! name = "licences"
//! permits = 4                         # a counting semaphore
//! ```

mod audit;
mod error;
mod fault;
mod file;
mod locks;
mod members;
mod metrics;
mod node;
#[cfg(feature = "store")]
mod store;
mod store_table;
mod syntax;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use distlock_agent::protocol::NodeId;
pub use distlock_agent::protocol::{Failure, LockSpec, Priority, Settings};
/// ```
/// use distlock::config::{Address, AddressError};
///
/// let address: Address = "udp:127.0.0.1:7400".parse()?;
/// assert!(address.is_loopback());
/// assert_eq!("10.0.0.1:7400".parse::<Address>(), Err(AddressError::UnknownKind));
/// # Ok::<(), AddressError>(())
/// ```
pub use distlock_agent::runtime::Address;
/// ```
/// use std::os::unix::net::UnixListener;
///
/// use distlock::config::{Listener, ListenerError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("socket");
/// let listener = Listener::new(UnixListener::bind(&path)?.into())?;
/// assert_eq!(listener.path(), Some(path.clone()));
/// let no_socket = std::fs::File::open(directory.path())?;
/// assert!(matches!(Listener::new(no_socket.into()), Err(ListenerError::NotASocket)));
/// # Ok(())
/// # }
/// ```
pub use distlock_agent::runtime::Listener;
/// ```
/// use distlock::config::{AddressError, MulticastAddress};
///
/// let address: MulticastAddress = "udp:239.255.77.1:7400".parse()?;
/// assert_eq!(address.socket_addr().port(), 7400);
/// # Ok::<(), AddressError>(())
/// ```
pub use distlock_agent::runtime::MulticastAddress;
use distlock_agent::runtime::environment;
use distlock_agent::runtime::trust;
pub use distlock_agent::runtime::{AddressError, ListenerError, Watchdog};

pub use self::error::ConfigError;
use self::file::Contents;
pub use self::metrics::MetricsAddress;
pub use self::node::NodeConfig;
use self::node::default_state_base;
#[cfg(feature = "store")]
pub use self::store::StoreConfig;

/// A configured group, read and checked.
///
/// ```
/// use distlock::config::{Address, Failure};
/// use distlock::{Config, ConfigError};
///
/// let config: Config = r#"
///     lease = "2s"
///     [group]
///     name = "shop"
///     [[member]]
///     id = 1
///     address = "udp:127.0.0.1:7401"
///     [[member]]
///     id = 2
///     address = "udp:127.0.0.1:7402"
/// "#
/// .parse()?;
/// assert_eq!(config.settings().lease.as_secs(), 2);
/// assert_eq!(config.settings().failure, Failure::Quorum);
/// let node = config.node(2)?;
/// let own: Address = "udp:127.0.0.1:7402".parse().expect("an address");
/// assert_eq!(node.members()[&node.me()], own);
/// let ConfigError::NoSuchMember { members, .. } = config.node(3).unwrap_err() else {
///     panic!("there is no member 3");
/// };
/// assert_eq!(members.len(), 2);
/// # Ok::<(), ConfigError>(())
/// ```
///
/// `failure` says what a silent member means, and so where views come from. By default (`"quorum"`) a
/// majority of `voters` decides who belongs to the group, and a member that is cut off from it stops
/// when its lease expires. Under `"presume-failed"` whoever does not answer is gone, and the rest
/// go on: without voters, without fences, and with two holders at once where one only stood still
/// or was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it came from, for errors.
    source: String,
    contents: Contents,
}

impl Config {
    /// Reads and checks the file `path`. A warning in the log tells if other users can change it.
    ///
    /// # Errors
    /// If the file cannot be read, or says what it may not.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let bytes = read(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::check(&bytes, path.display().to_string(), base)
    }

    /// Checks a configuration's text. Paths in it that are not absolute begin at the working
    /// directory.
    ///
    /// # Errors
    /// If it says what it may not.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::check(text.as_bytes(), "configuration".to_owned(), Path::new(""))
    }

    fn check(bytes: &[u8], source: String, base: &Path) -> Result<Self, ConfigError> {
        let contents = file::check(bytes, &source, base)?;
        Ok(Self { source, contents })
    }

    /// What member `id` needs to take part. The state directory is the default one:
    /// [`NodeConfig::with_state_dir`] chooses another.
    ///
    /// # Errors
    /// If the configuration has no member `id`.
    pub fn node(&self, id: u16) -> Result<NodeConfig, ConfigError> {
        #[cfg(feature = "store")]
        if self.contents.store.is_some() {
            let source_name = self.source.clone();
            return Err(ConfigError::NoMembers { source_name });
        }
        let me = NodeId::new(id)
            .filter(|id| self.contents.members.contains_key(id))
            .ok_or_else(|| ConfigError::NoSuchMember {
                source_name: self.source.clone(),
                id,
                members: self.contents.members.keys().copied().collect(),
            })?;
        Ok(NodeConfig {
            me,
            members: self.contents.members.clone(),
            voters: self.contents.voters.iter().copied().collect(),
            voters_are_listed: self.contents.voters_are_listed,
            cluster: self.contents.cluster,
            settings: self.contents.settings.clone(),
            multicast: self.contents.multicast,
            key_file: self.contents.key_file.clone(),
            command_lines: self.contents.command_lines,
            metrics: self.contents.metrics.clone(),
            audit: self.contents.audit.clone(),
            auditor: None,
            state_base: default_state_base(environment::variable, nix::unistd::geteuid().is_root()),
            endpoint: None,
            watchdog: None,
            trace: environment::variable("DISTLOCK_TRACE").map(PathBuf::from),
        })
    }

    /// The store that has the locks, if one has: for [`Agent::from_store`](crate::Agent::from_store).
    #[cfg(feature = "store")]
    pub fn store(&self) -> Option<StoreConfig> {
        let contents = &self.contents;
        let (url, access) = contents.store.clone()?;
        let settings = &contents.settings;
        let locks = settings.locks.iter();
        let group = settings.group.clone();
        Some(StoreConfig {
            lock_delay: settings.lock_delay,
            permits: locks.map(|(name, it)| (name.clone(), it.permits)).collect(),
            command_lines: contents.command_lines,
            metrics: contents.metrics.clone(),
            audit: contents.audit.clone(),
            ..StoreConfig::new(url, group, settings.lease, access)
        })
    }

    /// Whether a store has the locks.
    pub(crate) fn has_store(&self) -> bool {
        #[cfg(feature = "store")]
        return self.contents.store.is_some();
        #[cfg(not(feature = "store"))]
        false
    }

    /// What all members must have alike.
    pub fn settings(&self) -> &Settings {
        &self.contents.settings
    }

    /// All members, with their addresses.
    pub fn members(&self) -> &BTreeMap<NodeId, Address> {
        &self.contents.members
    }

    /// The members that vote when the group is founded: those of `voters`, or else the seven lowest
    /// ids. Later the group itself says who votes.
    pub fn voters(&self) -> &[NodeId] {
        &self.contents.voters
    }

    /// Where what goes to several members alike is sent by multicast, if it is.
    pub fn multicast(&self) -> Option<MulticastAddress> {
        self.contents.multicast
    }

    /// Where `distlock agent` writes its audit log, if it does.
    pub fn audit(&self) -> Option<&Path> {
        self.contents.audit.as_deref()
    }

    /// Where `distlock agent` serves its metrics, if it does.
    pub fn metrics(&self) -> Option<&MetricsAddress> {
        self.contents.metrics.as_ref()
    }

    /// The file with the group's keys, if datagrams are sealed.
    pub fn key_file(&self) -> Option<&Path> {
        self.contents.key_file.as_deref()
    }
}

/// As [`Config::parse`] does.
impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

/// No configuration is larger, of as many members and locks as there may be.
const MAX_LEN: u64 = 16 << 20;

/// A pipe that nobody writes to, or a device without an end, would be read for ever.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return refused("it is a pipe, a device or a socket, and no regular file");
    }
    trust::tell_of_writers(path, &metadata);
    let mut bytes = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LEN {
        return refused("it is larger than 16 MiB");
    }
    Ok(bytes)
}
