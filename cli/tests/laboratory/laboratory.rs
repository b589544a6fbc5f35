//! The laboratory: hosts with everything that runs on them, what can be done to them, and who has
//! entered since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distlock_agent::runtime::GroupKey;
use tempfile::TempDir;

use crate::clock::now_ns;
use crate::critical::{self, COMMAND, PROGRAM};
use crate::history::{History, Rules};
use crate::hosts::{GROUP, Host, Stopped};
use crate::locks::Lock;
use crate::network::{self, Namespace};
use crate::place::Place;
use crate::plan::{Episode, Fault, Target};
use crate::resource::{Entrance, Resource, Writer};
use crate::rng::Rng;
use crate::servers::{Kind, Servers};
use crate::shim::Shims;
use crate::switch::{Link, Switch};

/// What the groups' leases are.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The same at a store, whose servers take a while to elect another leader.
pub(crate) const STORE_LEASE: Duration = Duration::from_secs(2);
/// After this nobody is inside on a host that has been cut off: a lease, and the time in which
/// `distlock run` has ended a command with it.
pub(crate) const CUT_OFF: Duration = Duration::from_secs(2);
/// Within this everybody must have entered every lock: far more than it takes, for machines that
/// have much else to do. What it took is printed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
/// When no view has come for so long, none is wanted: they wait a second for each other at most.
const SETTLED: Duration = Duration::from_millis(2_500);
/// Of locks.
pub(crate) const ALL: usize = usize::MAX;
/// How long to wait until the victim is inside; then it gets it outside.
const UNTIL_INSIDE: Duration = Duration::from_millis(300);

/// What the environment says of `name`.
pub(crate) fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("{name}={text} is none")))
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

/// What there shall be.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) hosts: u16,
    pub(crate) locks: Vec<Lock>,
    pub(crate) seed: u64,
    /// Whether each host has clocks and a disk of its own.
    pub(crate) has_shims: bool,
    /// Whether the hosts' file has a multicast address.
    pub(crate) has_multicast: bool,
    /// Whether it has a key, or says that it is insecure.
    pub(crate) has_key: bool,
    /// Whether the agents serve their metrics, and nobody enters but by the test.
    pub(crate) is_watched: bool,
    /// What has the locks, if it is not the agents.
    pub(crate) store: Option<Kind>,
}

impl Order {
    /// Whether its directory is to be in memory, where no disk is slow but by the test.
    fn is_in_memory(&self) -> bool {
        self.is_watched || self.store.is_some()
    }

    /// Whether the agents write audit logs.
    fn has_audit(&self) -> bool {
        self.store.is_none() && self.seed.is_multiple_of(2)
    }

    fn lease(&self) -> Duration {
        match self.store {
            None => LEASE,
            Some(_) => STORE_LEASE,
        }
    }
}

