//! This process as a member of a configured group, with an agent thread of its own, or without
//! ([`crate::driven`]).

use std::io;

use distlock_agent::protocol::{ClusterId, NodeId};
use distlock_agent::runtime::{self, BindError, KeyFileError, Options, StartError, StateError};

use crate::config::NodeConfig;
use crate::error::OpenError;
use crate::group::Connection;
use crate::{Agent, discovery};

impl Agent {
    /// Joins a configured group as one of its members. An agent thread starts in this process;
    /// locking waits until a majority of the group's voters is there, and the first time of all for
    /// every voter.
    ///
    /// It takes a [`NodeConfig`], or what [`Config::node`](crate::Config::node) returns as it is:
    ///
    /// ```
    /// use distlock::{Agent, Config, DistMutex};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
    /// # let text = format!(
    /// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
    /// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
    /// #     directory.path().display()
    /// # );
    /// # let path = directory.path().join("distlock.toml");
    /// # std::fs::write(&path, text)?;
    /// # /*
    /// let agent = Agent::from_config(Config::load("distlock.toml")?.node(1))?;
    /// # */
    /// # let state = directory.path().join("state");
    /// # let agent = Agent::from_config(Config::load(path)?.node(1)?.with_state_dir(state))?;
    /// let guard = agent.mutex("printer")?.lock()?; // waits for the group to form
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the configuration is refused, if this member runs already (in another process, or its
    /// address is taken), if its state is damaged, or if the system refuses something.
    pub fn from_config<C>(config: C) -> Result<Self, OpenError>
    where
        C: TryInto<NodeConfig>,
        OpenError: From<C::Error>,
    {
        let config = config.try_into()?;
        let mut options = options(&config);
        options.socket = options.socket.map(discovery::host_endpoint).transpose()?;
        let agent = runtime::Agent::start(options);
        self::agent(agent.map_err(|error| open(error, config.me()))?)
    }
}

/// The front of a member.
pub(crate) fn agent(member: runtime::Agent) -> Result<Agent, OpenError> {
    Connection::Member(member).into_agent()
}

/// What a member is started with.
pub(crate) fn options(config: &NodeConfig) -> Options {
    Options {
        me: config.me(),
        members: config.members().clone(),
        voters: config.voters().clone(),
        voters_are_listed: config.voters_are_listed(),
        cluster: config.cluster(),
        settings: config.settings().clone(),
        state_dir: config.state_dir(),
        socket: config.endpoint().cloned(),
        watchdog: config.watchdog().cloned(),
        trace: config.trace().map(Into::into),
        auditor: config.auditor().cloned(),
        multicast: config.multicast(),
        key_file: config.key_file().map(Into::into),
        command_lines: config.command_lines(),
        faults: None,
    }
}

impl NodeConfig {
    /// After the states of a majority of the voters were lost, for good: leaves an operator's word
    /// that this member's cluster is abandoned, or `abandoned` where the member's state is lost,
    /// too. The member must not run. To be done at every voter of the file, by the same file; then these
    /// found the group anew, with higher fences, and let nobody in before all leases are over that any of
    /// them remembers. Members that were added to the files' are to be added again.
    ///
    /// Nobody checks that a majority is lost: where one still runs, on the other side of a cut,
    /// there would be two groups.
    ///
    /// # Errors
    /// If this member runs, its state cannot be read or written, or nothing names the cluster.
    pub fn recover(&self, abandoned: Option<ClusterId>) -> Result<(), OpenError> {
        let address = &self.members()[&self.me()];
        let whom = (self.settings().group.as_str(), self.me(), address);
        let done = runtime::recover(&self.state_dir(), whom, abandoned, self.voters());
        done.map_err(|error| state(error, self.me()))
    }
}

/// Why a member does not start.
pub(crate) fn open(error: StartError, id: NodeId) -> OpenError {
    match error {
        StartError::Service => OpenError::NoService,
        StartError::State(error) => state(error, id),
        StartError::Bind(error) => bind(error),
        StartError::Keys(error) => keys(error),
        StartError::System { doing, source } => {
            OpenError::io(format!("cannot {doing}"), source, "run it with more rights")
        }
        error => OpenError::Io {
            what: "the agent does not start".to_owned(),
            source: io::Error::other(error),
        },
    }
}

/// Why an agent does not start whose locks a store has.
#[cfg(feature = "store")]
pub(crate) fn open_store(error: StartError) -> OpenError {
    if let StartError::State(StateError::InUse { path, .. }) = error {
        return OpenError::AgentRunning { state: path };
    }
    open(error, NodeId::new(1).expect("one is an id"))
}

fn state(error: StateError, id: NodeId) -> OpenError {
    match error {
        StateError::InUse { path, .. } => OpenError::AlreadyRunning { id, state: path },
        StateError::Damaged { path, why } => OpenError::Damaged {
            path,
            reason: format!(
                "it is damaged ({why}); remove it once every lock taken through this member has been \
                 free for a lease, and the member begins as a new one; never put back an old copy, \
                 and of several voters' files remove one at a time"
            ),
        },
        StateError::Foreign { path, group, node } => OpenError::Damaged {
            path,
            reason: format!(
                "it belongs to member {node} of group \"{group}\"; give each member a state \
                 directory of its own"
            ),
        },
        StateError::Version { path, version } => OpenError::Damaged {
            path,
            reason: format!("it {}", StateError::of_version(version)),
        },
        StateError::OtherMachine { path } => OpenError::Damaged {
            path,
            reason: "it was written on another machine (/etc/machine-id differs), and a copied \
                     state could vote twice; move it away, and the member joins as one that has \
                     lost its state"
                .to_owned(),
        },
        StateError::Renamed { path, before, now } => OpenError::Damaged {
            path,
            reason: format!(
                "this member was in group \"{before}\", its configuration now says \"{now}\", and \
                 others may go on under the old name; put the name back, or, when the group is \
                 renamed on every host and all its agents are stopped, remove that directory"
            ),
        },
        StateError::HasQuorum { path, cluster } => OpenError::Damaged {
            path,
            reason: format!(
                "a majority decides in its cluster {cluster}, and the configuration now says \
                 failure = \"presume-failed\", under which two could hold a lock at once; put \
                 \"quorum\" back, or, when it is changed on every host and all agents are stopped, \
                 remove that directory"
            ),
        },
        StateError::Unnamed { path } => OpenError::Damaged {
            path,
            reason: "this member remembers no cluster; name the one that is abandoned with \
                     --cluster, as `distlock status` shows it on a member that remembers it; where \
                     none remembers one, there is nothing to recover: start the agents"
                .to_owned(),
        },
        StateError::Unsafe { why } => OpenError::Unsafe {
            reason: format!(
                "the state directory is refused: {why}; {}, with --state-dir or DISTLOCK_STATE_DIR",
                why.advice()
            ),
        },
        StateError::Io {
            doing,
            path,
            source,
        } => OpenError::io(
            format!("cannot {doing} {}", path.display()),
            source,
            "run as the user who owns it, or choose another with --state-dir or \
             DISTLOCK_STATE_DIR",
        ),
        error => OpenError::Io {
            what: "the state directory cannot be used".to_owned(),
            source: io::Error::other(error),
        },
    }
}

fn keys(error: KeyFileError) -> OpenError {
    match error {
        KeyFileError::Io { path, source } => OpenError::io(
            format!("cannot read the key file {}", path.display()),
            source,
            "run as the user who owns it, give it to the user that runs the agent, or have systemd \
             hand it to the service (LoadCredential=)",
        ),
        error => OpenError::Keys {
            reason: error.to_string(),
        },
    }
}

fn bind(error: BindError) -> OpenError {
    match error {
        BindError::InUse { address, pid } => {
            let who = pid.map_or_else(
                || "another process has it".to_owned(),
                |pid| format!("process {pid} has it"),
            );
            let source = io::Error::new(io::ErrorKind::AddrInUse, who);
            OpenError::AddressInUse { address, source }
        }
        BindError::SocketInUse { path, pid } => OpenError::SocketInUse {
            socket: path.into(),
            pid,
        },
        BindError::Permission {
            address,
            source,
            advice,
        } => OpenError::Permission {
            what: format!("cannot open {address}"),
            source,
            hint: advice.to_owned(),
        },
        BindError::Io { address, source } => {
            OpenError::io(format!("cannot open {address}"), source, "choose another")
        }
        BindError::NoDirectory { address } => OpenError::Io {
            what: format!("cannot open {address}, whose directory does not exist"),
            source: io::Error::from_raw_os_error(libc::ENOENT),
        },
        BindError::NotASocket { address } => OpenError::Damaged {
            path: address.into(),
            reason: "it is a file, and no socket; remove it, or choose another path".to_owned(),
        },
        BindError::NotOurs { address, uid } => OpenError::Permission {
            what: format!("cannot open {address}"),
            source: io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("a process of user {uid} has left it there"),
            ),
            hint: "let that user remove it, or choose another path".to_owned(),
        },
        // Members that cannot reach each other, and addresses that this host does not have.
        error => OpenError::Address {
            reason: error.to_string(),
        },
    }
}
