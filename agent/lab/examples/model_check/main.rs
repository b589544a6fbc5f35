//! Explores every order of events in small worlds around the production core, and says which one
//! breaks a rule and how to play it again.
//!
//! ```text
//! cargo run --release -p distlock-lab \
//!     --example model_check -- locks --engine all --members 2 --states 1000000
//! ```

use std::fmt;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use distlock_lab::model::ledger::{self, LedgerModel};
use distlock_lab::model::locks::{Bounds, LockModel, Network, Weakness};
use distlock_lab::model::views::{self, Deciding, ViewModel};
use distlock_protocol::Algorithm;

use engines::Engines;
use search::{Error, Search, check};

/// By their names in options.
macro_rules! named {
    ($($kind:ty),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value = self.to_possible_value().expect("no value is hidden");
                f.write_str(value.get_name())
            }
        }
    )*};
}

#[path = "../support/engines.rs"]
mod engines;
mod explored;
mod harvest;
mod search;
#[path = "../support/words.rs"]
mod words;

/// Explores every order of events in small worlds around the production core.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    world: World,
    #[command(flatten)]
    search: Search,
}

#[derive(Clone, Debug, Subcommand)]
enum World {
    /// One lock, served by an algorithm, under views.
    Locks(Locks),
    /// Quorum views, leases, and one lock in them.
    Views(Views),
    /// Ledgers that share a store, and one lock in it.
    Ledger(Ledgers),
}

#[derive(Clone, Debug, Args)]
struct Ledgers {
    /// How many agents.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=3))]
    agents: u16,
    /// Requests of each agent.
    #[arg(long, default_value_t = 1)]
    rounds: u8,
    /// Callers that wait no longer.
    #[arg(long, default_value_t = 1)]
    cancels: u8,
    /// Operations of unknown outcome.
    #[arg(long, default_value_t = 1)]
    unknown: u8,
    /// Leaps of time; three are a lease.
    #[arg(long, default_value_t = 4)]
    leaps: u8,
    /// Agents that crash.
    #[arg(long, default_value_t = 1)]
    crashes: u8,
    /// Agents that come back.
    #[arg(long, default_value_t = 0)]
    restarts: u8,
}

#[derive(Clone, Debug, Args)]
struct Locks {
    /// The algorithm, by its name in the configuration, or `all`.
    #[arg(long, default_value = "all")]
    engine: Engines,
    /// How many members.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=3))]
    members: u16,
    /// What is between them.
    #[arg(long, default_value = "links")]
    network: Between,
    /// Requests of each member.
    #[arg(long, default_value_t = 2)]
    rounds: u8,
    /// Callers that wait no longer.
    #[arg(long, default_value_t = 1)]
    cancels: u8,
    /// Callers that end inside.
    #[arg(long, default_value_t = 1)]
    abandons: u8,
    /// Views after the first.
    #[arg(long, default_value_t = 2)]
    views: u8,
    /// Members that crash.
    #[arg(long, default_value_t = 1)]
    crashes: u8,
    /// Members that come back.
    #[arg(long, default_value_t = 1)]
    restarts: u8,
    /// Messages that come twice.
    #[arg(long, default_value_t = 1)]
    twice: u8,
    /// Times that a ring's token is passed on because nobody wants it.
    #[arg(long, default_value_t = 6)]
    hops: u8,
    /// A rule that is left out on purpose: then the search must find what it is good for.
    #[arg(long)]
    without: Option<Without>,
}

#[derive(Clone, Debug, Args)]
struct Views {
    /// The algorithm that serves the lock, by its name in the configuration, or `all`.
    #[arg(long, default_value = "semaphore")]
    engine: Engines,
    /// How many hosts; each is a member and a voter.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=3))]
    members: u16,
    /// Requests of each host.
    #[arg(long, default_value_t = 1)]
    rounds: u8,
    /// Leaps of time.
    #[arg(long, default_value_t = 6)]
    leaps: u8,
    /// What decides on views.
    #[arg(long, default_value = "anybody")]
    deciding: Decides,
    /// Proposals for views, where anybody decides.
    #[arg(long, default_value_t = 2)]
    proposals: u8,
    /// Hosts that crash.
    #[arg(long, default_value_t = 1)]
    crashes: u8,
    /// Hosts that come back.
    #[arg(long, default_value_t = 1)]
    restarts: u8,
    /// Datagrams that come twice.
    #[arg(long, default_value_t = 1)]
    twice: u8,
    /// Hosts that come back without their states, where Raft decides.
    #[arg(long, default_value_t = 0)]
    losses: u8,
    /// Members that leave in order, where Raft decides.
    #[arg(long, default_value_t = 0)]
    departures: u8,
    /// Times that an operator names other voters, where Raft decides.
    #[arg(long, default_value_t = 0)]
    revotes: u8,
}

