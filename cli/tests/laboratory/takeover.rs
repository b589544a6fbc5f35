//! How long a lock is free when its holder has gone.

use std::fmt;
use std::time::Duration;

use crate::clock::now_ns;
use crate::critical::PROGRAM;
use crate::laboratory::{ALL, Laboratory, Order, variable};
use crate::locks::{DEFAULT, Lock};
use crate::resource::Writer;

/// How the holder goes.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Its host dies: its lease must be waited for.
    Host,
    /// Its process is killed, its agent goes on.
    Client,
    /// Its agent leaves.
    Leave,
}

struct Bounds {
    median: Duration,
    longest: Duration,
}

impl End {
    /// With a lease of one second.
    fn bounds(self) -> Bounds {
        let ms = |median, longest| Bounds {
            median: Duration::from_millis(median),
            longest: Duration::from_millis(longest),
        };
        match self {
            Self::Host => ms(1_500, 3_000),
            // A machine with much else to do runs nobody at times.
            Self::Client | Self::Leave => ms(50, 250),
        }
    }
}

#[derive(Debug)]
struct Times(Vec<Duration>);

impl Times {
    fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    fn longest(&self) -> Duration {
        self.0[self.0.len() - 1]
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |percent| self.0[self.0.len() * percent / 100];
        let (first, median, longest) = (self.0[0], self.median(), self.longest());
        let count = self.0.len();
        write!(
            f,
            "{count} times: {first:.1?} at least, {median:.1?} in the median, 90 % by {:.1?}, \
             {longest:.1?} at most",
            at(90)
        )
    }
}

#[test]
fn takeovers() {
    let kills = variable("DISTLOCK_LAB_KILLS");
    let order = Order {
        hosts: variable("DISTLOCK_LAB_HOSTS").unwrap_or(3),
        locks: Lock::only(&variable("DISTLOCK_LAB_ENGINE").unwrap_or_else(|| DEFAULT.to_owned())),
        seed: 1,
        has_shims: false,
        has_multicast: false,
        has_key: true,
        is_watched: false,
        store: None,
    };
    let Some(mut lab) = Laboratory::new(order) else {
        return;
    };
    for end in [End::Host, End::Client, End::Leave] {
        let mut times: Vec<_> = (0..kills.unwrap_or(2))
            .map(|_| take_over(&mut lab, end))
            .collect();
        times.sort();
        let times = Times(times);
        println!("{end:?}: {times}");
        let bounds = end.bounds();
        let is_kept = times.median() <= bounds.median && times.longest() <= bounds.longest;
        assert!(kills.is_none() || is_kept, "{end:?}: {times}");
    }
    lab.judge();
}

/// From before the holder goes until the next one has written.
fn take_over(lab: &mut Laboratory, end: End) -> Duration {
    let holder = hold_by_program(lab);
    let host = lab.host(holder.host);
    let from = now_ns();
    match end {
        End::Host => host.kill_all(),
        End::Client => host.kill_program(),
        End::Leave => host.end_agent(),
    }
    let next = lab.resource.await_other(&holder);
    lab.resource.invite(false);
    lab.start();
    lab.await_everybody("the holder is back", ALL);
    Duration::from_nanos(next.since - from)
}

/// A program that is inside, and stays.
fn hold_by_program(lab: &Laboratory) -> Writer {
    loop {
        let holder = lab.resource.hold();
        if holder.way == PROGRAM {
            return holder;
        }
        lab.resource.invite(false);
        // Somebody else's turn.
        lab.resource.await_other(&holder);
    }
}
