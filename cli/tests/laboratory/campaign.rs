//! A campaign: plays the plan, heals after every episode, demands that everybody enters again, and has
//! the logs judged.

use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::laboratory::{ALL, Laboratory, Order, variable};
use crate::locks::Lock;
use crate::plan::{Episode, Plan};

/// What a campaign demands after healing.
const RECOVERY: Duration = Duration::from_secs(5);
/// How long a campaign lets a majority wait for the others, in excess of how long faults last.
const TAKEOVER: Duration = Duration::from_secs(3);
/// What flaps does so well within the time after which a member is suspected.
const FLAP: Duration = Duration::from_millis(100);
/// All that serve locks under quorum views. The first is the default: commands enter its lock, and a
/// majority must go on with it.
const ENGINES: [&str; 13] = [
    "manager",
    "ricart-agrawala",
    "bakery",
    "token-ring",
    "token-ring-requests",
    "lamport",
    "carvalho-roucairol",
    "maekawa",
    "majority",
    "suzuki-kasami",
    "singhal",
    "raymond",
    "semaphore",
];

/// What the environment says.
#[derive(Debug)]
struct Settings {
    seed: u64,
    /// `None`: one round of all kinds of faults.
    lasts: Option<Duration>,
    hosts: u16,
    engine: Option<String>,
}

impl Settings {
    fn from_environment() -> Self {
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

    fn order(&self) -> Order {
        Order {
            hosts: self.hosts,
            locks: match &self.engine {
                Some(engine) => Lock::all(&[engine]),
                None => Lock::all(&ENGINES),
            },
            seed: self.seed,
            has_shims: false,
            has_multicast: self.seed % 2 == 1,
            has_key: true,
            is_watched: false,
            store: None,
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

/// Plays what the environment says; panics with what was wrong.
pub(crate) fn run() {
    let settings = Settings::from_environment();
    println!("{}", settings.command());
    let Some(laboratory) = Laboratory::new(settings.order()) else {
        return;
    };
    let mut campaign = Campaign {
        laboratory,
        hosts: settings.hosts,
        episodes: 0,
        recoveries: Vec::new(),
        takeovers: Vec::new(),
    };
    let start = now_ns();
    for episode in settings.plan() {
        let is_over = match settings.lasts {
            Some(lasts) => Duration::from_nanos(now_ns() - start) >= lasts,
            None => campaign.episodes == Plan::round(),
        };
        if is_over {
            break;
        }
        campaign.play(&episode);
    }
    campaign.close(settings.lasts.is_some());
}

struct Campaign {
    laboratory: Laboratory,
    hosts: u16,
    episodes: usize,
    /// How long it took until everybody was inside again, after each episode.
    recoveries: Vec<Duration>,
    /// How long it took until a majority was inside again, after what lasted as long as it should
    /// and kept nobody from it but by the absence of others.
    takeovers: Vec<Duration>,
}

impl Campaign {
    fn play(&mut self, episode: &Episode) {
        println!("{episode:?}");
        self.episodes += 1;
        let lab = &mut self.laboratory;
        lab.resource.invite(episode.is_long_inside);
        let mut stopped = Vec::new();
        for fault in &episode.faults {
            stopped.extend(lab.begin(fault, episode));
        }
        lab.switch.set(|from, to| episode.link(from, to, true));
        let begun = now_ns();
        self.wait(episode);
        self.demand_progress(episode);

        let lab = &mut self.laboratory;
        lab.tell_apart(episode.who_stops(self.hosts), begun);
        lab.resource.invite(false);
        let mut healed = now_ns();
        for (host, stopped) in &stopped {
            lab.host(*host).go_on(stopped);
        }
        if let Some(storm) = episode.storm() {
            lab.switch.set(|_, _| storm);
            lab.start();
            lab.await_everybody("the cuts are healed, in a storm", 1);
            healed = now_ns();
        }
        lab.heal();
        lab.start();
        lab.await_everybody("all is healed", ALL);
        let recovery = Duration::from_nanos(now_ns() - healed);
        println!("    all inside again after {recovery:?}");
        self.recoveries.push(recovery);
        if episode.loses_state() {
            lab.await_settled();
        }
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
            let switch = &self.laboratory.switch;
            switch.set(|from, to| episode.link(from, to, is_flapped));
        }
    }

    /// Whoever goes on enters also now.
    fn demand_progress(&mut self, episode: &Episode) {
        let who = episode.who_goes_on(self.hosts);
        if who.is_empty() {
            return;
        }
        let start = now_ns();
        let entered = self.laboratory.await_programs(who);
        entered.unwrap_or_else(|missing| panic!("during {episode:?}: not through {missing:?}"));
        let took = Duration::from_nanos(now_ns() - start);
        println!("    the majority inside after another {took:?}");
        // A storm may cost a member its lease again and again.
        if episode.storm().is_none() {
            self.takeovers.push(took);
        }
    }

    /// Has all judged.
    fn close(mut self, is_campaign: bool) {
        let history = self.laboratory.judge();
        let counts = self.laboratory.switch.counts();
        let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        let (recovery, takeover) = (longest(&self.recoveries), longest(&self.takeovers));
        println!(
            "{} episodes; entries: {:?}; {} ended inside; {} writes refused; {counts:?}; \
             longest until all were inside again: {recovery:?}; \
             until the majority was, {} times: {takeover:?}",
            self.episodes,
            history.entries(),
            history.killed_inside(),
            history.refused(),
            self.takeovers.len(),
        );
        let suffered = [
            counts.cut,
            counts.lost,
            counts.duplicated,
            counts.corrupted,
            counts.delayed,
            history.killed_inside() as u64,
        ];
        // A campaign that is cut short need not have come to all of them.
        let is_whole = self.episodes >= Plan::round();
        assert!(
            !is_whole || !suffered.contains(&0),
            "a fault never happened"
        );
        assert!(
            !is_campaign || recovery <= RECOVERY,
            "{recovery:?} until all were inside again, and {RECOVERY:?} is the bound"
        );
        assert!(
            !is_campaign || takeover <= TAKEOVER,
            "{takeover:?} until the majority was inside, and {TAKEOVER:?} is the bound"
        );
    }
}
