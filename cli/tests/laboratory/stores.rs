//! A campaign of a store: things happen to its servers, to the network, and to whoever locks there.

use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::laboratory::{ALL, Laboratory, Order, STORE_LEASE, variable};
use crate::locks::Lock;
use crate::plan::{Episode, Fault, Target};
use crate::rng::Rng;
use crate::servers::{Effect, Kind, Mishap};
use crate::switch::Link;

/// The agents' hosts.
const HOSTS: u16 = 3;
/// A campaign demands that all programs enter within this time after healing, and that the programs which can go
/// on during a mishap do so within this time.
const RECOVERY: Duration = Duration::from_secs(5);
/// So much longer it takes where a holder is killed or stopped as well, or the store is another: its session is
/// outwaited, for 11/9 of its lease, and looked at every third of a lease.
const OUTWAITED: Duration = STORE_LEASE.saturating_mul(2);
/// What links bear without an end of every connection.
const STORM: Link = Link {
    is_cut: false,
    lose_per_mille: 50,
    duplicate_per_mille: 50,
    corrupt_per_mille: 20,
    delay_ms: 10,
};

#[derive(Debug)]
struct Settings {
    store: Kind,
    seed: u64,
    /// `None`: every mishap once.
    lasts: Option<Duration>,
}

impl Settings {
    /// The command that plays it again.
    fn command(&self) -> String {
        let mut command = format!(
            "DISTLOCK_LAB_STORE={} DISTLOCK_LAB_SEED={}",
            self.store.name(),
            self.seed
        );
        if let Some(lasts) = self.lasts {
            command += &format!(" DISTLOCK_LAB_SECS={}", lasts.as_secs());
        }
        command
            + " cargo test -p distlock-cli --all-features --test laboratory stores:: -- --nocapture"
    }
}

#[test]
fn etcd_with_three_members() {
    play(Kind::Etcd);
}

#[test]
fn postgresql_with_a_synchronous_standby() {
    play(Kind::Postgresql {
        is_synchronous: true,
    });
}

#[test]
fn postgresql_with_an_asynchronous_standby() {
    play(Kind::Postgresql {
        is_synchronous: false,
    });
}

/// A slice of it; or a campaign, if the environment says so of this store.
fn play(store: Kind) {
    let named = variable::<String>("DISTLOCK_LAB_STORE");
    let named = named.map(|it| it.parse::<Kind>().expect("a store of the laboratory"));
    if named.is_some_and(|named| named != store) {
        return;
    }
    let settings = Settings {
        store,
        seed: variable("DISTLOCK_LAB_SEED").unwrap_or(1),
        lasts: named
            .and(variable("DISTLOCK_LAB_SECS"))
            .map(Duration::from_secs),
    };
    println!("{}", settings.command());
    let laboratory = Laboratory::new(Order {
        hosts: HOSTS,
        locks: Lock::all(&["ledger"]),
        seed: settings.seed,
        has_shims: false,
        has_multicast: false,
        has_key: true,
        is_watched: false,
        store: Some(store),
    });
    let Some(laboratory) = laboratory else { return };
    let mut campaign = Campaign {
        laboratory,
        recoveries: Vec::new(),
        takeovers: Vec::new(),
        forgot: 0,
    };
    let (begun, mut plan, mut episodes) = (now_ns(), Plan::new(&settings), 0);
    let is_over = |episodes| match settings.lasts {
        Some(lasts) => Duration::from_nanos(now_ns() - begun) >= lasts,
        None => episodes == plan_length(store),
    };
    while !is_over(episodes) {
        let (mishap, episode) = plan.next();
        campaign.play(mishap, &episode);
        episodes += 1;
    }
    campaign.close(episodes, settings.lasts.is_some());
}

/// How many episodes have every mishap once.
fn plan_length(store: Kind) -> usize {
    store.mishaps().len() + 1
}

/// One mishap of the store after the other, each with something that happens to whoever locks; in another order
/// every time.
struct Plan {
    store: Kind,
    rng: Rng,
    deck: Vec<Mishap>,
    is_campaign: bool,
}

impl Plan {
    fn new(settings: &Settings) -> Self {
        Self {
            store: settings.store,
            rng: Rng::new(settings.seed),
            deck: Vec::new(),
            is_campaign: settings.lasts.is_some(),
        }
    }

    fn next(&mut self) -> (Mishap, Episode) {
        if self.deck.is_empty() {
            self.deck = self.store.mishaps();
            self.deck.push(Mishap::Storm);
            self.rng.shuffle(&mut self.deck);
        }
        let mishap = self.deck.pop().expect("it was filled");
        let targets = [
            Target::Agent,
            Target::Program,
            Target::Runner,
            Target::Command,
            Target::Host,
        ];
        let target = targets[self.rng.range(0, 5) as usize];
        let host = self.rng.range(1, u64::from(HOSTS) + 1) as u16;
        let fault = match self.rng.range(0, 3) {
            0 => Some(Fault::Kill(host, target)),
            1 => Some(Fault::Stop(host, target)),
            // What happens to the store alone lets the most go on.
            _ => None,
        };
        let longest = if self.is_campaign { 5_000 } else { 2_500 };
        let episode = Episode {
            faults: fault.into_iter().collect(),
            lasts: Duration::from_millis(self.rng.range(300, longest)),
            is_long_inside: self.rng.happens(300),
        };
        (mishap, episode)
    }
}

