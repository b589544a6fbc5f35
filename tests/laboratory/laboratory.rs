//! A campaign: builds the hosts, plays the plan, heals after every episode, demands that everybody
//! enters again, and has the logs judged.

use std::fs::{self, File};
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::now_ns;
use crate::critical::{self, COMMAND, PROGRAM};
use crate::history::{History, Rules};
use crate::hosts::{GROUP, Host, Place, Stopped};
use crate::locks::Lock;
use crate::network::{self, Namespace};
use crate::plan::{Episode, Fault, Plan, Target, Views};
use crate::resource::{Entrance, Resource, Writer};
use crate::rng::Rng;
use crate::switch::{Link, Switch};

/// Where the agents' views come from.
const VIEWS: Views = Views::Unanimity;

const LEASE: Duration = Duration::from_secs(1);
/// A stop for so long may cost a lease.
const LONG_STOP: Duration = Duration::from_millis(750);
/// Within this everybody must have entered every lock: far more than it takes, for machines that
/// have much else to do. What it took is printed.
const PATIENCE: Duration = Duration::from_secs(45);
const ALL: usize = usize::MAX;
/// What a campaign demands after healing.
const RECOVERY: Duration = Duration::from_secs(5);
/// How long to wait until the victim is inside; then it gets it outside.
const UNTIL_INSIDE: Duration = Duration::from_millis(300);
/// What flaps does so well within the time after which a member is suspected.
const FLAP: Duration = Duration::from_millis(100);
/// All that serve locks today.
const ENGINES: [&str; 5] = [
    "ricart-agrawala",
    "bakery",
    "token-ring",
    "token-ring-requests",
    "semaphore",
];

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Settings {
    seed: u64,
    /// `None`: one round of all kinds of faults.
    lasts: Option<Duration>,
    hosts: u16,
    engine: Option<String>,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        Self {
            seed: variable("DISTLOCK_LAB_SEED").unwrap_or(1),
            lasts: variable("DISTLOCK_LAB_SECS").map(Duration::from_secs),
            hosts: variable("DISTLOCK_LAB_HOSTS").unwrap_or(3),
            engine: variable("DISTLOCK_LAB_ENGINE"),
        }
    }

    fn plan(&self) -> Plan {
        let longest = if self.lasts.is_some() { 3_000 } else { 1_500 };
        let [shortest, longest] = [200, longest].map(Duration::from_millis);
        Plan::new(self.seed, self.hosts, shortest, longest)
    }

    fn locks(&self) -> Vec<Lock> {
        match &self.engine {
            Some(engine) => Lock::all(&[engine]),
            None => Lock::all(&ENGINES),
        }
    }

    /// The command that plays it again.
    fn command(&self) -> String {
        let mut command = format!(
            "DISTLOCK_LAB_SEED={} DISTLOCK_LAB_HOSTS={}",
            self.seed, self.hosts
        );
        if let Some(lasts) = self.lasts {
            command += &format!(" DISTLOCK_LAB_SECS={}", lasts.as_secs());
        }
        if let Some(engine) = &self.engine {
            command += &format!(" DISTLOCK_LAB_ENGINE={engine}");
        }
        command + " cargo test --test laboratory mixed_faults -- --nocapture"
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("{name}={text} is none")))
}

/// Plays `settings`; panics with what was wrong.
pub(crate) fn run(settings: &Settings) {
    let hosts: io::Result<Vec<_>> = (1..=settings.hosts).map(Namespace::new).collect();
    let mut laboratory = match hosts {
        Ok(hosts) => Laboratory::new(settings, hosts),
        Err(error) => return skipped(&error),
    };
    println!("{}", settings.command());
    laboratory.await_everybody("the group forms", ALL);
    let (mut episodes, start) = (0, now_ns());
    for episode in settings.plan() {
        let is_over = match settings.lasts {
            Some(lasts) => Duration::from_nanos(now_ns() - start) >= lasts,
            None => episodes == Plan::round(),
        };
        if is_over {
            break;
        }
        laboratory.play(&episode);
        episodes += 1;
    }
    laboratory.close(episodes, settings);
}

/// Says aloud that nothing is tested; unless `DISTLOCK_TESTS=all` says that it can be.
fn skipped(why: &io::Error) {
    let required = std::env::var("DISTLOCK_TESTS").is_ok_and(|tests| tests == "all");
    assert!(
        !required,
        "DISTLOCK_TESTS=all, and no hosts can be made: {why}"
    );
    eprintln!("SKIPPED: the laboratory's hosts take root, iproute2 and /dev/net/tun: {why}");
}

