//! Agents that decide about a lock by what the store says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use distlock_protocol::api::{Command, Event, Wait};
use distlock_protocol::ledger::{
    Key, Ledger, LedgerConfig, LedgerInput, LedgerOutput, Notice, StoreEvent,
};
use distlock_protocol::lock::{Mode, Release};
use distlock_protocol::{LockName, Ticket};
use distlock_stores::StoreOptions;
use distlock_stores::postgresql::Postgresql;

use crate::driver::Driver;
use crate::server::{Server, options};

/// An agent with one caller.
struct Agent {
    ledger: Ledger,
    driver: Driver,
    interest: BTreeSet<Key>,
    events: Vec<Event>,
    last_ticket: u64,
}

impl Agent {
    fn new(options: StoreOptions) -> Self {
        let config = LedgerConfig {
            group: options.group.clone(),
            lease: options.lease,
            lock_delay: Duration::ZERO,
            host: "h".to_owned(),
            permits: BTreeMap::new(),
            collect_every: None,
            seed: options.seed ^ 1,
        };
        let mut driver = Driver::new(Box::new(Postgresql::new(options)));
        let facts = driver.up();
        let mut agent = Self {
            ledger: Ledger::new(config, driver.time()),
            driver,
            interest: BTreeSet::new(),
            events: vec![],
            last_ticket: 0,
        };
        let wall = Duration::from_secs(60_000_000);
        agent.input(LedgerInput::Wall(wall));
        agent.input(LedgerInput::Store(StoreEvent::Up(facts)));
        agent
    }

    fn input(&mut self, input: LedgerInput<'_>) {
        self.ledger.handle(self.driver.time(), input);
        // Changes are worth a hint from now on, so before what is asked now is answered.
        let interest = self.ledger.interest();
        if interest != self.interest {
            let keys: Vec<Key> = interest.iter().cloned().collect();
            self.driver.interest(&keys);
            self.interest = interest;
        }
        while let Some(output) = self.ledger.poll_output() {
            match output {
                // The driver counts as the ledger does.
                LedgerOutput::Submit(id, op) => assert_eq!(self.driver.submit(op), id),
                LedgerOutput::Event(event) => self.events.push(event),
                LedgerOutput::Refused { why, .. } => panic!("{why}"),
                LedgerOutput::Notice(Notice::StoreForgot { .. }) => panic!("the store forgot"),
                LedgerOutput::Notice(_) | LedgerOutput::Leader { .. } => {}
            }
        }
    }

    fn turn(&mut self) {
        self.driver.turn(Duration::from_millis(20));
        for event in self.driver.events() {
            self.input(LedgerInput::Store(event));
        }
        let due = self.ledger.poll_timeout();
        if due.is_some_and(|time| time <= self.driver.time()) {
            self.input(LedgerInput::Timeout);
        }
    }

    /// Enters the lock, and says by which fence.
    fn enter(&mut self, lock: &LockName) -> (Ticket, u64) {
        self.last_ticket += 1;
        let asked = Ticket(self.last_ticket);
        self.input(LedgerInput::Command(&Command::Acquire {
            ticket: asked,
            lock: lock.clone(),
            spec: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        }));
        loop {
            for event in std::mem::take(&mut self.events) {
                match event {
                    Event::Granted { ticket, fence, .. } if ticket == asked => {
                        return (asked, fence.as_u64());
                    }
                    Event::Lease { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            self.turn();
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        let how = Release::Given;
        self.input(LedgerInput::Command(&Command::Release { ticket, how }));
    }

    /// Goes on until everything is given back.
    fn close(mut self) {
        self.input(LedgerInput::Command(&Command::Leave));
        while !self.events.contains(&Event::Left) {
            self.turn();
        }
    }
}

/// Has some agents enter a lock by turns, and says how long all took.
fn take_turns(agents: Vec<Agent>, times: u32) -> Duration {
    let lock = LockName::new("printer").unwrap();
    let (inside, last_fence) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = SystemTime::now();
    thread::scope(|scope| {
        for mut agent in agents {
            let (lock, inside, last_fence) = (&lock, &inside, &last_fence);
            scope.spawn(move || {
                for _ in 0..times {
                    let (ticket, fence) = agent.enter(lock);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    let before = last_fence.swap(fence, Ordering::SeqCst);
                    assert!(before < fence, "{before} was before {fence}");
                    thread::sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    agent.leave(ticket);
                }
                agent.close();
            });
        }
    });
    begun.elapsed().unwrap()
}

#[test]
fn agents_take_turns_at_a_lock_and_are_woken_by_hints() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let agents = (0..4).map(|_| Agent::new(options(server.tcp()))).collect();
    let took = take_turns(agents, 25);
    eprintln!("100 turns of four agents took {took:?}");
    // Each hand-over would take up to two seconds, a third of the lease, if it were found by reading.
    assert!(took < Duration::from_secs(30), "{took:?}");
    // Sessions are removed, and the lock's record stays.
    assert_eq!(
        server.sql("SELECT key, value::json -> 'inside', value::json -> 'queue' FROM distlock"),
        "distlock/test/lock/printer|[]|[]"
    );
}

#[test]
fn agents_take_turns_without_hints_too() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let agent = |_| {
        let mut options = options(server.tcp());
        options.has_hints = false;
        options.lease = Duration::from_secs(1);
        Agent::new(options)
    };
    take_turns((0..3).map(agent).collect(), 3);
}

#[test]
fn agents_take_turns_though_the_server_ends_their_connections() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let agents = (0..3).map(|_| Agent::new(options(server.tcp()))).collect();
    thread::scope(|scope| {
        let turns = scope.spawn(|| take_turns(agents, 100));
        let mut rounds = 0;
        while !turns.is_finished() {
            thread::sleep(Duration::from_millis(150));
            rounds += 1;
            if rounds == 4 {
                server.stop_immediately();
                server.run();
            } else {
                server.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE application_name = 'distlock' AND random() < 0.5",
                );
            }
        }
        eprintln!("300 turns took {:?}", turns.join().unwrap());
    });
}
