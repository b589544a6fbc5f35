//! The fault laboratory: real agents, each on a host of its own (a network namespace), joined by a
//! switch that loses, doubles, damages, delays and cuts; whose processes are killed and stopped, and
//! whose state is damaged and lost. Afterwards the logs of the critical sections are judged.
//!
//! `mixed_faults` plays a slice of it. The variables make it a campaign, and play it again:
//!
//! - `DISTLOCK_LAB_SEED`: what the plan follows from (it is printed); odd ones have multicast, and with
//!   even ones the agents write audit logs, which are judged, too;
//! - `DISTLOCK_LAB_SECS`: for how long; without it every kind of fault comes once;
//! - `DISTLOCK_LAB_HOSTS`: how many, 3 if not said;
//! - `DISTLOCK_LAB_ENGINE`: the algorithm, all that there are if not said.
//!
//! `stores` does the same to etcd and PostgreSQL. There `DISTLOCK_LAB_STORE` makes a campaign of it: `etcd`,
//! `postgresql` or `postgresql-async`; without it every kind of mishap comes once.
//!
//! What is exact is the plan, not its timing: real processes are where the machine lets them be.
//!
//! The other tests each have one thing happen, and say what must come of it. `takeovers` measures how
//! long a lock is free when its holder has gone: `DISTLOCK_LAB_KILLS` says how often, and that the
//! bounds are demanded. `DISTLOCK_LAB_RESTARTS` says how often `fences_rise_over_total_restarts` is to
//! restart everything. `alerts` has a real Prometheus read a group of five, for a quarter of an hour, while
//! one thing after the other happens: each alert has to fire for its fault, and for no other.

mod alerts;
mod campaign;
mod clock;
mod critical;
mod history;
mod hosts;
mod laboratory;
mod locks;
mod meddler;
mod middle;
mod network;
mod place;
mod plan;
#[path = "../cli_support/prometheus.rs"]
mod prometheus;
mod resource;
mod rng;
mod scenarios;
mod servers;
mod shim;
mod stores;
mod switch;
mod takeover;

/// The test program is also what it starts: see `critical`.
#[test]
fn role() {
    critical::play();
}

#[test]
fn mixed_faults() {
    campaign::run();
}
