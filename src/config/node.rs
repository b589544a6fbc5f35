//! One member's part of a configuration, and what its host and its program add to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use distlock_agent::protocol::{ClusterId, NodeId, Settings};
use distlock_agent::runtime::audit::Auditor;
use distlock_agent::runtime::{Address, Endpoint, Listener, MulticastAddress, Watchdog};

use super::error::ConfigError;
use super::metrics::MetricsAddress;

/// One member's part of a [`Config`](super::Config): for [`Agent::from_config`](crate::Agent::from_config) and
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
    pub(super) me: NodeId,
    pub(super) members: BTreeMap<NodeId, Address>,
    pub(super) voters: BTreeSet<NodeId>,
    pub(super) voters_are_listed: bool,
    pub(super) cluster: Option<ClusterId>,
    pub(super) settings: Settings,
    pub(super) multicast: Option<MulticastAddress>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) command_lines: bool,
    pub(super) metrics: Option<MetricsAddress>,
    pub(super) audit: Option<PathBuf>,
    pub(super) auditor: Option<Auditor>,
    pub(super) state_base: PathBuf,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) watchdog: Option<Watchdog>,
    pub(super) trace: Option<PathBuf>,
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

    /// Where the configuration has the member's metrics served, which is for `distlock agent` to do.
    pub fn metrics(&self) -> Option<&MetricsAddress> {
        self.metrics.as_ref()
    }

    /// Tells `auditor` of each grant and how it ends, of refusals, views, and changes of members. Then no lock
    /// is lent to callers: each entry is a request to the agent.
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    ///
    /// use distlock::audit::{AuditEvent, Auditor};
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
    /// let (records, heard) = mpsc::channel();
    /// let auditor = Auditor::new(move |record| drop(records.send(record)), Arc::default());
    /// let agent = Agent::from_config(node.with_auditor(auditor))?;
    /// agent.mutex("printer")?.lock()?.unlock()?;
    /// let is_of_lock = |event: &AuditEvent| matches!(event, AuditEvent::Granted { .. });
    /// assert!(heard.try_iter().any(|record| is_of_lock(&record.event)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_auditor(mut self, auditor: Auditor) -> Self {
        self.auditor = Some(auditor);
        self
    }

    /// Where the configuration has an audit log written, which is for `distlock agent` to do.
    pub fn audit(&self) -> Option<&Path> {
        self.audit.as_deref()
    }

    /// What is told each grant and how it ended, if there is an audit.
    pub(crate) fn auditor(&self) -> Option<&Auditor> {
        self.auditor.as_ref()
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

/// So that [`Agent::from_config`](crate::Agent) takes what [`Config::node`](super::Config::node) returns as it is.
impl TryFrom<Result<Self, ConfigError>> for NodeConfig {
    type Error = ConfigError;

    fn try_from(node: Result<Self, ConfigError>) -> Result<Self, ConfigError> {
        node
    }
}

/// Where states are kept if nobody says otherwise.
pub(super) fn default_state_base(env: impl Fn(&str) -> Option<OsString>, is_root: bool) -> PathBuf {
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
