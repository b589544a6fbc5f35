//! How often waiters look whether a lock is free.

use std::time::Duration;

use distlock_agent::protocol::Time;

/// How often somebody should look. A single waiter looks a little more often.
const LOOK: Duration = Duration::from_millis(30);

/// How seldom one of many waiters looks. It bounds the delay when all the others are stopped.
const SELDOM: Duration = Duration::from_millis(250);

/// How long a waiter sleeps between its looks. Where many wait each looks seldom: it sees by the
/// count of all looks whether the others look enough. A waiter that is killed or stopped no longer
/// counts, without anybody's help.
pub(super) struct Pace {
    sleep: Duration,
    looks: u32,
    at: Time,
}

impl Pace {
    pub(super) fn new(looks: u32, now: Time) -> Self {
        Self {
            sleep: LOOK,
            looks,
            at: now,
        }
    }

    /// After a look without success: how long to sleep. `looks` counts all looks.
    pub(super) fn next(&mut self, looks: u32, now: Time) -> Duration {
        let elapsed = now.since(self.at);
        // A ring that came early says nothing about how often the others look by themselves.
        if elapsed >= self.sleep / 2 {
            let expected = LOOK * looks.wrapping_sub(self.looks).min(10_000);
            if expected > elapsed * 3 / 2 {
                self.sleep = (self.sleep * 3 / 2).min(SELDOM);
            } else if expected < elapsed {
                self.sleep = (self.sleep / 2).max(LOOK);
            }
            (self.looks, self.at) = (looks, now);
        }
        // Those that were woken together should not stay together.
        let jitter = u32::try_from(now.as_nanos() / 1_000 % 1_000).expect("less than 1000");
        self.sleep - self.sleep * jitter / 2_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waiters_look_as_often_as_one() {
        // A minute of their life, without the sleeping.
        let looks_of = |count: usize| {
            let mut now = Time::ZERO;
            let mut waiters: Vec<_> = (0..count).map(|_| (now, Pace::new(0, now))).collect();
            let mut looks = 0;
            while now < Time::ZERO + Duration::from_secs(60) {
                let (due, pace) = waiters.iter_mut().min_by_key(|(due, _)| *due).unwrap();
                now = *due + Duration::from_micros(13);
                looks += 1;
                *due = now + pace.next(looks, now);
            }
            looks
        };
        let one = looks_of(1);
        assert!((60_000 / 30..60_000 / 15).contains(&one), "{one}");
        for count in [2, 5, 8] {
            let looks = looks_of(count);
            assert!(
                (one / 2..one * 3).contains(&looks),
                "{looks} of {count}, {one} of one"
            );
        }
        // From there on each looks as seldom as it may.
        assert!(looks_of(100) < 60_000 / 125 * 110);
    }
}