struct Campaign {
    laboratory: Laboratory,
    /// How long it took until everybody was inside again, after each episode; and whether somebody may have
    /// been outwaited.
    recoveries: Vec<(Duration, bool)>,
    /// The same of those who could go on.
    takeovers: Vec<(Duration, bool)>,
    /// How often the store has forgotten.
    forgot: usize,
}

impl Campaign {
    fn play(&mut self, mishap: Mishap, episode: &Episode) {
        println!("{mishap:?}, {episode:?}");
        let lab = &mut self.laboratory;
        lab.resource.invite(episode.is_long_inside);
        let mut stopped = Vec::new();
        for fault in &episode.faults {
            stopped.extend(lab.begin(fault, episode));
        }
        let begun = now_ns();
        let servers = lab.servers.as_mut().expect("there is a store");
        let effect = servers.begin(mishap, &lab.switch);
        let (storm, cut) = (mishap == Mishap::Storm, effect.cut);
        lab.switch.set(|from, to| Link {
            is_cut: cut.is_some_and(|cut| from == cut || to == cut),
            ..if storm { STORM } else { Link::default() }
        });
        if let Some((from, until)) = effect.forgot {
            lab.place.log(&format!("forgot {from} {until}"));
            self.forgot += 1;
        }
        thread::sleep(episode.lasts);
        self.demand_progress(mishap, episode, &effect);

        let lab = &mut self.laboratory;
        if let Some(host) = effect.cut.filter(|host| *host <= HOSTS) {
            lab.tell_apart([host], begun);
        }
        lab.resource.invite(false);
        for (host, stopped) in &stopped {
            lab.host(*host).go_on(stopped);
        }
        lab.heal();
        lab.servers.as_mut().expect("there is a store").heal();
        let healed = now_ns();
        lab.start();
        lab.await_everybody("all is healed", ALL);
        let recovery = Duration::from_nanos(now_ns() - healed);
        println!("    all inside again after {recovery:?}");
        let is_outwaited = is_outwaited(mishap, episode);
        self.recoveries.push((recovery, is_outwaited));
    }

    /// Whoever reaches a store that goes on enters also now.
    fn demand_progress(&mut self, mishap: Mishap, episode: &Episode, effect: &Effect) {
        if !effect.goes_on {
            return;
        }
        let mut hosts = episode.who_goes_on(HOSTS);
        hosts.retain(|host| effect.cut != Some(*host));
        if hosts.is_empty() {
            return;
        }
        let start = now_ns();
        let entered = self.laboratory.await_programs(hosts);
        entered.unwrap_or_else(|missing| panic!("during {mishap:?}: not through {missing:?}"));
        let took = Duration::from_nanos(now_ns() - start);
        println!("    the programs that can go on entered after another {took:?}");
        self.takeovers.push((took, is_outwaited(mishap, episode)));
    }

    /// Has all judged.
    fn close(mut self, episodes: usize, is_campaign: bool) {
        let history = self.laboratory.judge();
        println!(
            "{episodes} episodes; entries: {:?}; {} ended inside; {} lost inside; {} writes refused; the store \
             forgot {} times",
            history.entries(),
            history.killed_inside(),
            history.lost_inside(),
            history.refused(),
            self.forgot,
        );
        let all = [
            ("all were inside again", &self.recoveries),
            ("those were inside who could go on", &self.takeovers),
        ];
        for (what, times) in all {
            for is_outwaited in [false, true] {
                let those = times.iter().filter(|(_, it)| *it == is_outwaited);
                let mut those: Vec<Duration> = those.map(|(time, _)| *time).collect();
                those.sort_unstable();
                let Some(longest) = those.last() else {
                    continue;
                };
                let after = if is_outwaited {
                    " after a holder's end"
                } else {
                    ""
                };
                println!(
                    "{what}{after}: {} times, after {:?} in the median, {longest:?} at most",
                    those.len(),
                    those[those.len() / 2]
                );
                let bound = if is_outwaited {
                    RECOVERY + OUTWAITED
                } else {
                    RECOVERY
                };
                assert!(
                    !is_campaign || *longest <= bound,
                    "{longest:?} until {what}{after}, and {bound:?} is the bound"
                );
            }
        }
        assert!(history.lost_inside() > 0, "nobody has lost a lock");
    }
}

/// Whether a session may have ended without a word.
fn is_outwaited(mishap: Mishap, episode: &Episode) -> bool {
    !episode.faults.is_empty() || matches!(mishap, Mishap::Restore | Mishap::Failover)
}
