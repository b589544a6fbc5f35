//! Groups with a key: whom they hear, and how the key is changed.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use distlock_agent::protocol::{Algorithm, LockName, wire};
use distlock_agent::runtime::{Agent, GroupKey, KeyFileError, StartError};

use crate::support::{Group, Kind, enter, eventually, lock, udp};

fn take_turns(agents: &[Agent], name: &LockName) {
    for agent in agents {
        enter(agent, name).release().unwrap();
    }
}

fn dropped(agent: &Agent, why: &str) -> u64 {
    let protection = agent.status().unwrap().protection.unwrap();
    protection.dropped.get(why).copied().unwrap_or_default()
}

/// The ids of the keys of an agent.
fn keys(agent: &Agent) -> Vec<String> {
    agent.status().unwrap().protection.unwrap().keys
}

/// Replaces the file at `path`, as a whole.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&next, path).unwrap();
}

/// A new key, as a line of a key file.
fn new_key(directory: &Path, name: &str) -> (String, String) {
    let path = directory.join(name);
    let key = GroupKey::generate().unwrap();
    key.write(&path).unwrap();
    (fs::read_to_string(&path).unwrap(), key.id().to_string())
}

#[test]
fn members_with_the_key_take_turns_and_start_anew() {
    for kind in [Kind::Udp, Kind::Unix] {
        let group = Group::new(kind, 3);
        let group = group.with_quorum().with_key();
        let mut agents = group.start_all();
        let name = lock("printer");
        take_turns(&agents, &name);
        for agent in &agents {
            assert_eq!(keys(agent).len(), 1);
            assert!(agent.counters().transport.handshakes >= 2 * 2);
            for why in ["forged", "malformed", "not-sealed", "unknown-key"] {
                assert_eq!(dropped(agent, why), 0, "{why}");
            }
        }
        // A new incarnation of one, which the others do not know yet.
        agents.remove(0).close();
        agents.insert(0, group.start(1).unwrap());
        take_turns(&agents, &name);
    }
}

#[test]
fn multicast_is_sealed_too() {
    // The default algorithm says nothing to all members.
    let group = Group::by(Algorithm::RicartAgrawala, Kind::Udp, 3);
    let group = group.with_quorum().with_key().with_multicast();
    let agents = group.start_all();
    let reached = |agent: &Agent| agent.status().unwrap().multicast.unwrap().reached.len();
    for agent in &agents {
        eventually("multicast", || reached(agent) == 2);
    }
    let name = lock("printer");
    eventually("a merged request", || {
        take_turns(&agents, &name);
        agents
            .iter()
            .all(|agent| agent.counters().transport.multicast_merged > 0)
    });
    assert!(agents.iter().all(|agent| dropped(agent, "forged") == 0));
    // What a member sends to all it gets back itself, and that is no flood.
    assert!(agents.iter().all(|agent| dropped(agent, "by-kernel") == 0));
}

/// Without the key, with another, and with what was recorded: nobody is let in by that, and the
/// group goes on.
#[test]
fn who_has_not_the_key_is_not_heard() {
    let mut group = Group::new(Kind::Udp, 3);
    group = group.with_quorum().with_key();
    let mut agents = group.start_all();
    let name = lock("printer");
    take_turns(&agents, &name);
    agents.remove(2).close();
    let right = group.key_file.take();
    let plain = group.start(3).unwrap();
    eventually("what is not sealed", || {
        dropped(&agents[0], "not-sealed") > 0
    });
    eventually("what is sealed", || dropped(&plain, "sealed") > 0);
    assert_eq!(plain.status().unwrap().epoch, 0);
    plain.close();

    let mut other = group;
    let path = other.directory.join("other.key");
    GroupKey::generate().unwrap().write(&path).unwrap();
    other.key_file = Some(path);
    let stranger = other.start(3).unwrap();
    eventually("another key", || dropped(&agents[0], "unknown-key") > 0);
    stranger.close();

    other.key_file = right;
    take_turns(&[other.start(3).unwrap()], &name);
    take_turns(&agents, &name);
}

