//! Prometheus beside the laboratory, whose hosts it reaches by relays: it scrapes each second, and each second
//! it is asked which alerts fire.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::alerts::judge::{Fault, Seen};
use crate::clock::now_ns;
use crate::laboratory::Laboratory;
use crate::prometheus::Prometheus;

const RULES: &str = "../packaging/prometheus/distlock.rules.yml";
const EACH: Duration = Duration::from_secs(1);
/// Nobody is waited for longer by a relay: an agent may be stopped.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _relays: Vec<Relay>,
}

struct Shared {
    prometheus: Prometheus,
    start: u64,
    seen: Mutex<Seen>,
    asked: AtomicUsize,
    unanswered: AtomicUsize,
    is_over: AtomicBool,
}

impl Watch {
    /// Over all hosts of `lab`. `None` where there is no Prometheus.
    pub(super) fn new(lab: &Laboratory) -> Option<Self> {
        let numbers = lab.numbers();
        let relay = |&host: &u16| Relay::new(lab.place.metrics(host)).expect("a port");
        let relays: Vec<_> = numbers.iter().map(relay).collect();
        let mut config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: distlock\n    static_configs:\n",
            rules()
        );
        for (host, relay) in numbers.iter().zip(&relays) {
            config += &format!(
                "      - {{targets: [\"{}\"], labels: {{instance: \"{host}\"}}}}\n",
                relay.address
            );
        }
        let directory = lab.place.directory.join("prometheus");
        fs::create_dir(&directory).expect("a directory");
        let shared = Arc::new(Shared {
            prometheus: Prometheus::start(&directory, &config)?,
            start: now_ns(),
            seen: Mutex::default(),
            asked: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let asks = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !asks.is_over.load(Ordering::Relaxed) {
                asks.ask();
                thread::sleep(EACH);
            }
        });
        Some(Self {
            shared,
            thread: Some(thread),
            _relays: relays,
        })
    }

    /// Since the start.
    pub(super) fn now(&self) -> Duration {
        self.shared.now()
    }

    /// All that was seen so far.
    pub(super) fn seen(&self) -> Seen {
        self.shared.seen.lock().expect("the thread goes on").clone()
    }

    /// How often Prometheus was asked, and how often it did not answer.
    pub(super) fn asked(&self) -> (usize, usize) {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (count(&self.shared.asked), count(&self.shared.unanswered))
    }

    /// Whether `question` has an answer now.
    fn holds(&self, question: &str) -> bool {
        let series = self.shared.prometheus.query(question);
        series.is_some_and(|series| !series.is_empty())
    }

    /// Waits until `question` has an answer; whether it comes in `patience`.
    pub(super) fn await_answer(&self, question: &str, patience: Duration) -> bool {
        self.wait(patience, || self.holds(question))
    }

    /// Waits until the alert of `fault` fires wherever it must, with `each` done all the time; whether it does
    /// in `patience`.
    pub(super) fn await_alert(
        &self,
        fault: &Fault,
        patience: Duration,
        mut each: impl FnMut(),
    ) -> bool {
        self.wait(patience, || {
            each();
            let seen = self.seen();
            let mut hosts = fault.hosts.iter();
            hosts.all(|&host| fault.fired(host, &seen).is_some())
        })
    }

    fn wait(&self, patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let until = self.now() + patience;
        while self.now() < until {
            if is_so() {
                return true;
            }
            thread::sleep(EACH / 10);
        }
        false
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        Duration::from_nanos(now_ns() - self.start)
    }

    /// Asks which alerts fire, and notes them.
    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        let Some(answer) = self.prometheus.get("alerts") else {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let alerts = answer["alerts"].as_array().expect("alerts").iter();
        let mut seen = self.seen.lock().expect("nobody fails with it");
        for alert in alerts.filter(|alert| alert["state"] == "firing") {
            let label = |name: &str| alert["labels"][name].as_str().expect("a label");
            let host = label("instance").parse().expect("a host's number");
            let key = (label("alertname").to_owned(), host);
            let times = seen.entry(key).or_default();
            // Several series of one host may fire.
            if times.last() != Some(&now) {
                times.push(now);
            }
        }
    }
}

/// The rules as they are shipped.
pub(super) fn rules() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
    path.canonicalize().expect("the rules are there")
}

/// A port of loopback behind which a Unix socket is.
struct Relay {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
}

impl Relay {
    fn new(socket: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, socket) = (stream.expect("a scrape"), socket.clone());
                // An agent that has ended is not reached, as a host that is down.
                thread::spawn(move || pass_on(&stream, &socket));
            }
        });
        Ok(Self { address, is_closed })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// Both ways, until the agent has answered.
fn pass_on(scrape: &TcpStream, socket: &Path) -> io::Result<()> {
    let agent = UnixStream::connect(socket)?;
    scrape.set_read_timeout(Some(PATIENCE))?;
    agent.set_read_timeout(Some(PATIENCE))?;
    let (mut asked, mut asks) = (scrape.try_clone()?, agent.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut asked, &mut asks);
        let _ = asks.shutdown(Shutdown::Write);
    });
    let answered = io::copy(&mut &agent, &mut &*scrape);
    scrape.shutdown(Shutdown::Both)?;
    answered.map(|_| ())
}
