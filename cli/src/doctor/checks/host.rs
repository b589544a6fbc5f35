//! The host: its disk, its clock, its limits.

use std::time::Duration;

use distlock_agent::runtime::RECEIVE_BUFFER;

use super::slow_write;
use crate::agent::OPEN_FILES;
use crate::doctor::facts::{Facts, NotMeasured};
use crate::doctor::finding::Finding;
use crate::exit::quoted;

pub(super) fn state_directory(facts: &Facts) -> Finding {
    const ID: &str = "state-directory";
    let Some(state) = &facts.state else {
        return facts.without_node(ID);
    };
    let path = quoted(&state.path);
    if let Some((why, advice)) = &state.refused
        // One that runs has it.
        && facts.status().is_none()
    {
        let what = format!("the state directory {path} is refused: {why}");
        return Finding::fail(ID, what, advice);
    }
    if state.is_in_memory {
        return Finding::warn(
            ID,
            format_args!("{path} is in memory, and lost at a reboot"),
            "choose one on a disk, with --state-dir or DISTLOCK_STATE_DIR: a majority of voters that \
             loses its state together takes distlock recover",
        );
    }
    match state.is_there {
        None => Finding::skipped(
            ID,
            format_args!("this user may not look at {path}"),
            "run this command as the user that runs the agent",
        ),
        Some(true) => Finding::ok(ID, path),
        Some(false) => Finding::ok(
            ID,
            format_args!("{path} is made at the agent's first start"),
        ),
    }
}

pub(super) fn disk(facts: &Facts) -> Finding {
    const ID: &str = "disk";
    let (Some(state), Some(lease)) = (&facts.state, facts.lease()) else {
        return facts.without_node(ID);
    };
    match &state.writes {
        Ok(writes) => judge_writes(ID, writes, lease),
        Err(NotMeasured::NotThere(path)) => Finding::skipped(
            ID,
            format_args!("the directory of {} is not there yet", quoted(path)),
            "start the agent, which makes it, and run this command again",
        ),
        Err(NotMeasured::Forbidden(why)) => {
            Finding::skipped(ID, why, "run this command as the user that runs the agent")
        }
        Err(NotMeasured::Failed(why)) => Finding::fail(
            ID,
            why,
            "see to the disk: an agent that cannot write its state ends",
        ),
    }
}

/// As agents write their states: with fsync(2) each time.
fn judge_writes(id: &'static str, writes: &[Duration], lease: Duration) -> Finding {
    let Some(slow) = percentile(writes, 99) else {
        return Finding::skipped(id, "nothing was written", "run this command again");
    };
    let count = writes.len();
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1_000.0);
    let what = format!(
        "99 % of {count} writes were on disk within {}",
        millis(slow)
    );
    let bound = slow_write(lease);
    if slow <= bound {
        return Finding::ok(id, what);
    }
    let what = format!("{what}, and a twentieth of the lease is {}", millis(bound));
    let advice = "keep the state on a faster disk, find out what else writes there, or choose a \
                  longer lease: voters answer when their votes are on disk";
    match slow > lease {
        true => Finding::fail(id, what, advice),
        false => Finding::warn(id, what, advice),
    }
}

/// The least of `times` that is not exceeded by more than the rest of them (nearest rank).
fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.checked_sub(1)?).copied()
}

pub(super) fn clock_source(facts: &Facts) -> Finding {
    const ID: &str = "clock-source";
    match &facts.host.clock_source {
        Some(source) => judge_clock_source(ID, source),
        None => Finding::skipped(
            ID,
            "the kernel does not tell it",
            "see what dmesg says of clocksource",
        ),
    }
}

/// Counters that run at one rate and are read in nanoseconds; of virtual machines, those that their
/// hosts keep. Leases are measured by them.
const GOOD_SOURCES: [&str; 9] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
    "hyperv_clocksource_msr",
    "xen",
    "riscv_clocksource",
    "timebase",
    "tod",
];

fn judge_clock_source(id: &'static str, source: &str) -> Finding {
    if GOOD_SOURCES.contains(&source) {
        return Finding::ok(id, source);
    }
    Finding::warn(
        id,
        format_args!("{source}: it is slow to read, and loses time under load if it is jiffies"),
        "see in dmesg why the kernel does not use the processor's counter (TSC: Marking unstable), and \
         mend that",
    )
}

pub(super) fn open_files(facts: &Facts) -> Finding {
    const ID: &str = "open-files";
    let Some(limit) = facts.host.open_files else {
        return Finding::skipped(
            ID,
            "the limits of the agent's process are not known",
            "name its configuration with --config and --id, and run this command as its user or root",
        );
    };
    let whose = match facts.process {
        Some(process) => format!("process {}, this member,", process.pid),
        None => "an agent that is started from here".to_owned(),
    };
    if limit >= OPEN_FILES {
        return Finding::ok(ID, format_args!("{whose} may have {limit}"));
    }
    Finding::warn(
        ID,
        format_args!(
            "{whose} may have {limit}, and needs {OPEN_FILES} for the 4096 programs that it takes: \
             some would be turned away"
        ),
        "raise the hard limit (LimitNOFILE=20480 in the unit, or ulimit -Hn)",
    )
}