/// From the very address of a member that is not there.
#[test]
fn a_member_is_not_its_address() {
    let group = Group::new(Kind::Udp, 3);
    let group = group.with_quorum().with_key();
    let name = lock("printer");
    let mut agents = group.start_all();
    take_turns(&agents, &name);
    agents.remove(2).close();
    let mut addresses = group.members.values().map(udp);
    let (first, third) = (addresses.next().unwrap(), addresses.nth(1).unwrap());
    let impostor = UdpSocket::bind(third).unwrap();
    let timeout = Some(std::time::Duration::from_secs(30));
    impostor.set_read_timeout(timeout).unwrap();
    let mut heard = [0; 2_000];
    for round in 0..200u8 {
        impostor
            .send_to(&[wire::VERSION | 0x80; 90], first)
            .unwrap();
        impostor.send_to(&[wire::VERSION; 90], first).unwrap();
        // What it hears, sent back, and changed.
        let (len, from) = impostor.recv_from(&mut heard).unwrap();
        impostor.send_to(&heard[..len], from).unwrap();
        heard[7] = heard[5];
        heard[5] = 3;
        heard[usize::from(round) % len] ^= 1;
        impostor.send_to(&heard[..len], from).unwrap();
    }
    let all = || {
        let reasons = ["not-sealed", "malformed", "forged", "unknown-key"];
        reasons
            .map(|why| dropped(&agents[0], why))
            .iter()
            .sum::<u64>()
    };
    eventually("all that was sent", || all() >= 400);
    assert!(dropped(&agents[0], "forged") > 0);
    take_turns(&agents, &name);
    drop(impostor);
    take_turns(&[group.start(3).unwrap()], &name);
}

/// Add the new key everywhere, put it first everywhere, remove the old one everywhere: and somebody
/// is inside all the time.
#[test]
fn a_key_is_replaced_while_the_group_runs() {
    let group = Group::new(Kind::Udp, 3).with_quorum();
    let (old, old_id) = new_key(&group.directory, "old");
    let (new, new_id) = new_key(&group.directory, "new");
    let paths: Vec<PathBuf> = (1..=3)
        .map(|id| group.directory.join(format!("key-{id}")))
        .collect();
    paths.iter().for_each(|path| replace(path, &old));
    let agents: Vec<_> = (1..=3)
        .map(|id| {
            let mut options = group.options(id);
            options.key_file = Some(paths[usize::from(id) - 1].clone());
            Agent::start(options).unwrap()
        })
        .collect();
    let name = lock("printer");
    take_turns(&agents, &name);
    let epoch = agents[0].status().unwrap().epoch;

    let steps = [
        (format!("{old}{new}"), vec![&old_id, &new_id]),
        (format!("{new}{old}"), vec![&new_id, &old_id]),
        (new.clone(), vec![&new_id]),
    ];
    for (text, expected) in &steps {
        for (agent, path) in agents.iter().zip(&paths) {
            replace(path, text);
            eventually("the change", || keys(agent).iter().eq(expected.clone()));
            thread::scope(|scope| {
                for agent in &agents {
                    scope.spawn(|| {
                        (0..5).for_each(|_| take_turns(std::slice::from_ref(agent), &name))
                    });
                }
            });
        }
    }
    assert_eq!(
        agents[0].status().unwrap().epoch,
        epoch,
        "nobody was missed"
    );
    assert!(
        agents
            .iter()
            .all(|agent| dropped(agent, "unknown-key") == 0)
    );

    // What is wrong changes nothing.
    replace(&paths[0], "nonsense");
    thread::sleep(std::time::Duration::from_millis(1_500));
    take_turns(&agents, &name);
    assert_eq!(keys(&agents[0]), [&*new_id]);
    replace(&paths[0], &format!("{new}{old}"));
    eventually("a good one again", || keys(&agents[0]).len() == 2);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let group = Group::new(Kind::Udp, 3).with_key();
    let path = group.key_file.as_ref().unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    let refused = group.start(1).unwrap_err();
    assert!(
        matches!(
            refused,
            StartError::Keys(KeyFileError::Loose { mode: 0o644, .. })
        ),
        "{refused}"
    );
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    group.start(1).unwrap();
}