/// What decides on views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Decides {
    /// Any voter may propose any view, and be told of any, as by a log that lies.
    Anybody,
    /// Whoever leads, and Raft.
    Raft,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Between {
    Links,
    Datagrams,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Without {
    LeaseWait,
    Freeze,
    EpochTag,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("model_check: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Error> {
    match &options.world {
        World::Locks(world) => {
            for algorithm in &world.engine.0 {
                if algorithm.needs_order() && matches!(world.network, Between::Datagrams) {
                    println!("SKIPPED: {algorithm} needs an order that datagrams do not keep");
                    continue;
                }
                let (key, weakened) = (world.key(*algorithm), world.without.is_some());
                check(|| world.model(*algorithm), &key, &options.search, weakened)?;
            }
        }
        World::Views(world) => {
            if world.deciding == Decides::Anybody && world.has_what_raft_decides() {
                return Err(Error::Options(
                    "--losses, --departures and --revotes are for --deciding raft",
                ));
            }
            for algorithm in &world.engine.0 {
                let key = world.key(*algorithm);
                check(|| world.model(*algorithm), &key, &options.search, false)?;
            }
        }
        World::Ledger(world) => {
            check(|| world.model(), &world.key(), &options.search, false)?;
        }
    }
    Ok(())
}

impl Ledgers {
    fn model(&self) -> LedgerModel {
        let bounds = ledger::Bounds {
            rounds: self.rounds,
            cancels: self.cancels,
            unknown: self.unknown,
            leaps: self.leaps,
            crashes: self.crashes,
            restarts: self.restarts,
        };
        LedgerModel::new(self.agents, bounds)
    }

    /// The options that name it.
    fn key(&self) -> String {
        format!(
            "ledger --agents {} --rounds {} --cancels {} --unknown {} --leaps {} --crashes {} \
             --restarts {}",
            self.agents,
            self.rounds,
            self.cancels,
            self.unknown,
            self.leaps,
            self.crashes,
            self.restarts
        )
    }
}

impl Views {
    fn has_what_raft_decides(&self) -> bool {
        [self.losses, self.departures, self.revotes] != [0; 3]
    }

    fn model(&self, algorithm: Algorithm) -> ViewModel {
        let bounds = views::Bounds {
            rounds: self.rounds,
            leaps: self.leaps,
            proposals: self.proposals,
            crashes: self.crashes,
            restarts: self.restarts,
            losses: self.losses,
            departures: self.departures,
            revotes: self.revotes,
            twice: self.twice,
        };
        let deciding = match self.deciding {
            Decides::Anybody => Deciding::Anybody,
            Decides::Raft => Deciding::Raft,
        };
        ViewModel::new(algorithm, deciding, self.members, bounds)
    }

    /// The options that name it.
    fn key(&self, algorithm: Algorithm) -> String {
        format!(
            "views --engine {algorithm} --deciding {} --members {} --rounds {} --leaps {} --proposals {} \
             --crashes {} --restarts {} --twice {} --losses {} --departures {} --revotes {}",
            self.deciding,
            self.members,
            self.rounds,
            self.leaps,
            self.proposals,
            self.crashes,
            self.restarts,
            self.twice,
            self.losses,
            self.departures,
            self.revotes
        )
    }
}

impl Locks {
    fn model(&self, algorithm: Algorithm) -> LockModel {
        let network = match self.network {
            Between::Links => Network::Links,
            Between::Datagrams => Network::Datagrams,
        };
        let bounds = Bounds {
            rounds: self.rounds,
            cancels: self.cancels,
            abandons: self.abandons,
            views: self.views,
            crashes: self.crashes,
            restarts: self.restarts,
            twice: self.twice,
            hops: self.hops,
        };
        let mut model = LockModel::new(algorithm, self.members, network, bounds);
        model.weakness = self.without.map(|without| match without {
            Without::LeaseWait => Weakness::NoLeaseWait,
            Without::Freeze => Weakness::NoFreeze,
            Without::EpochTag => Weakness::NoEpochTag,
        });
        model
    }

    /// The options that name it.
    fn key(&self, algorithm: Algorithm) -> String {
        let mut key = format!(
            "locks --engine {algorithm} --members {} --network {} --rounds {} --cancels {} \
             --abandons {} --views {} --crashes {} --restarts {} --twice {} --hops {}",
            self.members,
            self.network,
            self.rounds,
            self.cancels,
            self.abandons,
            self.views,
            self.crashes,
            self.restarts,
            self.twice,
            self.hops
        );
        if let Some(without) = self.without {
            key += &format!(" --without {without}");
        }
        key
    }
}

named!(Between, Decides, Without);
