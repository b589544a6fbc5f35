use std::io::{Read, Write};

use mio::Poll;

use super::*;
use crate::protocol::{NodeId, Previous, Release};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::events::Leader;
use crate::runtime::api::patience::Patience;
use crate::runtime::clients::lifeline::LifelineDir;
use crate::runtime::clients::limits::MAX_REQUESTS;
use crate::runtime::shared::alone;

/// What was sent was kept until all was: of a client that always has something left to read, that
/// need never come.
#[test]
fn what_is_sent_is_forgotten_also_of_who_never_catches_up() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let peer = Peer::of(&ours).unwrap();
    let process = Process::of_peer(&ours, peer.pid).unwrap();
    let mut client = Connection::new(ours, peer, process);
    let status = vec![0; 4 * UNREAD_LIMIT];
    let mut chunk = [0; 4_096];
    for id in 1..=20 {
        client.tell_status(id, &status);
        while client.unread() > status.len() {
            client.flush().unwrap();
            // There may be nothing yet.
            let _ = theirs.read(&mut chunk);
        }
        assert!(client.unread() > 0);
        assert!(client.taken() <= 3 * status.len(), "{}", client.taken());
    }
}

/// What `client` is told now, by one who has the time to read all of it.
fn read_all(client: &mut Connection, theirs: &mut UnixStream) -> Vec<FromAgent> {
    let (mut bytes, mut told, mut chunk) = (Vec::new(), Vec::new(), [0; 4_096]);
    while client.unread() > 0 {
        client.flush().unwrap();
        while let Ok(len) = theirs.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..len]);
        }
    }
    let mut at = 0;
    while let Some((message, len)) = frames::take(&bytes[at..], MAX_FROM_AGENT).unwrap() {
        told.push(message);
        at += len;
    }
    assert_eq!(at, bytes.len());
    told
}

/// Who had not read while leaders changed believed for ever in the one before.
#[test]
fn who_missed_events_is_told_so_and_who_leads_now() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let peer = Peer::of(&ours).unwrap();
    let process = Process::of_peer(&ours, peer.pid).unwrap();
    let mut client = Connection::new(ours, peer, process);
    client.subscriptions.listens = true;
    // They do not fit at once.
    let elections = MAX_REQUESTS;
    let name = |number: usize| LockName::new(format!("{number:0>255}")).unwrap();
    let member = |id| NodeId::new(id).unwrap();
    let observed = (0..elections).map(|number| (name(number), true));
    client.subscriptions.elections = observed.collect();
    let led_by = |number, id| AgentEvent::Leader {
        lock: name(number),
        leader: Some(Leader::of_member(member(id), None)),
    };
    let alive = AgentEvent::Alive { peer: member(1) };
    let mut missed = 0;
    for number in 0..elections {
        assert!(client.tell_event(&led_by(number, 1)).is_some());
        let heard = client.tell_event(&alive).unwrap();
        missed += u64::from(heard == Heard::Missed);
    }
    assert!(missed > 0 && !client.subscriptions.can_catch_up(&client.output));
    let (mut leaders, mut events) = (BTreeMap::new(), Vec::new());
    loop {
        for message in read_all(&mut client, &mut theirs) {
            match message {
                FromAgent::Leader { lock, leader } => drop(leaders.insert(lock, leader)),
                FromAgent::Event(event) => events.push(event),
                other => panic!("{other:?}"),
            }
        }
        if !client.subscriptions.can_catch_up(&client.output) {
            break;
        }
        let leader = |_: &LockName| Some(Leader::of_member(member(1), None));
        client.subscriptions.catch_up(leader, &mut client.output);
        assert!(client.unread() < 2 * UNREAD_LIMIT);
    }
    assert_eq!(leaders.len(), elections);
    assert_eq!(events.pop(), Some(AgentEvent::Missed(missed)));
    assert_eq!(events.len() as u64 + missed, elections as u64);
    // From now on it hears everything again.
    assert_eq!(client.tell_event(&alive), Some(Heard::Told));
    let told = read_all(&mut client, &mut theirs);
    assert_eq!(told, [FromAgent::Event(alive)]);
}

fn say(stream: &mut UnixStream, message: &ToAgent) {
    let mut bytes = Vec::new();
    frames::put(&mut bytes, message, MAX_TO_AGENT).unwrap();
    assert_eq!(stream.write(&bytes).unwrap(), bytes.len());
}

/// An agent that was about to tell a client something saw by that, and not by the poll, that the client
/// had closed its stream. What that had said before was not read any more: its release, and its lock
/// counted as abandoned.
#[test]
fn what_was_said_last_is_heard_though_the_end_is_seen_in_writing() {
    let directory = tempfile::tempdir().unwrap();
    let agent = alone(directory.path(), None);
    let poll = Poll::new().unwrap();
    let (lifeline_dir, _) = LifelineDir::open(directory.path()).unwrap();
    let mut lifelines = Lifelines::new(lifeline_dir);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let peer = Peer::of(&ours).unwrap();
    let process = Process::of_peer(&ours, peer.pid).unwrap();
    let mut client = Connection::new(ours, peer, process);
    let mut work = |client: &mut Connection| {
        let (shared, registry) = (&*agent.shared, poll.registry());
        client.work(ClientId(1), TURN_LIMIT, shared, &mut lifelines, registry)
    };
    let lock = LockName::new("x").unwrap();
    let acquire = ToAgent::Acquire {
        id: 1,
        lock: lock.clone(),
        spec: None,
        mode: Mode::Exclusive,
        patience: Patience::Forever,
        command: String::new(),
        lifeline: false,
        waits_by_loan: false,
    };
    say(&mut theirs, &acquire);
    // More than it reads.
    client.tell(&FromAgent::Forbidden);
    work(&mut client).unwrap();
    let how = Release::Given;
    say(&mut theirs, &ToAgent::Release { id: 1, how });
    drop(theirs);
    client.tell(&FromAgent::Granted {
        id: 1,
        fence: 0,
        abandoned: false,
    });
    let ended = work(&mut client).unwrap_err();
    assert!(matches!(ended, Ended::Stream(_)), "{ended}");
    let registry = poll.registry();
    let _ = client.end(ClientId(1), &agent.shared, &mut lifelines, registry);
    let grant = agent.acquire(&lock, None, Patience::Try, Caller::current());
    assert_eq!(grant.unwrap().previous(), Previous::Clean);
}