pub(crate) struct Laboratory {
    // In the order in which they go: the hosts before what they work with.
    pub(crate) hosts: Vec<Host>,
    /// The store's, if there is one.
    pub(crate) servers: Option<Box<dyn Servers>>,
    pub(crate) switch: Switch,
    pub(crate) resource: Resource,
    pub(crate) place: Arc<Place>,
    lease: Duration,
    _directory: Kept,
    rng: Rng,
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
    /// With everything running. `None`, which is said aloud, where hosts cannot be made.
    pub(crate) fn new(order: Order) -> Option<Self> {
        let all = order.hosts + order.store.map_or(0, Kind::own_hosts);
        let hosts: io::Result<Vec<_>> = (1..=all).map(Namespace::new).collect();
        let (namespaces, devices): (Vec<_>, Vec<_>) = match hosts {
            Ok(hosts) => hosts.into_iter().unzip(),
            Err(error) => {
                skipped(&error);
                return None;
            }
        };
        let mut directory = tempfile::Builder::new();
        directory.prefix("dlab");
        let directory = match order.is_in_memory() {
            true => directory.tempdir_in("/dev/shm"),
            false => directory.tempdir(),
        };
        let directory = directory.expect("a directory");
        let namespaces: Vec<_> = namespaces.into_iter().map(Arc::new).collect();
        let switch = Switch::new(devices, order.seed);
        let servers = match order.store {
            None => None,
            Some(store) => Some(store.start(&namespaces, directory.path(), order.seed)?),
        };
        let (configuration, has_audit, lease) =
            (configuration(&order), order.has_audit(), order.lease());
        let (path, locks) = (directory.path(), order.locks);
        fs::create_dir(critical::logs(path)).expect("a directory");
        let permits = Lock::permits(&locks);
        let log = critical::logs(path).join("resource");
        let resource = Resource::new(&critical::resource(path), &log, permits);
        let shims = order.has_shims.then(|| Shims::new(path, order.hosts));
        let place = Arc::new(Place::new(
            path,
            locks,
            order.store,
            shims,
            has_audit,
            order.is_watched,
        ));
        fs::write(place.config(), &configuration).expect("a file");
        for host in 1..=order.hosts {
            let text = format!("{configuration}{}", place.own_tables(host));
            fs::write(place.config_of(host), text).expect("a file");
        }
        if order.has_key {
            let key = GroupKey::generate().expect("random numbers");
            key.write(&path.join("group.key")).expect("a file");
        }
        let hosts = (1..=order.hosts).zip(namespaces);
        let hosts = hosts.map(|(number, namespace)| Host::new(number, namespace, &place));
        let mut laboratory = Self {
            hosts: hosts.collect(),
            servers,
            switch,
            resource,
            place: Arc::clone(&place),
            lease,
            _directory: Kept(Some(directory)),
            rng: Rng::new(order.seed),
        };
        laboratory.start();
        match laboratory.place.is_watched {
            true => laboratory.await_settled(),
            false => laboratory.await_everybody("the group forms", ALL),
        }
        Some(laboratory)
    }

    pub(crate) fn host(&mut self, number: u16) -> &mut Host {
        &mut self.hosts[usize::from(number) - 1]
    }