/// A queue that holds so much of each member outlasts a stall of the agent, in bytes of datagrams.
const ROOM_OF_A_MEMBER: u64 = 16 * 1_024;

pub(super) fn receive_buffer(facts: &Facts) -> Finding {
    const ID: &str = "receive-buffer";
    let Some((_, members)) = facts.members() else {
        return facts.without_node(ID);
    };
    if members.values().any(|it| it.as_path().is_some()) {
        return Finding::ok(ID, "Unix datagrams need none");
    }
    match facts.host.rmem_max {
        Some(limit) => judge_room(ID, limit, members.len()),
        None => Finding::skipped(
            ID,
            "the kernel does not tell net.core.rmem_max",
            "see sysctl net.core.rmem_max",
        ),
    }
}

fn judge_room(id: &'static str, limit: u64, members: usize) -> Finding {
    let asked = RECEIVE_BUFFER as u64;
    let needed = asked.min(members as u64 * ROOM_OF_A_MEMBER);
    let what = format!("net.core.rmem_max is {limit}");
    if limit >= needed {
        return Finding::ok(id, what);
    }
    Finding::warn(
        id,
        format_args!("{what}, and the queue of a group of {members} needs {needed}"),
        format_args!(
            "raise it with sysctl net.core.rmem_max={asked}, which is what agents ask for"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Process, StateDirectory};
    use crate::doctor::finding::Outcome;

    #[test]
    fn clock_sources_are_known() {
        for good in ["tsc", "kvm-clock", "arch_sys_counter"] {
            assert_eq!(judge_clock_source("x", good).result, Outcome::Ok, "{good}");
        }
        for bad in [
            "jiffies",
            "refined-jiffies",
            "hpet",
            "acpi_pm",
            "",
            "tsc-early",
        ] {
            assert_eq!(judge_clock_source("x", bad).result, Outcome::Warn, "{bad}");
        }
    }

    #[test]
    fn the_slowest_writes_are_judged_by_the_lease() {
        let millis = Duration::from_millis;
        let lease = millis(1_000);
        for (slowest, expected) in [
            (50, Outcome::Ok),
            (51, Outcome::Warn),
            (1_000, Outcome::Warn),
            (1_001, Outcome::Fail),
        ] {
            let mut writes = vec![millis(1); 31];
            writes.push(millis(slowest));
            let told = judge_writes("x", &writes, lease);
            assert_eq!(told.result, expected, "{told}");
        }
        let few = judge_writes("x", &[millis(51)], lease);
        assert_eq!(few.result, Outcome::Warn);
        assert!(few.what.contains("51.0 ms"), "{few}");
        assert_eq!(judge_writes("x", &[], lease).result, Outcome::Skipped);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let at = |percent| percentile(&times, percent).unwrap().as_millis();
        assert_eq!((at(1), at(50), at(99), at(100)), (2, 100, 198, 200));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn the_queue_has_room_for_all_members() {
        // What Linux has by default is enough for a dozen.
        for (limit, members, expected) in [
            (212_992, 3, Outcome::Ok),
            (212_992, 13, Outcome::Ok),
            (212_992, 14, Outcome::Warn),
            (4_096, 3, Outcome::Warn),
            (1 << 20, 1_024, Outcome::Ok),
            ((1 << 20) - 1, 1_024, Outcome::Warn),
        ] {
            let told = judge_room("x", limit, members);
            assert_eq!(told.result, expected, "{told}");
        }
    }

    #[test]
    fn as_many_files_may_be_open_as_clients_need() {
        let mut facts = Facts::default();
        facts.host.open_files = Some(OPEN_FILES);
        assert_eq!(open_files(&facts).result, Outcome::Ok);
        facts.host.open_files = Some(OPEN_FILES - 1);
        let told = open_files(&facts);
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("started from here"), "{told}");
        let is_stopped = false;
        facts.process = Some(Process { pid: 7, is_stopped });
        assert!(open_files(&facts).what.contains("process 7"));
    }

    #[test]
    fn a_state_in_memory_is_a_warning_and_a_refused_one_fails() {
        let mut facts = Facts {
            state: Some(StateDirectory {
                path: "/run/shop-1".into(),
                is_there: Some(true),
                is_in_memory: false,
                refused: None,
                writes: Ok(Vec::new()),
            }),
            ..Facts::default()
        };
        assert_eq!(state_directory(&facts).result, Outcome::Ok);
        let state = facts.state.as_mut().unwrap();
        state.is_there = None;
        assert_eq!(state_directory(&facts).result, Outcome::Skipped);
        let state = facts.state.as_mut().unwrap();
        state.is_in_memory = true;
        let told = state_directory(&facts);
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("'/run/shop-1' is in memory"), "{told}");
        let state = facts.state.as_mut().unwrap();
        state.refused = Some(("others may write to it".to_owned(), "chmod go-w it"));
        assert_eq!(state_directory(&facts).result, Outcome::Fail);
    }
}
