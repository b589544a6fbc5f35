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

mod error;
mod fault;
mod file;
mod locks;
mod members;
mod syntax;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use distlock_agent::protocol::{ClusterId, NodeId};
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
pub use distlock_agent::runtime::{AddressError, ListenerError, Watchdog};
use distlock_agent::runtime::{Endpoint, trust};

pub use self::error::ConfigError;
use self::file::Contents;

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
            state_base: default_state_base(environment::variable, nix::unistd::geteuid().is_root()),
            endpoint: None,
            watchdog: None,
            trace: environment::variable("DISTLOCK_TRACE").map(PathBuf::from),
        })
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

/// One member's part of a [`Config`]: for [`Agent::from_config`](crate::Agent::from_config) and
/// [`Driven::from_config`](crate::Driven::from_config).
///
/// ```
/// use std::os::unix::net::UnixListener;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// use distlock::config::{Listener, Watchdog};
/// use distlock::{Agent, Config, DistMutex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
/// # let text = format!(
/// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
/// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
/// #     directory.path().display()
/// # );
/// let node = Config::parse(&text)?.node(1)?.with_state_dir(directory.path().join("state"));
/// // Programs of this host connect here; by with_socket(path) the agent makes the socket itself.
/// let path = directory.path().join("socket");
/// let listener = Listener::new(UnixListener::bind(&path)?.into())?;
/// let (beats, heard) = mpsc::channel();
/// let watchdog = Watchdog::new(Duration::from_millis(10), move || drop(beats.send(())));
/// let agent = Agent::from_config(node.with_listener(listener).with_watchdog(watchdog))?;
/// heard.recv()?; // the agent's thread is well
/// let client = Agent::connect(&path)?;
/// client.mutex("printer")?.lock()?.unlock()?;
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    me: NodeId,
    members: BTreeMap<NodeId, Address>,
    voters: BTreeSet<NodeId>,
    voters_are_listed: bool,
    cluster: Option<ClusterId>,
    settings: Settings,
    multicast: Option<MulticastAddress>,
    key_file: Option<PathBuf>,
    command_lines: bool,
    state_base: PathBuf,
    endpoint: Option<Endpoint>,
    watchdog: Option<Watchdog>,
    trace: Option<PathBuf>,
}

impl NodeConfig {
    /// Keeps what must outlive the process below `base`, in a directory for this group and member
    /// (so members of several groups may share `base`). It should be on a disk and not in memory.
    ///
    /// Where this is not called it is `$DISTLOCK_STATE_DIR`, else `$STATE_DIRECTORY` (systemd's),
    /// else `/var/lib/distlock` for root, and for others `$XDG_STATE_HOME/distlock` or
    /// `~/.local/state/distlock`.
    #[must_use]
    pub fn with_state_dir(mut self, base: impl Into<PathBuf>) -> Self {
        self.state_base = base.into();
        self
    }

