//! Where locks are kept in a store, and how it is reached: `[store]` of a file, or one word like
//! `etcd://10.0.0.1,10.0.0.2?group=shop`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::LockName;
use distlock_agent::runtime::audit::Auditor;
use distlock_agent::runtime::trust::PathTrustError;
use distlock_agent::runtime::{Endpoint, LedgerOptions, Listener, Watchdog, environment, trust};
use distlock_stores::{Kind, StoreOptions, StoreUrl, Tls};
use zeroize::Zeroizing;

use super::file::{check_lease, read_length};
use super::metrics::MetricsAddress;
use super::node::default_state_base;
use crate::error::OpenError;

/// The lease where nobody says otherwise: each renewal is a write of the store.
pub(super) const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// The group where nobody names one.
const DEFAULT_GROUP: &str = "default";
/// No password, certificate or key is longer.
const MAX_FILE: u64 = 64 * 1024;

/// Locks that are kept in a store: for [`Agent::from_store`](crate::Agent::from_store).
///
/// ```
/// use distlock::config::StoreConfig;
///
/// let config = StoreConfig::at("etcd://10.0.0.1,10.0.0.2?group=shop&lease=5s")?;
/// assert_eq!(config.group(), "shop");
/// assert_eq!(config.lease().as_secs(), 5);
/// // A password would be seen by every user of the host.
/// assert!(StoreConfig::at("etcd://shop:secret@10.0.0.1").is_err());
/// # Ok::<(), distlock::OpenError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    pub(super) at: String,
    pub(crate) url: StoreUrl,
    pub(super) group: String,
    pub(super) lease: Duration,
    pub(super) lock_delay: Duration,
    pub(super) permits: BTreeMap<LockName, NonZeroU32>,
    pub(super) access: Access,
    pub(super) command_lines: bool,
    pub(super) metrics: Option<MetricsAddress>,
    pub(super) audit: Option<PathBuf>,
    pub(super) auditor: Option<Auditor>,
    pub(super) state_base: PathBuf,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) watchdog: Option<Watchdog>,
}

/// How the store is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) cert_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) requires_keeping: bool,
    pub(super) has_no_hints: bool,
}

impl Access {
    /// Whether it goes with that place.
    pub(super) fn check(&self, url: &StoreUrl) -> Result<(), String> {
        if self.cert_file.is_some() != self.key_file.is_some() {
            return Err(
                "a client's certificate and its key go together: name cert_file and key_file"
                    .to_owned(),
            );
        }
        let names_tls = self.ca_file.is_some() || self.cert_file.is_some();
        if names_tls && !url.is_sealed {
            return Err(format!(
                "certificates are named, and the connection is not sealed: write {}s://",
                scheme(url.kind)
            ));
        }
        Ok(())
    }
}

impl StoreConfig {
    /// What is at `text`: `etcd://HOST,HOST:PORT` or `postgresql://USER@HOST/DATABASE`, with an `s` after
    /// the scheme for TLS. After a question mark may follow, separated by `&`: `group=`, `lease=`,
    /// `require=keeps`, `hints=false`, `password_file=`, `ca_file=`, `cert_file=`, `key_file=`.
    ///
    /// # Errors
    /// If it is none of these, or has a password in it, which every user of this host could see.
    pub fn at(text: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(text).map_err(|error| refused(error.to_string()))?;
        let mut parameters = std::mem::take(&mut url.parameters);
        let mut take = |key| parameters.remove(key);
        let group = take("group").unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        check_group(&group).map_err(refused)?;
        let lease = match take("lease") {
            None => DEFAULT_LEASE,
            Some(text) => lease(&text).map_err(refused)?,
        };
        let access = Access {
            user: None,
            password_file: take("password_file").map(PathBuf::from),
            ca_file: take("ca_file").map(PathBuf::from),
            cert_file: take("cert_file").map(PathBuf::from),
            key_file: take("key_file").map(PathBuf::from),
            requires_keeping: match take("require").as_deref() {
                None => false,
                Some(text) => requires_keeping(text).map_err(refused)?,
            },
            has_no_hints: match take("hints").as_deref() {
                None | Some("true") => false,
                Some("false") => true,
                Some(other) => return Err(refused(format!("hints={other}: say true or false"))),
            },
        };
        if let Some(unknown) = parameters.keys().next() {
            return Err(refused(format!(
                "{text:?}: there is no parameter {unknown:?}: there are group, lease, require, \
                 hints, password_file, ca_file, cert_file and key_file"
            )));
        }
        access.check(&url).map_err(refused)?;
        Ok(Self::new(url, group, lease, access))
    }

