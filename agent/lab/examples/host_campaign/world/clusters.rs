//! Which clusters hosts remember: never two that no operator has abandoned.
//!
//! It is read from their disks, after what an agent has synced there: before that it says nothing of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use distlock_protocol::{Affiliation, ClusterId};

use super::Result;

/// Where the lengths of the last fields are that have one, in a file `state`, and where these fields begin:
/// the group's name, the member's address, and the affiliation (`runtime/disk/state_dir/record.rs`).
const LENGTHS_AT: usize = 32;
const FIELDS_AT: usize = 38;
const AFFILIATION: usize = 2;

/// What every host remembers of its cluster, on its disk.
#[derive(Debug)]
pub(super) struct Clusters {
    hosts: Vec<Option<Affiliation>>,
    abandoned: BTreeSet<ClusterId>,
}

impl Clusters {
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            hosts: (0..hosts).map(|_| None).collect(),
            abandoned: BTreeSet::new(),
        }
    }

    /// The host has this on its disk from now on; what it has come to that way, if that is to be counted.
    ///
    /// # Errors
    /// If it is in one cluster, and another host in another.
    pub(super) fn remembers(
        &mut self,
        host: usize,
        now: Option<Affiliation>,
    ) -> Result<Option<&'static str>> {
        let before = std::mem::replace(&mut self.hosts[host], now);
        let now = self.hosts[host].as_ref();
        self.abandoned.extend(now.and_then(|its| its.abandoned()));
        let mut clusters = BTreeSet::new();
        for its in self.hosts.iter().flatten() {
            let cluster = its.cluster_id();
            clusters.extend(cluster.filter(|its| !self.abandoned.contains(its)));
        }
        if clusters.len() > 1 {
            return Err(format!("two clusters: the hosts are in {}", self.all()).into());
        }
        let (Some(before), Some(now)) = (before, now) else {
            return Ok(None);
        };
        let has_left = before.cluster_id().is_some() && before.cluster_id() != now.cluster_id();
        Ok(if now.refusals > before.refusals {
            Some("founding given up")
        } else if has_left && now.cluster_id().is_some() {
            Some("followed into another cluster")
        } else {
            None
        })
    }

    /// The cluster that a host is in.
    pub(super) fn of(&self, host: usize) -> Option<ClusterId> {
        self.hosts[host].as_ref()?.cluster_id()
    }

    /// That one, or the one whose founding it has accepted.
    pub(super) fn remembered(&self, host: usize) -> Option<String> {
        Some(self.hosts[host].as_ref()?.cluster()?.to_string())
    }

    /// Whether it has accepted a founding, of which nobody knows yet what becomes.
    pub(super) fn founds(&self, host: usize) -> bool {
        let its = self.hosts[host].as_ref();
        its.is_some_and(|its| its.cluster().is_some() && its.cluster_id().is_none())
    }

    /// Whether an operator has abandoned a cluster by a file that lists others than `voters`.
    pub(super) fn have_permit_of_another_file(&self, voters: &[usize]) -> bool {
        let hosts = self.hosts.iter().flatten();
        let mut permits = hosts.filter_map(|its| its.permit.as_ref());
        permits.any(|permit| {
            let listed = permit.voters.iter();
            let listed = listed.map(|node| usize::from(node.as_u16()));
            !listed.eq(voters.iter().copied())
        })
    }

    /// Fails if not all are in the same cluster.
    pub(super) fn check_all_in_one(&self) -> Result<()> {
        let clusters: Vec<_> = (0..self.hosts.len()).map(|host| self.of(host)).collect();
        let is_one = clusters[0].is_some() && clusters.iter().all(|its| *its == clusters[0]);
        let is_abandoned = |its: ClusterId| self.abandoned.contains(&its);
        if is_one && !clusters[0].is_some_and(is_abandoned) {
            return Ok(());
        }
        Err(format!("in the end, the hosts are in the clusters {}", self.all()).into())
    }

    fn all(&self) -> String {
        let name = |host| {
            self.of(host)
                .map_or("none".to_owned(), |its| its.to_string())
        };
        let names: Vec<_> = (0..self.hosts.len()).map(name).collect();
        names.join(", ")
    }
}

/// What the file `path` says, if it says something.
///
/// # Errors
/// If it cannot be read.
pub(super) fn on_disk(path: &Path) -> io::Result<Option<Affiliation>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    Ok(affiliation_in(&bytes))
}

fn affiliation_in(state: &[u8]) -> Option<Affiliation> {
    let lengths = state.get(LENGTHS_AT..FIELDS_AT)?;
    let mut fields = state.get(FIELDS_AT..)?;
    for (index, len) in lengths.chunks(2).enumerate() {
        let (field, rest) =
            fields.split_at_checked(u16::from_be_bytes(len.try_into().ok()?).into())?;
        if index == AFFILIATION {
            return Affiliation::from_bytes(field);
        }
        fields = rest;
    }
    None
}