    /// Serves the programs of this host at the Unix stream socket `path`: they take part in the
    /// group by [`Agent::connect`](crate::Agent::connect), or, if it is
    /// [`HOST_SOCKET`](crate::discovery::HOST_SOCKET), by [`Agent::open`](crate::Agent::open). That
    /// one stays when the agent ends, so that programs do not take the local group instead; others
    /// are removed.
    #[must_use]
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.endpoint = Some(Endpoint::Path(path.into()));
        self
    }

    /// Serves the programs of this host at a socket that listens already, such as a service manager
    /// passes to the programs that it starts. It stays as it is when the agent ends: who made it
    /// removes it.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.endpoint = Some(Endpoint::Given(listener));
        self
    }

    /// Has the agent thread do something again and again while it is well, for a watchdog.
    #[must_use]
    pub fn with_watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// Has what happens to this member written down in the directory `dir`, for `distlock trace`:
    /// requests, entries and exits, the algorithms' messages, views. In two files of at most 32 MiB
    /// each, named after the group and the member; what does not fit any more is the oldest. If they
    /// cannot be written the agent says so, and goes on without.
    ///
    /// It takes the feature `trace`: in a program that is built without it, the agent warns that there
    /// is no trace.
    ///
    /// Where this is not called it is `$DISTLOCK_TRACE`, and if that is not set nothing is written.
    #[must_use]
    pub fn with_trace(mut self, dir: impl Into<PathBuf>) -> Self {
        self.trace = Some(dir.into());
        self
    }

    /// Where what happens is written down, if it is.
    pub(crate) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Where the programs of this host are served, if they are.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// What the agent thread does while it is well.
    pub(crate) fn watchdog(&self) -> Option<&Watchdog> {
        self.watchdog.as_ref()
    }

    /// This member.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// All members, this one among them, with their addresses.
    pub fn members(&self) -> &BTreeMap<NodeId, Address> {
        &self.members
    }

    /// The members that vote when the group is founded. Later the group itself says who votes.
    pub fn voters(&self) -> &BTreeSet<NodeId> {
        &self.voters
    }

    /// Whether the configuration lists them, or has them by default.
    pub fn voters_are_listed(&self) -> bool {
        self.voters_are_listed
    }

    /// The only cluster that this member may be in, if the configuration names one.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Where what goes to several members alike is sent by multicast, if it is.
    pub fn multicast(&self) -> Option<MulticastAddress> {
        self.multicast
    }

    /// The file with the group's keys, if datagrams are sealed.
    pub fn key_file(&self) -> Option<&Path> {
        self.key_file.as_deref()
    }

    /// Whether the group is told the whole command lines of callers on this host, and not the names
    /// of their programs alone.
    pub fn command_lines(&self) -> bool {
        self.command_lines
    }

    /// What all members must have alike.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// This member's own directory for what must outlive the process.
    pub fn state_dir(&self) -> PathBuf {
        let group = &self.settings.group;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let group = if group.len() <= 64 && group.chars().all(is_plain) {
            group.clone()
        } else {
            blake3::hash(group.as_bytes()).to_hex().to_string()
        };
        self.state_base.join(format!("{group}-{}", self.me))
    }
}

/// So that [`Agent::from_config`](crate::Agent) takes what [`Config::node`] returns as it is.
impl TryFrom<Result<Self, ConfigError>> for NodeConfig {
    type Error = ConfigError;

    fn try_from(node: Result<Self, ConfigError>) -> Result<Self, ConfigError> {
        node
    }
}

/// Where states are kept if nobody says otherwise.
fn default_state_base(env: impl Fn(&str) -> Option<OsString>, is_root: bool) -> PathBuf {
    let var = |name| env(name).filter(|value| !value.is_empty());
    if let Some(base) = var("DISTLOCK_STATE_DIR") {
        return base.into();
    }
    if let Some(bases) = var("STATE_DIRECTORY") {
        // systemd separates several by colons.
        if let Some(first) = std::env::split_paths(&bases).next() {
            return first;
        }
    }
    if is_root {
        return "/var/lib/distlock".into();
    }
    let home = || var("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    match var("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)
    {
        Some(base) => base.join("distlock"),
        None => "/var/lib/distlock".into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_where_the_first_that_speaks_says() {
        let base = |vars: &[(&str, &str)], is_root| {
            let vars: BTreeMap<_, _> = vars.iter().copied().collect();
            default_state_base(|name| vars.get(name).map(OsString::from), is_root)
        };
        let home = ("HOME", "/home/a");
        let all = [
            ("DISTLOCK_STATE_DIR", "/1"),
            ("STATE_DIRECTORY", "/2:/3"),
            ("XDG_STATE_HOME", "/4"),
            home,
        ];
        assert_eq!(base(&all, true), Path::new("/1"));
        assert_eq!(base(&all[1..], true), Path::new("/2"));
        assert_eq!(base(&all[2..], true), Path::new("/var/lib/distlock"));
        assert_eq!(base(&all[2..], false), Path::new("/4/distlock"));
        assert_eq!(base(&[("XDG_STATE_HOME", "4"), home], false), home_state());
        assert_eq!(
            base(&[("DISTLOCK_STATE_DIR", ""), home], false),
            home_state()
        );
        assert_eq!(base(&[], false), Path::new("/var/lib/distlock"));
    }

    fn home_state() -> &'static Path {
        Path::new("/home/a/.local/state/distlock")
    }
}
