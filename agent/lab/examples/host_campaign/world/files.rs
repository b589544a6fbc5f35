//! What is on a host: its files, and the processes that are started there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Result, World};
use crate::program::Manner;

/// Where a host's member is reached.
pub(super) fn address(host: usize) -> String {
    format!("udp:10.0.0.{}:7000", host + 1)
}

impl World<'_> {
    pub(super) fn file(&self, host: usize, name: &str) -> PathBuf {
        self.dir.join(host.to_string()).join(name)
    }

    pub(super) fn command(&self, host: usize, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.file(host, "log"))?;
        command
            .env_clear()
            .env("DISTLOCK_CONFIG", self.file(host, "distlock.toml"))
            .env("DISTLOCK_STATE_DIR", self.file(host, "state"))
            .env("DISTLOCK_SOCKET", self.file(host, "socket"))
            .env("DISTLOCK_SIMULATED_BOOT", self.file(host, "boot"))
            .env("DISTLOCK_ID", (host + 1).to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    /// Another boot of the host.
    pub(super) fn boot(&mut self, host: usize) -> Result<()> {
        let [high, low] = [(); 2].map(|()| self.choices.next_u64());
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}\n",
            high >> 32,
            high & 0xffff,
            low >> 52,
            low & 0xfff,
            low >> 16
        );
        Ok(fs::write(self.file(host, "boot"), id)?)
    }

    /// Writes the file of a host: whom it names as voters counts at the founding only.
    pub(super) fn configure(
        &mut self,
        host: usize,
        lease_ms: u64,
        voters: Option<&[usize]>,
    ) -> Result<()> {
        let voters = voters.map_or_else(String::new, |voters| format!("voters = {voters:?}\n"));
        let algorithm = self.algorithm;
        let mut text = format!(
            "insecure = true\nlease = \"{lease_ms}ms\"\nalgorithm = \"{algorithm}\"\n{voters}\
             [group]\nname = \"shop\"\n"
        );
        for member in 0..self.hosts {
            let (id, address) = (member + 1, address(member));
            text += &format!("[[member]]\nid = {id}\naddress = \"{address}\"\n");
        }
        self.files_say[host] = lease_ms;
        Ok(fs::write(self.file(host, "distlock.toml"), text)?)
    }

    pub(super) fn start_agent(&mut self, host: usize) -> Result<()> {
        let mut command = self.command(host, self.program)?;
        command
            .args(["agent", "--socket"])
            .arg(self.file(host, "socket"));
        let pid = self.scheduler.start(host, &mut command)?;
        self.agents.insert(host, pid);
        self.runs_with[host] = self.files_say[host];
        Ok(())
    }

    /// Has an operator say `distlock members …` on a host that has an agent, if there is one. `act`: what has
    /// been played when it was done.
    pub(super) fn change_members(
        &mut self,
        act: &'static str,
        change: &[String],
        not_on: Option<usize>,
    ) -> Result<()> {
        let agents = self.agents.keys().copied();
        let agents: Vec<_> = agents.filter(|host| Some(*host) != not_on).collect();
        if agents.is_empty() {
            return Ok(());
        }
        let host = agents[self.choices.index(agents.len())];
        let mut command = self.command(host, self.program)?;
        command.arg("members").args(change);
        let pid = self.scheduler.start(host, &mut command)?;
        self.changes.insert(pid, act);
        Ok(())
    }

    pub(super) fn start_client(&mut self, host: usize, is_runner: bool) -> Result<()> {
        let own = std::env::current_exe()?;
        // Some outlast the lease.
        let is_long = self.is_troubled && self.choices.chance(if is_runner { 400 } else { 200 });
        let longest = if is_long { 12_000 } else { 3_000 };
        let stay = (20 + self.choices.below(longest)).to_string();
        let mut command;
        if is_runner {
            let manner = Manner::ALL[self.choices.index(Manner::ALL.len())];
            command = self.command(host, self.program)?;
            if self.agentless == Some(host) {
                command.env_remove("DISTLOCK_SOCKET");
            }
            command
                .args(["run", "x", "--"])
                .arg(own)
                .args(["command", &stay, manner.word()]);
        } else {
            let times = if is_long {
                1
            } else {
                1 + self.choices.below(4)
            }
            .to_string();
            command = self.command(host, &own)?;
            command
                .arg("enters")
                .arg(self.file(host, "socket"))
                .args(["x", &times, &stay]);
        }
        let pid = self.scheduler.start(host, &mut command)?;
        self.clients.insert(pid, (host, is_runner));
        Ok(())
    }
}