    pub(super) fn new(url: StoreUrl, group: String, lease: Duration, access: Access) -> Self {
        let hosts: Vec<String> = url.hosts.iter().map(ToString::to_string).collect();
        let sealed = if url.is_sealed { "s" } else { "" };
        let at = format!("{}{sealed}://{}", scheme(url.kind), hosts.join(","));
        Self {
            at,
            url,
            group,
            lease,
            lock_delay: Duration::ZERO,
            permits: BTreeMap::new(),
            access,
            command_lines: false,
            metrics: None,
            audit: None,
            auditor: None,
            state_base: default_state_base(environment::variable, nix::unistd::geteuid().is_root()),
            endpoint: None,
            watchdog: None,
        }
    }

    /// Serves the programs of this host at the Unix stream socket `path`, as
    /// [`NodeConfig::with_socket`](super::NodeConfig::with_socket) does.
    #[must_use]
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.endpoint = Some(Endpoint::Path(path.into()));
        self
    }

    /// Serves the programs of this host at a socket that listens already, as
    /// [`NodeConfig::with_listener`](super::NodeConfig::with_listener) does.
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

    /// Tells `auditor` of each grant and how it ends, and of refusals.
    #[must_use]
    pub fn with_auditor(mut self, auditor: Auditor) -> Self {
        self.auditor = Some(auditor);
        self
    }

    /// Keeps below `base` what commands have open that are run by this agent's clients. Locks are kept in
    /// the store alone.
    #[must_use]
    pub fn with_state_dir(mut self, base: impl Into<PathBuf>) -> Self {
        self.state_base = base.into();
        self
    }

    /// Where the store is, without what follows the question mark.
    pub fn url(&self) -> &str {
        &self.at
    }

    /// The group, whose records are below `distlock/GROUP/`.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// How long an agent may act after it sent a renewal that the store has done.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether a store is refused that may forget what it has acknowledged.
    pub fn requires_keeping(&self) -> bool {
        self.access.requires_keeping
    }

    /// Where the configuration has an audit log written, which is for `distlock agent` to do.
    pub fn audit(&self) -> Option<&Path> {
        self.audit.as_deref()
    }

    /// Where the configuration has metrics served, which is for `distlock agent` to do.
    pub fn metrics(&self) -> Option<&MetricsAddress> {
        self.metrics.as_ref()
    }

    /// Whether the store is told the whole command lines of callers, and not the names of their programs
    /// alone.
    pub fn command_lines(&self) -> bool {
        self.command_lines
    }

    /// What the store's client is made with; secrets are read from their files now.
    pub(crate) fn store_options(&self) -> Result<StoreOptions, OpenError> {
        let Access {
            user,
            password_file,
            ca_file,
            cert_file,
            key_file,
            ..
        } = &self.access;
        let password = match password_file {
            Some(path) => Some(password(path)?),
            None => None,
        };
        let read = |path: &Option<PathBuf>, is_secret| {
            path.as_deref()
                .map(|path| read(path, is_secret))
                .transpose()
        };
        let tls = if self.url.is_sealed {
            let (ca, certificate) = (read(ca_file, false)?, read(cert_file, false)?);
            let key = read(key_file, true)?;
            let identity = certificate.as_deref().zip(key.as_deref());
            let identity = identity.map(|(certificate, key)| (&certificate[..], &key[..]));
            let tls = Tls::new(ca.as_deref().map(|ca| &ca[..]), identity);
            let keys = |error: distlock_stores::TlsError| OpenError::Keys {
                reason: error.to_string(),
            };
            Some(tls.map_err(keys)?)
        } else {
            None
        };
        let seed = getrandom::u64().map_err(|error| {
            OpenError::io(
                "cannot draw random numbers",
                error.into(),
                "run it elsewhere",
            )
        })?;
        Ok(StoreOptions {
            hosts: self.url.hosts.clone(),
            tls,
            user: user.clone().or_else(|| self.url.user.clone()),
            password,
            database: self.url.database.clone(),
            group: self.group.clone(),
            lease: self.lease,
            has_hints: !self.access.has_no_hints,
            seed,
        })
    }

    /// The agent's own directory below that for states: groups of one name may be in several stores.
    fn directory(&self) -> String {
        let at = blake3::hash(self.at.as_bytes()).to_hex();
        format!("{}-store-{}", self.group, &at[..8])
    }

    /// What an agent is started with.
    pub(crate) fn options(&self) -> Result<LedgerOptions, OpenError> {
        let store = distlock_stores::open(self.url.kind, self.store_options()?);
        let store = store.map_err(refused)?;
        Ok(LedgerOptions {
            store,
            at: self.at.clone(),
            group: self.group.clone(),
            lease: self.lease,
            lock_delay: self.lock_delay,
            permits: self.permits.clone(),
            requires_keeping: self.access.requires_keeping,
            socket: self.endpoint.clone(),
            state_dir: self.state_base.join(self.directory()),
            watchdog: self.watchdog.clone(),
            auditor: self.auditor.clone(),
            command_lines: self.command_lines,
        })
    }
}