struct Laboratory {
    // In the order in which they go: the hosts before what they work with.
    hosts: Vec<Host>,
    switch: Switch,
    resource: Resource,
    place: Arc<Place>,
    directory: Kept,
    rng: Rng,
    /// How long it took until everybody was inside again, after each episode.
    recoveries: Vec<Duration>,
}

/// The laboratory's directory, which stays if the test fails.
struct Kept(Option<TempDir>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(directory) = self.0.take()
            && thread::panicking()
        {
            eprintln!("the logs are in {}", directory.keep().display());
        }
    }
}

impl Laboratory {
    /// With everything running on `hosts`.
    fn new(settings: &Settings, hosts: Vec<(Namespace, File)>) -> Self {
        let (namespaces, devices): (Vec<_>, Vec<_>) = hosts.into_iter().unzip();
        let directory = tempfile::Builder::new().prefix("dlab").tempdir();
        let directory = directory.expect("a directory");
        let (path, locks) = (directory.path(), settings.locks());
        fs::create_dir(critical::logs(path)).expect("a directory");
        let permits = Lock::permits(&locks);
        let log = critical::logs(path).join("resource");
        let resource = Resource::new(&critical::resource(path), &log, permits);
        let place = Arc::new(Place::new(path, locks));
        let configuration = configuration(settings.hosts, &place.locks);
        fs::write(place.config(), configuration).expect("a file");
        let hosts = (1..).zip(namespaces);
        let hosts = hosts.map(|(number, namespace)| Host::new(number, namespace, &place));
        let mut laboratory = Self {
            hosts: hosts.collect(),
            switch: Switch::new(devices, settings.seed),
            resource,
            place: Arc::clone(&place),
            directory: Kept(Some(directory)),
            rng: Rng::new(settings.seed),
            recoveries: Vec::new(),
        };
        laboratory.hosts.iter_mut().for_each(Host::start);
        laboratory
    }

    fn play(&mut self, episode: &Episode) {
        println!("{episode:?}");
        self.resource.invite(episode.is_long_inside);
        let mut stopped = Vec::new();
        for fault in &episode.faults {
            stopped.extend(self.begin(fault, episode));
        }
        self.switch.set(|from, to| episode.link(from, to, true));
        self.wait(episode);
        self.demand_progress(episode);

        self.resource.invite(false);
        let mut healed = now_ns();
        for (host, stopped) in &stopped {
            self.hosts[*host].go_on(stopped);
        }
        if let Some(storm) = episode.storm() {
            self.switch.set(|_, _| storm);
            self.hosts.iter_mut().for_each(Host::start);
            self.await_everybody("the cuts are healed, in a storm", 1);
            healed = now_ns();
        }
        self.switch.set(|_, _| Link::default());
        self.hosts.iter_mut().for_each(Host::start);
        self.await_everybody("all is healed", ALL);
        let recovery = Duration::from_nanos(now_ns() - healed);
        println!("    all inside again after {recovery:?}");
        self.recoveries.push(recovery);
    }

    /// Does to processes what `fault` says.
    fn begin(&mut self, fault: &Fault, episode: &Episode) -> Option<(usize, Stopped)> {
        let at = |host: u16| usize::from(host) - 1;
        match *fault {
            Fault::Kill(host, target) => {
                let command = self.await_inside(host, target);
                let host = &mut self.hosts[at(host)];
                match target {
                    Target::Agent => host.kill_agent(),
                    Target::Program => host.kill_program(),
                    Target::Runner => host.kill_runner(),
                    Target::Command => host.kill_command(command.as_ref()),
                    Target::Host => host.kill_all(command.as_ref()),
                }
            }
            Fault::Stop(host, target) => {
                let command = self.await_inside(host, target);
                // Without both, nobody is there to end a command that goes on.
                let is_alone = target == Target::Runner && episode.is_absent(host);
                let host = at(host);
                let stopped = self.hosts[host].stop(target, command.as_ref(), is_alone);
                return Some((host, stopped));
            }
            Fault::DamageState(host) => {
                let bit = self.rng.next();
                self.hosts[at(host)].damage_state(bit);
            }
            Fault::LoseState(host) => self.hosts[at(host)].lose_state(),
            Fault::Storm(_)
            | Fault::OneWay(..)
            | Fault::Split(_)
            | Fault::Ring(_)
            | Fault::Flap(_) => {}
        }
        None
    }

    /// Waits until `target`, or what it serves, is inside.
    fn await_inside(&self, host: u16, target: Target) -> Option<Writer> {
        let way = match target {
            Target::Agent | Target::Program => PROGRAM,
            Target::Runner | Target::Command | Target::Host => COMMAND,
        };
        self.resource.await_writer(host, way, UNTIL_INSIDE)
    }

