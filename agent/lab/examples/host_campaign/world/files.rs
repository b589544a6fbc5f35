//! What is on a host: its files, and the processes that are started there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::acts::Act;
use super::operator::Operator;
use super::{Client, LONGEST_LEASE_MS, LONGEST_STAY_MS, Result, SHORT_STAY_MS, Trouble, World};
use crate::network::address;
use crate::page::GROUP;
use crate::program::{LOCKS, Manner, Mode};
use crate::sealed::{key_file, other_key_file};

/// A runner that does not wait for the lock waits so long for the group's answer, and any may be late by
/// so much.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(200);

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
        command.env_clear();
        // For programs that are built to count what of them runs, or of which a mutant is switched on.
        for name in ["LLVM_PROFILE_FILE", "SWITCHED_MUTANT"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
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
        self.files_lack.remove(&host);
        let missing = self.newcomer.filter(|newcomer| *newcomer != host);
        self.write_file(missing, host, lease_ms, voters)
    }

    /// The same; by mistake the file does not list that member.
    pub(super) fn configure_without(
        &mut self,
        missing: usize,
        host: usize,
        lease_ms: u64,
        voters: Option<&[usize]>,
    ) -> Result<()> {
        self.files_lack.insert(host);
        self.write_file(Some(missing), host, lease_ms, voters)
    }

    fn write_file(
        &mut self,
        missing: Option<usize>,
        host: usize,
        lease_ms: u64,
        voters: Option<&[usize]>,
    ) -> Result<()> {
        self.files_list[host] = voters.unwrap_or(&self.voters).to_vec();
        let voters = match voters {
            // As where the key is left out.
            None if self.voters.len() == self.hosts => String::new(),
            listed => format!("voters = {:?}\n", listed.unwrap_or(&self.voters)),
        };
        let algorithm = self.algorithm;
        let sealing = if self.is_sealed {
            format!("key_file = {:?}", self.file(host, "key"))
        } else {
            "insecure = true".to_owned()
        };
        let mut text = format!(
            "{sealing}\nlease = \"{lease_ms}ms\"\nalgorithm = \"{algorithm}\"\n{voters}\
             [group]\nname = \"{GROUP}\"\n"
        );
        for member in (0..self.hosts).filter(|member| Some(*member) != missing) {
            let (id, address) = (member + 1, address(member));
            text += &format!("[[member]]\nid = {id}\naddress = \"{address}\"\n");
        }
        if self.permits > 1 {
            for lock in LOCKS {
                text += &format!("[[lock]]\nname = \"{lock}\"\npermits = {}\n", self.permits);
            }
        }
        self.files_say[host] = lease_ms;
        Ok(fs::write(self.file(host, "distlock.toml"), text)?)
    }

    /// Gives a host the group's keys, or others. The file is replaced as a whole.
    pub(super) fn write_key(&self, host: usize, is_right: bool) -> Result<()> {
        let new = self.file(host, "key.new");
        let text = match is_right {
            true => key_file(self.key_rounds[host]),
            false => other_key_file(),
        };
        fs::write(&new, text)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        Ok(fs::rename(&new, self.file(host, "key"))?)
    }

    pub(super) fn start_agent(&mut self, host: usize) -> Result<()> {
        let mut command = self.command(host, self.program)?;
        command
            .args(["agent", "--socket"])
            .arg(self.file(host, "socket"));
        let pid = self.scheduler.start(host, &mut command)?;
        self.agents.insert(host, pid);
        self.runs_with[host] = self.files_say[host];
        match self.files_lack.contains(&host) {
            true => self.runs_lacking.insert(host),
            false => self.runs_lacking.remove(&host),
        };
        self.runs_with_voters[host] = self.files_list[host].clone();
        Ok(())
    }

    pub(super) fn start_client(&mut self, host: usize, is_runner: bool) -> Result<()> {
        let own = std::env::current_exe()?;
        // Some outlast the lease.
        let share = match self.kind {
            Trouble::Leases => 900,
            // Those that others are to wait for.
            Trouble::Members if self.operator == Operator::SetsLease => 900,
            _ if is_runner => 400,
            _ => 200,
        };
        let is_long = self.is_troubled && self.choices.chance(share);
        let longest = if is_long {
            LONGEST_STAY_MS
        } else {
            SHORT_STAY_MS
        };
        let stay = (20 + self.choices.below(longest)).to_string();
        let mode = self.some_mode();
        let lock = usize::from(self.locks > 1 && self.choices.chance(400));
        let mut patience = None;
        let (mut garbles, mut aborts) = (false, false);
        let mut command;
        if is_runner {
            let manner = match self.kind {
                // It has to be killed.
                Trouble::Leases if self.choices.chance(300) => Manner::Stubborn,
                _ => Manner::ALL[self.choices.index(Manner::ALL.len())],
            };
            command = self.command(host, self.program)?;
            if self.agentless == Some(host) {
                command.env_remove("DISTLOCK_SOCKET");
            }
            command.arg("run");
            // A runner that is the member itself has its disk to wait for.
            if self.agentless != Some(host) {
                patience = self.some_patience();
            }
            if let Some(patience) = patience {
                command.arg(format!("--timeout={}", patience.as_secs_f64()));
            }
            if mode == Mode::Shared {
                command.arg("--shared");
            }
            command.args([LOCKS[lock], "--"]).arg(own);
            command.args(["command", &stay, manner.word(), mode.word(), LOCKS[lock]]);
        } else {
            let times = if is_long {
                1
            } else {
                1 + self.choices.below(4)
            }
            .to_string();
            command = self.command(host, &own)?;
            command.args(["enters", LOCKS[lock], &times, &stay, mode.word()]);
            let has_agent = self.agentless != Some(host);
            if has_agent {
                command.arg("--socket").arg(self.file(host, "socket"));
            } else {
                command.env_remove("DISTLOCK_SOCKET");
                *self.acts.entry("a program is a member").or_default() += 1;
            }
            // Its agent cuts it off, which it may be slow to notice.
            garbles = has_agent && self.is_troubled && self.choices.chance(50);
            if garbles {
                command.arg("--garbles");
                *self.acts.entry("a program garbles").or_default() += 1;
            }
            aborts = self.choices.chance(200);
            if aborts {
                command.arg("--aborts");
            }
        }
        let pid = self.scheduler.start(host, &mut command)?;
        if self.agentless == Some(host) {
            self.runs_with[host] = self.files_say[host];
        }
        let mut waits_until = None;
        if let Some(patience) = patience {
            // It does not begin under a lease that is nearly over, but waits for the next one.
            let lease = Duration::from_millis(LONGEST_LEASE_MS);
            let at = self.gives_up_by(patience, lease)?;
            self.plan(at, Act::GivesUp(pid));
            waits_until = Some(at).filter(|_| !self.scheduler.is_suspended(host));
        }
        let client = Client {
            host,
            is_runner,
            waits_until,
            loses_own_lock: garbles,
            aborts,
        };
        self.clients.insert(pid, client);
        Ok(())
    }

    /// By when one gives up that waits so long from now on, and then so much longer. Its host's clock may be slow.
    pub(super) fn gives_up_by(&mut self, patience: Duration, longer: Duration) -> Result<u64> {
        let latest = (patience.max(LEAST_PATIENCE) + longer + GRACE) * 21 / 20;
        Ok(self.scheduler.now() + u64::try_from(latest.as_nanos())?)
    }

    /// How a program or a runner takes the lock.
    fn some_mode(&mut self) -> Mode {
        match self.permits {
            1 if self.has_readers && self.choices.chance(600) => Mode::Shared,
            1 => Mode::Exclusive,
            _ => Mode::Permit,
        }
    }

    /// How long a runner waits; `None`: as long as it takes. In peace all do.
    fn some_patience(&mut self) -> Option<Duration> {
        if !self.is_troubled || !self.choices.chance(300) {
            return None;
        }
        let is_none = self.choices.chance(300);
        Some(Duration::from_millis(if is_none {
            0
        } else {
            100 + self.choices.below(3_000)
        }))
    }
}
