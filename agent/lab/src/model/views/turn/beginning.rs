//! How a world begins.

use super::super::checker::Checker;
use super::super::host::{Air, Host, LEASE};
use super::super::{Action, Plans, State, ViewModel};
use super::Turn;
use crate::checkers::Process;
use crate::clock::Clock;
use crate::model::locks::Post;
use crate::model::{Seen, nodes};
use distlock_protocol::Time;

/// How much a clock gains or loses at most, in millionths; W allows for 100,000.
const DRIFT: i32 = 99_999;

/// The first view is in force everywhere, with a lease everywhere.
pub(in crate::model::views) fn begin(model: &ViewModel) -> State {
    let pool = &model.pool;
    let drifts = [DRIFT, -DRIFT, 0];
    let hosts = nodes(model.hosts).zip(drifts).map(|(node, drift_ppm)| {
        pool.hosts.share(Host {
            process: Process {
                node,
                incarnation: 0,
            },
            clock: Clock {
                drift_ppm,
                ..Clock::default()
            },
            disk: None,
            affiliation: None,
            running: None,
        })
    });
    let mut state = State {
        now: Time::ZERO + LEASE,
        hosts: hosts.collect(),
        air: pool.airs.share(Air::default()),
        post: pool.posts.share(Post::default()),
        plans: pool.plans.share(Plans::default()),
        left: model.bounds,
        checker: pool.checkers.share(Checker::default()),
        broken: None,
        seen: Seen::default(),
    };
    let step = |state: &State, action| Turn::new(model, state).finish(|turn| turn.play(action));
    state.left.restarts = u8::MAX;
    for node in nodes(model.hosts) {
        state = step(&state, Action::Restart(node));
    }
    // Everything happens at once, and then time passes.
    for _ in 0..200 {
        for _ in 0..10_000 {
            let written = nodes(model.hosts).find(|node| {
                let running = state.host(*node).running.as_ref();
                running.is_some_and(|running| running.writing.is_some())
            });
            let arrives = state.air.flights().next();
            let next = written.map(Action::Written);
            let arrive = |(from, to, kind)| Action::Arrive(from, to, kind, false);
            let Some(next) = next.or(arrives.map(arrive)) else {
                break;
            };
            state = step(&state, next);
        }
        assert!(state.broken.is_none(), "{:?}", state.broken);
        let is_ready = |host: &Host| {
            let view = host.running.as_ref().and_then(|it| it.quorum.view());
            view.is_some_and(|view| view.members.len() == state.hosts.len())
                && host.lease_ends().is_some_and(|at| at > state.now)
                && host
                    .running
                    .as_ref()
                    .is_some_and(|it| it.quorum.certified().is_some())
        };
        if state.hosts.iter().all(|host| is_ready(host)) {
            state.left = model.bounds;
            state.seen = Seen::default();
            let running = state.hosts[0].running.as_ref();
            let certified = running.and_then(|it| it.quorum.certified());
            let first = certified.expect("it is ready").view_config.clone();
            model.first.set(first).expect("there is one beginning");
            return state;
        }
        state.now = state.now + LEASE / 20;
        for node in nodes(model.hosts) {
            state = step(&state, Action::Wake(node));
        }
    }
    unreachable!("a group without faults comes to a view")
}
