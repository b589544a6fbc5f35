//! The status of the local group: what the kernel says is locked, with what the records say of it.

use std::io;
use std::path::Path;

use distlock_agent::runtime::status::{
    HolderStatus, LockStatus, QuorumStatus, Status, WaiterStatus,
};
use distlock_agent::runtime::{as_told, clock};

use super::directory::Directory;
use super::file::LockFile;
use super::record::Record;
use crate::Algorithm;
use crate::error::StatusError;

/// Reads the status of the group in `directory`. Files that nobody uses are removed on the way.
pub(crate) fn read(directory: &Directory) -> Result<Status, StatusError> {
    let failed = |what: &Path, source| StatusError::Io {
        what: format!("{} cannot be read", what.display()),
        source,
    };
    let host = nix::unistd::gethostname()
        .map_err(|errno| StatusError::Io {
            what: "the host's name".into(),
            source: errno.into(),
        })?
        .to_string_lossy()
        .into_owned();
    let mut locks = Vec::new();
    for name in directory
        .list()
        .map_err(|error| failed(directory.path(), error))?
    {
        if !LockFile::is_file_name(&name) {
            continue;
        }
        let lock = read_lock(directory, &name, &host);
        locks.extend(lock.map_err(|error| failed(&directory.path().join(&name), error))?);
    }
    locks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Status {
        group: "local".to_owned(),
        member: 0,
        // The kernel is the arbiter.
        quorum: QuorumStatus {
            ok: true,
            founded: true,
            ..QuorumStatus::default()
        },
        failure: String::new(),
        epoch: 0,
        members: Vec::new(),
        locks,
        multicast: None,
        protection: None,
        clients: None,
        store: None,
    })
}

/// One lock; `None` if nobody holds it or waits.
fn read_lock(directory: &Directory, name: &str, host: &str) -> io::Result<Option<LockStatus>> {
    let Some(file) = LockFile::open_existing(directory, name)? else {
        return Ok(None);
    };
    let held = file.held()?;
    let left = file.left_commands(directory, &held)?;
    let waiters = file.waiters()?;
    if held.is_empty() && left.is_empty() && waiters.is_empty() {
        file.retire(directory, false)?;
        return Ok(None);
    }
    let mut holders = Vec::new();
    for permit in held {
        if let Some(record) = file.record(permit)? {
            holders.push(holder(&record, host));
        }
    }
    holders.extend(left.iter().map(|record| holder(record, host)));
    let waiters = waiters.into_iter().map(|waiter| WaiterStatus {
        member: 0,
        host: host.to_owned(),
        pid: waiter.pid,
        since: clock::rfc3339(waiter.since()),
    });
    Ok(Some(LockStatus {
        name: file.name().to_string(),
        algorithm: Algorithm::Kernel.to_string(),
        quarantined: false,
        holders,
        waiters: waiters.collect(),
    }))
}

fn holder(record: &Record, host: &str) -> HolderStatus {
    let worker = record.process.map_or(record.pid, |process| process.pid);
    let line = match record.command.is_empty() {
        true => command_line(worker).unwrap_or_default(),
        false => record.command.clone(),
    };
    let command = as_told(&line, false).into_owned();
    HolderStatus {
        member: 0,
        host: host.to_owned(),
        pid: record.pid,
        command,
        command_pid: record.process.map(|process| process.pid),
        since: clock::rfc3339(record.since),
        fence: Some(record.fence),
    }
}

/// The command line of a running process, each word ended by a NUL.
fn command_line(pid: u32) -> io::Result<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline"))?;
    Ok(String::from_utf8_lossy(&words).into_owned())
}