    /// All hosts' numbers.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.hosts.iter().map(|host| host.number).collect()
    }

    /// Whatever does not run.
    pub(crate) fn start(&mut self) {
        self.hosts.iter_mut().for_each(Host::start);
    }

    /// Nothing happens to packets any more.
    pub(crate) fn heal(&self) {
        self.switch.set(|_, _| Link::default());
    }

    /// Waits until all are in one view that stays. A voter that has lost its state is replaced by two
    /// more views after the one that lets it in, and no command tells of it.
    pub(crate) fn await_settled(&self) {
        let start = now_ns();
        let mut since = (0, start);
        while now_ns() - since.1 < u64::try_from(SETTLED.as_nanos()).expect("short") {
            let epochs: BTreeSet<u64> = self.hosts.iter().map(Host::epoch).collect();
            // In epoch 0 there is no view yet.
            let is_one = epochs.len() == 1 && !epochs.contains(&0);
            if !is_one || !epochs.contains(&since.0) {
                since = (epochs.first().copied().unwrap_or_default(), now_ns());
            }
            let waited = Duration::from_nanos(now_ns() - start);
            assert!(waited < PATIENCE, "views still come after {waited:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// For the judge: `hosts` have been without a majority since `cut`, and still are.
    pub(crate) fn tell_apart(&self, hosts: impl IntoIterator<Item = u16>, cut: u64) {
        let cut_off = CUT_OFF + self.lease - LEASE;
        let from = cut + u64::try_from(cut_off.as_nanos()).expect("short");
        let now = now_ns();
        if from < now {
            for host in hosts {
                self.place.log(&format!("apart {host} {from} {now}"));
            }
        }
    }

    /// Does to processes what `fault` says.
    pub(crate) fn begin(&mut self, fault: &Fault, episode: &Episode) -> Option<(u16, Stopped)> {
        match *fault {
            Fault::Kill(host, target) => {
                let command = self.await_inside(host, target);
                let host = self.host(host);
                match target {
                    Target::Agent => host.kill_agent(),
                    Target::Program => host.kill_program(),
                    Target::Runner => host.kill_runner(),
                    Target::Command => host.kill_command(command.as_ref()),
                    Target::Host => host.kill_all(),
                }
            }
            Fault::Stop(host, target) => {
                let command = self.await_inside(host, target);
                // Without both, nobody is there to end a command that goes on.
                let is_alone = target == Target::Runner && episode.is_absent(host);
                let stopped = self.host(host).stop(target, command.as_ref(), is_alone);
                return Some((host, stopped));
            }
            Fault::DamageState(host) => {
                let bit = self.rng.next();
                self.host(host).damage_state(bit);
            }
            Fault::LoseState(host) => self.host(host).lose_state(),
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

    /// Every host enters the first `locks` in all ways.
    pub(crate) fn await_everybody(&mut self, when: &str, locks: usize) {
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

    /// The programs of `hosts` enter the first lock; `Err` says which do not.
    pub(crate) fn await_programs(
        &self,
        hosts: impl IntoIterator<Item = u16>,
    ) -> Result<(), Vec<Entrance>> {
        let entrance = |host| Entrance {
            host,
            way: PROGRAM.to_owned(),
            lock: self.place.locks[0].name.clone(),
        };
        let entrances: Vec<_> = hosts.into_iter().map(entrance).collect();
        let before = self.resource.writes();
        self.resource.await_writes(&entrances, &before, PATIENCE)
    }

    /// Ends all that enters, and judges.
    pub(crate) fn judge(&mut self) -> History {
        self.hosts.iter_mut().for_each(Host::close);
        let logs = critical::logs(&self.place.directory);
        let history = History::read(&logs).unwrap_or_else(|error| panic!("{error}"));
        let rules = Rules {
            permits: Lock::permits(&self.place.locks),
            long_stop_ns: u64::try_from((self.lease * 3 / 4).as_nanos()).expect("short"),
        };
        let violations = history.judge(&rules);
        // One breach of a rule tends to have many more behind it.
        for violation in violations.iter().take(20) {
            eprintln!("{violation}");
        }
        assert!(violations.is_empty(), "{} violations", violations.len());
        if self.place.has_audit {
            self.judge_audits(&history, &rules);
        }
        history
    }

    /// That the agents' audit logs are whole, and tell what the critical sections do.
    fn judge_audits(&mut self, history: &History, rules: &Rules) {
        let mut logs = BTreeMap::new();
        for host in &mut self.hosts {
            host.end_agent();
            let path = self.place.audit(host.number);
            let verified = host.verify(&path);
            assert!(verified.status.success(), "{path:?}: {verified:?}");
            let log = fs::read_to_string(&path).expect("an audit log");
            logs.insert(host.number, log);
        }
        let audited = history.judge_audits(&logs, rules);
        let audited = audited.unwrap_or_else(|why| panic!("audit: {why}"));
        println!("audit: {audited:?}");
        assert!(audited.entries > 0, "no entry is in an audit log");
    }
}

/// The file of all members.
fn configuration(order: &Order) -> String {
    let mut text = format!("lease = \"{}ms\"\n", LEASE.as_millis());
    text += match order.has_key {
        true => "key_file = \"group.key\"\n",
        false => "insecure = true\n",
    };
    if order.has_multicast {
        text += &format!("multicast = \"udp:{}:7400\"\n", network::MULTICAST);
    }
    text += &format!("[group]\nname = \"{GROUP}\"\n");
    for host in 1..=order.hosts {
        let address = network::address(host);
        text += &format!("[[member]]\nid = {host}\naddress = \"udp:{address}:7400\"\n");
    }
    text.extend(order.locks.iter().map(Lock::configuration));
    text
}
