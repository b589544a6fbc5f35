//! An operator's work where a majority of the voters has lost its states, as distlock(1) says it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};

use super::acts::Act;
use super::{FOUNDED, LEASE_MS, MILLI, Result, SECOND, World};

/// A cluster that is being abandoned. The operator knows that a majority cannot come back: the disks are
/// gone.
#[derive(Debug)]
pub(super) struct Recovery {
    abandoned: String,
    /// The hosts of voters at which it is still to be said.
    left: BTreeSet<usize>,
    /// The commands that say it, and where.
    said: BTreeMap<u32, usize>,
}

impl World<'_> {
    /// So many voters get other disks, at one moment, that none of the rest is a majority. That is found
    /// out some time later; at once where a member that does not vote is cut off inside.
    pub(super) fn lose_states(&mut self) -> Result<()> {
        // They matter again, if all are lost or the cluster is abandoned, and somebody has looked at them.
        self.keeps_voters = true;
        let mut most = 5 * LEASE_MS * MILLI;
        let votes = |host: &usize| self.voters.contains(&(host + 1));
        if let Some(holder) = self.judge.holder().filter(|host| !votes(host)) {
            self.act(Act::CutOff(holder))?;
            let at = self.within_leases(4);
            self.plan(at, Act::Connect(holder));
            most = LEASE_MS * MILLI / 4;
        }
        let remembered = (0..self.hosts).find_map(|host| self.clusters.of(host));
        let mut left: Vec<usize> = self.voters.iter().map(|id| id - 1).collect();
        let majority = left.len() / 2 + 1;
        let fewest = left.len() + 1 - majority;
        let lost = fewest + self.choices.index(majority);
        for _ in 0..lost {
            let host = left.remove(self.choices.index(left.len()));
            self.act(Act::LoseState(host))?;
        }
        self.judge.forget_all_dead();
        let found_out_at = self.scheduler.now() + self.choices.below(most);
        let is_remembered = (0..self.hosts).any(|host| self.clusters.of(host).is_some());
        // Where nobody remembers it, the group is new.
        if let Some(cluster) = remembered.filter(|_| is_remembered) {
            self.abandon(cluster.to_string());
            self.plan(found_out_at, Act::Recover);
        }
        Ok(())
    }

    fn abandon(&mut self, cluster: String) {
        self.has_abandoned.insert(cluster.clone());
        self.abandons = Some(cluster);
    }

    /// Ends the agents of all voters that the files list, and has each forget its cluster.
    pub(super) fn recover(&mut self) -> Result<()> {
        let Some(abandoned) = self.abandons.clone() else {
            return Ok(());
        };
        let left: BTreeSet<usize> = self.voters.iter().map(|id| id - 1).collect();
        for host in left.iter().copied() {
            self.act(Act::EndAgent(host))?;
            let at = self.scheduler.now() + self.choices.below(SECOND / 2);
            self.plan(at, Act::RecoverAt(host));
        }
        self.recovery = Some(Recovery {
            abandoned,
            left,
            said: BTreeMap::new(),
        });
        Ok(())
    }

    /// Whether a host's agent must not run yet.
    pub(super) fn is_in_recovery(&self, host: usize) -> bool {
        self.recovery.is_some() && self.voters.contains(&(host + 1))
    }

    /// Says it at a host, if that is awake. Its file may still list other voters than the others' files.
    pub(super) fn recover_at(&mut self, host: usize) -> Result<()> {
        if self.scheduler.is_suspended(host) {
            let later = self.scheduler.now() + SECOND;
            self.plan(later, Act::RecoverAt(host));
            return Ok(());
        }
        // Which does not end, as it stands still, or waits for those that are inside.
        if let Some(agent) = self.agents.get(&host).copied() {
            for event in self.scheduler.kill(agent)? {
                self.note(&event)?;
            }
        }
        let Some(recovery) = &self.recovery else {
            return Ok(());
        };
        let mut command = self.command(host, self.program)?;
        command.args(["recover", "--force"]);
        if self.clusters.remembered(host).as_ref() != Some(&recovery.abandoned) {
            command.args(["--cluster", &recovery.abandoned]);
        }
        let pid = self.scheduler.start(host, &mut command)?;
        if let Some(recovery) = &mut self.recovery {
            recovery.said.insert(pid, host);
        }
        Ok(())
    }

    /// A command has ended. If it was to say it, and has not, another does. When it is said everywhere, the
    /// agents start again.
    pub(super) fn recovered(&mut self, pid: u32, is_done: bool) {
        let now = self.scheduler.now();
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let Some(host) = recovery.said.remove(&pid) else {
            return;
        };
        if !is_done {
            self.plan(now + SECOND, Act::RecoverAt(host));
            return;
        }
        recovery.left.remove(&host);
        if !recovery.left.is_empty() {
            return;
        }
        self.recovery = None;
        *self.acts.entry("recovered").or_default() += 1;
        for id in self.voters.clone() {
            let at = now + self.choices.below(SECOND / 2);
            self.plan(at, Act::StartAgent(id - 1));
        }
    }

    /// Where a state was lost during the founding, or files differed when a cluster was abandoned, it may take
    /// an operator. Somebody is told so, and of which cluster, if the operator does not know.
    pub(super) fn recover_what_is_told(&mut self) -> Result<()> {
        let statuses = self.statuses()?;
        let is_told = statuses
            .iter()
            .any(|its| its.text.contains("distlock recover"));
        let mut clusters = statuses
            .iter()
            .filter_map(|its| its.cluster().or_else(|| its.remembered_cluster()));
        if let Some(cluster) = clusters.next() {
            let cluster = cluster.to_owned();
            self.abandon(cluster);
        }
        if !is_told || self.abandons.is_none() {
            let cluster = &self.abandons;
            let what = format!(
                "states were lost, and nobody enters; told of that: {is_told}, of the cluster: {cluster:?}"
            );
            return Err(what.into());
        }
        *self.acts.entry("told of recover").or_default() += 1;
        self.act(Act::Recover)
    }

    /// Where no file names its own host as the lowest voter nobody founds. All are told that the files
    /// differ, which are the same by now: the agents that began with another start again.
    pub(super) fn mend_what_is_told(&mut self) -> Result<()> {
        // By the file with which its agent runs, or starts next.
        let is_founder = |host: &usize| {
            let agent = self.agents.get(host);
            let runs = agent.is_some_and(|pid| !self.told_to_end.contains(pid));
            let voters = match runs {
                true => &self.runs_with_voters[*host],
                false => &self.files_list[*host],
            };
            voters.first() == Some(&(host + 1))
        };
        let is_founded = |host: &usize| self.clusters.of(*host).is_some();
        if (0..self.hosts).any(|host| is_founder(&host) || is_founded(&host)) {
            return Ok(());
        }
        let end = self.scheduler.now() + 2 * FOUNDED;
        self.until(end, false)?;
        for status in self.statuses()? {
            // What some had accepted may have come to be.
            if status.cluster().is_some() {
                return Ok(());
            }
            if !status.names_files_that_differ() {
                let host = status.host;
                return Err(format!("nobody founds, and host {host} is not told why").into());
            }
        }
        for host in 0..self.hosts {
            if self.runs_with_voters[host] != self.voters {
                self.act(Act::EndAgent(host))?;
            }
        }
        *self.acts.entry("told of files").or_default() += 1;
        Ok(())
    }

    /// What `distlock status` says on each host.
    fn statuses(&mut self) -> Result<Vec<Status>> {
        let hosts: Vec<_> = self.agents.keys().copied().collect();
        for host in hosts.iter().copied() {
            for arguments in [&["status"][..], &["status", "--json"]] {
                let mut command = self.command(host, self.program)?;
                let path = self.file(host, &arguments.join(" "));
                command.args(arguments).stdout(File::create(path)?);
                self.scheduler.start(host, &mut command)?;
            }
        }
        let end = self.scheduler.now() + 2 * SECOND;
        self.until(end, false)?;
        hosts
            .into_iter()
            .map(|host| {
                let json = fs::read_to_string(self.file(host, "status --json"))?;
                Ok(Status {
                    host,
                    text: fs::read_to_string(self.file(host, "status"))?,
                    json: serde_json::from_str(&json)?,
                })
            })
            .collect()
    }
}

/// What a host says of itself, for people and for programs.
struct Status {
    host: usize,
    text: String,
    json: serde_json::Value,
}

impl Status {
    /// The cluster that it is in.
    fn cluster(&self) -> Option<&str> {
        let cluster = self.json["quorum"]["cluster"].as_str();
        cluster.filter(|name| !name.is_empty())
    }

    /// The one that a member remembers, as it has heard.
    fn remembered_cluster(&self) -> Option<&str> {
        let remember = self.json["quorum"]["founding"]["remember"].as_object()?;
        remember.values().next()?.as_str()
    }

    fn names_files_that_differ(&self) -> bool {
        let differ = self.json["quorum"]["founding"]["differ"].as_array();
        differ.is_some_and(|differ| !differ.is_empty())
    }
}
