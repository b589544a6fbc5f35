//! Whether each alert fired where it had to, after its fault had begun, and nowhere and never else.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Something was done for which an alert must fire on each of these hosts. Times are since the start.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) alert: &'static str,
    pub(super) hosts: Vec<u16>,
    pub(super) began: Duration,
    /// Until when the alert may fire; `None` is to the end.
    pub(super) until: Option<Duration>,
}

/// When each alert was seen to fire on which host.
pub(super) type Seen = BTreeMap<(String, u16), Vec<Duration>>;

/// One line of the table: an alert that fired on a host, so long after its fault had begun.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    alert: &'static str,
    host: u16,
    began: Duration,
    took: Duration,
}

impl Fault {
    fn allows(&self, alert: &str, host: u16, at: Duration) -> bool {
        let is_within = self.began <= at && self.until.is_none_or(|until| at <= until);
        self.alert == alert && self.hosts.contains(&host) && is_within
    }

    /// When its alert was first seen on `host`.
    pub(super) fn fired(&self, host: u16, seen: &Seen) -> Option<Duration> {
        let times = seen.get(&(self.alert.to_owned(), host))?;
        let mut times = times.iter().copied();
        times.find(|&at| self.allows(self.alert, host, at))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (began, took) = (self.began.as_secs(), self.took.as_secs_f64());
        let (alert, host) = (self.alert, self.host);
        write!(f, "{alert:<23} | host-{host} | {began:>5} | {took:>6.1}")
    }
}

/// The table, and all that is wrong.
pub(super) fn judge(faults: &[Fault], seen: &Seen) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    for fault in faults {
        let (alert, began) = (fault.alert, fault.began);
        for &host in &fault.hosts {
            match fault.fired(host, seen) {
                Some(at) => rows.push(Row {
                    alert,
                    host,
                    began,
                    took: at - began,
                }),
                None => wrong.push(format!(
                    "{alert} did not fire on host {host}, though its fault began after {} s",
                    began.as_secs()
                )),
            }
        }
    }
    for ((alert, host), times) in seen {
        let allowed = |&at: &Duration| faults.iter().any(|it| it.allows(alert, *host, at));
        let strange: Vec<_> = times.iter().copied().filter(|at| !allowed(at)).collect();
        if let [first, .., last] | [first @ last] = &strange[..] {
            wrong.push(format!(
                "{alert} fired on host {host} without its fault, {} times from {} s to {} s",
                strange.len(),
                first.as_secs(),
                last.as_secs()
            ));
        }
    }
    (rows, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// On hosts 1 and 2, from 10 to 30 seconds.
    fn fault() -> Fault {
        Fault {
            alert: "A",
            hosts: vec![1, 2],
            began: secs(10),
            until: Some(secs(30)),
        }
    }

    fn seen(all: &[(&str, u16, u64)]) -> Seen {
        let mut seen = Seen::new();
        for &(alert, host, at) in all {
            let times = seen.entry((alert.to_owned(), host)).or_default();
            times.push(secs(at));
        }
        seen
    }

    #[test]
    fn what_fires_for_its_fault_is_right() {
        let seen = seen(&[("A", 1, 12), ("A", 1, 13), ("A", 2, 30)]);
        let (rows, wrong) = judge(&[fault()], &seen);
        assert_eq!(wrong, Vec::<String>::new());
        let rows: Vec<_> = rows.iter().map(|row| (row.host, row.took)).collect();
        assert_eq!(rows, [(1, secs(2)), (2, secs(20))]);
    }

    #[track_caller]
    fn assert_wrong(more: &[(&str, u16, u64)], why: &str) {
        let all = [&[("A", 1, 12)], more].concat();
        let (_, wrong) = judge(&[fault()], &seen(&all));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with(why), "{wrong:?}");
    }

    #[test]
    fn what_fires_for_nothing_or_does_not_fire_is_found() {
        assert_wrong(&[], "A did not fire on host 2");
        let right = ("A", 2, 12);
        assert_wrong(&[right, ("A", 3, 12)], "A fired on host 3");
        assert_wrong(&[right, ("A", 1, 9)], "A fired on host 1");
        assert_wrong(&[right, ("A", 2, 31)], "A fired on host 2");
        assert_wrong(&[right, ("B", 1, 12)], "B fired on host 1");
    }

    #[test]
    fn what_fired_only_before_its_fault_did_not_fire() {
        let seen = seen(&[("A", 1, 9), ("A", 2, 12)]);
        let (rows, wrong) = judge(&[fault()], &seen);
        assert_eq!((rows.len(), wrong.len()), (1, 2), "{wrong:?}");
    }
}
