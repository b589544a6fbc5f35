//! What it costs to take turns, beside what the machine allows.
//!
//! Every group of benchmarks fixes the transport, the placement and the number of members, and
//! measures in one run, on the same kind of socket:
//! - the *floor*: a bare ping-pong between two processes, mio on both ends;
//! - for each engine, `acquire` (until `lock` returns) and `pair` (with the release), while nobody
//!   else wants the lock;
//! - for each engine, `hand-over`: all members want it all the time; the time from the release by
//!   one of them to the entry of another.
//!
//! All members are processes of their own. *Two cores*: the one that is measured on one core, the
//! others on another; *one core*: all on one. At the end a table tells the medians, and their
//! ratios to the floor of the group.
//!
//! ```text
//! cargo bench -p distlock-benches --bench turns                             everything: about ten minutes
//! cargo bench -p distlock-benches --bench turns -- 'udp/two cores/2'        a part
//! ```

mod floor;
mod members;
mod place;
mod summary;
mod turns;

use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};
use distlock::Algorithm;

use crate::floor::Echo;
use crate::members::Members;
use crate::place::{Place, Transport};
use crate::summary::Summary;

/// How many members a group has.
const SIZES: [u16; 4] = [2, 3, 5, 8];

/// The role of a process of this program that is not the one that measures.
const ROLE: &str = "DISTLOCK_BENCH_ROLE";

fn main() {
    match std::env::var(ROLE) {
        Ok(role) if role == "echo" => return floor::echo(),
        Ok(role) if role == "member" => return members::run_peer(),
        _ => {}
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    // Asked before the first pinning, which leaves this process a single core.
    let places = Place::available();
    let mut summary = Summary::default();
    for transport in Transport::ALL {
        for &place in &places {
            for size in SIZES {
                bench_group(&mut criterion, &mut summary, transport, place, size);
            }
        }
    }
    criterion.final_summary();
    summary.print();
}

fn bench_group(
    criterion: &mut Criterion,
    summary: &mut Summary,
    transport: Transport,
    place: Place,
    size: u16,
) {
    let name = format!("{transport}/{place}/{size}");
    let mut group = criterion.benchmark_group(&name);
    group.sampling_mode(SamplingMode::Flat);
    place.pin_measured();
    bench_floor(&mut group, summary, &name, transport, place);
    for algorithm in Algorithm::ALL
        .into_iter()
        .filter(|&it| !matches!(it, Algorithm::Kernel | Algorithm::Ledger))
    {
        bench_algorithm(
            &mut group,
            summary,
            &name,
            algorithm,
            (transport, place, size),
        );
    }
    group.finish();
}

fn bench_floor(
    group: &mut BenchmarkGroup<'_, WallTime>,
    summary: &mut Summary,
    name: &str,
    transport: Transport,
    place: Place,
) {
    let mut echo = None;
    group.bench_function("floor", |bencher| {
        summary.measured(name, "floor");
        let echo = echo.get_or_insert_with(|| Echo::start(transport, place));
        bencher.iter(|| echo.round_trip());
    });
}

fn bench_algorithm(
    group: &mut BenchmarkGroup<'_, WallTime>,
    summary: &mut Summary,
    name: &str,
    algorithm: Algorithm,
    (transport, place, size): (Transport, Place, u16),
) {
    // The members are started when the first of the three is not filtered out.
    let mut members = None;
    let mut bench = |what: &str, measure: &mut dyn FnMut(&mut Members, u64) -> Duration| {
        let function = format!("{algorithm} {what}");
        group.bench_function(&function, |bencher| {
            summary.measured(name, &function);
            let members =
                members.get_or_insert_with(|| Members::start(algorithm, transport, place, size));
            bencher.iter_custom(|iterations| measure(members, iterations));
        });
    };
    bench("acquire", &mut |members, iterations| {
        members.acquire(iterations)
    });
    bench("pair", &mut |members, iterations| members.pair(iterations));
    bench("hand-over", &mut |members, iterations| {
        members.hand_over(iterations)
    });
}