const fn scheme(kind: Kind) -> &'static str {
    match kind {
        Kind::Etcd => "etcd",
        Kind::Postgresql => "postgresql",
    }
}

/// What `require` says.
pub(super) fn requires_keeping(text: &str) -> Result<bool, String> {
    match text {
        "keeps" => Ok(true),
        other => Err(format!(
            "require = {other:?}: say \"keeps\", for a store that keeps what it acknowledges, or \
             leave it out"
        )),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = read_length(text)
        .ok_or_else(|| format!("lease={text}: write a number and its unit, as in lease=5s"))?;
    check_lease(lease).map(|()| lease)
}

/// Keys of registers are ASCII, without spaces.
pub(super) fn check_group(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err(format!(
            "the group {name:?} cannot be part of a register's name: give it 1 to 64 letters, \
             digits, '-', '_' or '.'"
        ));
    }
    Ok(())
}

fn refused(reason: impl Into<String>) -> OpenError {
    OpenError::Options {
        reason: reason.into(),
    }
}

/// The password in a file: its first line.
fn password(path: &Path) -> Result<Zeroizing<String>, OpenError> {
    let bytes = read(path, true)?;
    let keys = |why: &str| OpenError::Keys {
        reason: format!("the password in {}: {why}", path.display()),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| keys("it is not UTF-8"))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(keys("its first line is empty: write the password there"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// What is in a file. A secret must be this user's, or root's, and nobody else's to read.
fn read(path: &Path, is_secret: bool) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let failed = |source| {
        let what = format!("{} cannot be read", path.display());
        OpenError::io(what, source, "name a file that this user may read")
    };
    let refused = |why: String| OpenError::Unsafe {
        reason: format!("{} is refused: {why}", path.display()),
    };
    match trust::way(path) {
        // The system says so below.
        Ok(_) | Err(PathTrustError::Io { .. }) => {}
        Err(why) => return Err(refused(format!("{why}; {}", why.advice()))),
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed)?;
    // Of the very file that is read, whatever the path leads to next.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused("it is no regular file".to_owned()));
    }
    if is_secret {
        trust::owned(path, &metadata).map_err(|why| refused(why.to_string()))?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(refused(format!(
                "it has mode {mode:04o}, so that others can read or change the secret in it: chmod \
                 600 it, and replace the secret if they might have"
            )));
        }
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let read = file.take(MAX_FILE).read_to_end(&mut bytes);
    read.map_err(failed)?;
    Ok(bytes)
}