    /// For as long as the episode lasts.
    fn wait(&self, episode: &Episode) {
        let end = now_ns() + u64::try_from(episode.lasts.as_nanos()).expect("short");
        let mut is_flapped = true;
        loop {
            let left = Duration::from_nanos(end.saturating_sub(now_ns()));
            if left.is_zero() {
                return;
            }
            if !episode.flaps() {
                thread::sleep(left);
                continue;
            }
            thread::sleep(FLAP.min(left));
            is_flapped = !is_flapped;
            self.switch
                .set(|from, to| episode.link(from, to, is_flapped));
        }
    }

    /// Who goes on by the source of views enters also now.
    fn demand_progress(&self, episode: &Episode) {
        let hosts = u16::try_from(self.hosts.len()).expect("few hosts");
        let who = VIEWS.who_goes_on(episode, hosts).into_iter();
        let entrances: Vec<_> = who
            .map(|host| Entrance {
                host,
                way: PROGRAM.to_owned(),
                lock: self.place.locks[0].name.clone(),
            })
            .collect();
        let before = self.resource.writes();
        let waited = self.resource.await_writes(&entrances, &before, PATIENCE);
        waited.unwrap_or_else(|missing| panic!("during {episode:?}: nobody enters by {missing:?}"));
    }

    /// Every host enters the first `locks` in all ways.
    fn await_everybody(&mut self, when: &str, locks: usize) {
        let before = self.resource.writes();
        let mut entrances = Vec::new();
        for host in &self.hosts {
            let entrance = |way: &str, lock: &Lock| Entrance {
                host: host.number,
                way: way.to_owned(),
                lock: lock.name.clone(),
            };
            let locks = self.place.locks.iter().take(locks);
            entrances.extend(locks.map(|lock| entrance(PROGRAM, lock)));
            entrances.push(entrance(COMMAND, &self.place.locks[0]));
        }
        let waited = self.resource.await_writes(&entrances, &before, PATIENCE);
        if let Some(ailment) = self.hosts.iter_mut().find_map(Host::ails) {
            panic!("{when}: {ailment}");
        }
        waited.unwrap_or_else(|missing| {
            panic!("{when}, and nobody enters in {PATIENCE:?} by {missing:?}")
        })
    }

    /// Ends all, and judges.
    fn close(mut self, episodes: usize, settings: &Settings) {
        self.hosts.iter_mut().for_each(Host::close);
        let logs = critical::logs(&self.place.directory);
        let history = History::read(&logs).unwrap_or_else(|error| panic!("{error}"));
        let rules = Rules {
            permits: Lock::permits(&self.place.locks),
            long_stop_ns: u64::try_from(LONG_STOP.as_nanos()).expect("short"),
        };
        let violations = history.judge(&rules);
        let counts = self.switch.counts();
        let longest = self.recoveries.iter().max().copied().unwrap_or_default();
        println!(
            "{episodes} episodes; entries: {:?}; {} ended inside; {} writes refused; {counts:?}; \
             longest until all were inside again: {longest:?}",
            history.entries(),
            history.killed_inside(),
            history.refused(),
        );
        // One breach of a rule tends to have many more behind it.
        for violation in violations.iter().take(20) {
            eprintln!("{violation}");
        }
        assert!(violations.is_empty(), "{} violations", violations.len());
        let suffered = [
            counts.cut,
            counts.lost,
            counts.duplicated,
            counts.corrupted,
            counts.delayed,
            history.killed_inside() as u64,
        ];
        // A campaign that is cut short need not have come to all of them.
        let is_whole = episodes >= Plan::round();
        assert!(
            !is_whole || !suffered.contains(&0),
            "a fault never happened"
        );
        let is_campaign = settings.lasts.is_some();
        assert!(
            !is_campaign || longest <= RECOVERY,
            "{longest:?} until all were inside again, and {RECOVERY:?} is the bound"
        );
        drop(self.directory);
    }
}

fn configuration(hosts: u16, locks: &[Lock]) -> String {
    let mut text = format!(
        "lease = \"{}ms\"\ninsecure = true\n[group]\nname = \"{GROUP}\"\n",
        LEASE.as_millis()
    );
    for host in 1..=hosts {
        let address = network::address(host);
        text += &format!("[[member]]\nid = {host}\naddress = \"udp:{address}:7400\"\n");
    }
    text.extend(locks.iter().map(Lock::configuration));
    text
}
