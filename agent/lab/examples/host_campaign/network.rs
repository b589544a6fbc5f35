//! The network between hosts, which loses datagrams, doubles them, and has them overtake each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use distlock_lab::choices::{Choices, Permille};

use crate::page::{Datagram, NEVER};

/// How long a datagram is under way at least, in nanoseconds.
const LEAST: u64 = 5_000;
/// How late its second copy may come: after the end of a lease, a view and an incarnation.
const LATEST: u64 = 20_000_000_000;

pub(crate) struct Network {
    pub(crate) lost: Permille,
    pub(crate) twice: Permille,
    /// Of how many a second copy comes long after.
    pub(crate) late: Permille,
    /// The mean time that a datagram is under way.
    pub(crate) delay: Duration,
    /// The hosts that nothing reaches, and from which nothing comes.
    pub(crate) cut_off: BTreeSet<usize>,
    /// From which host nothing reaches which other, and which host that is undone with.
    cut: BTreeSet<(usize, usize, usize)>,
    /// When each datagram under way arrives, and its number.
    arrivals: BinaryHeap<Reverse<(u64, u64)>>,
    under_way: BTreeMap<u64, Datagram>,
    sent: u64,
    post: UnixDatagram,
}

impl Network {
    /// A good one.
    ///
    /// # Errors
    /// If no socket is to be had.
    pub(crate) fn new() -> io::Result<Self> {
        let post = UnixDatagram::unbound()?;
        post.set_nonblocking(true)?;
        Ok(Self {
            lost: 0,
            twice: 0,
            late: 0,
            delay: Duration::from_micros(100),
            cut_off: BTreeSet::new(),
            cut: BTreeSet::new(),
            arrivals: BinaryHeap::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            post,
        })
    }

    /// Takes a datagram, and chooses what becomes of it.
    pub(crate) fn take(&mut self, datagram: Datagram, choices: &mut Choices) {
        let (from, to) = (datagram.host, host_of(&datagram));
        if from != to {
            let is_cut_off = [from, to].iter().any(|host| self.cut_off.contains(host));
            if is_cut_off || self.is_cut(from, to) || choices.chance(self.lost) {
                return;
            }
            if choices.chance(self.late) {
                let at = datagram.at + choices.below(LATEST);
                self.send_at(at, datagram.clone());
            }
        }
        let copies = 1 + u64::from(from != to && choices.chance(self.twice));
        for _ in 0..copies {
            let delay = choices.exponential(self.delay).as_nanos();
            let at = datagram.at + u64::try_from(delay).unwrap_or(NEVER / 2);
            self.send_at(at, datagram.clone());
        }
    }

    fn send_at(&mut self, at: u64, datagram: Datagram) {
        self.sent += 1;
        self.arrivals.push(Reverse((at + LEAST, self.sent)));
        self.under_way.insert(self.sent, datagram);
    }

    /// What is undone with this host is.
    pub(crate) fn connect(&mut self, host: usize) {
        self.cut_off.remove(&host);
        self.cut.retain(|(_, _, with)| *with != host);
    }

    /// From now on nothing goes between the hosts of `side` and the others, until `with` is connected.
    pub(crate) fn split(&mut self, side: &BTreeSet<usize>, hosts: usize, with: usize) {
        let others = || (0..hosts).filter(|other| !side.contains(other));
        let pairs = side
            .iter()
            .flat_map(|one| others().map(|other| (*one, other)));
        for (one, other) in pairs {
            self.cut(one, other, with);
            self.cut(other, one, with);
        }
    }

    /// From now on nothing goes from one host to another, until `with` is connected.
    pub(crate) fn cut(&mut self, from: usize, to: usize, with: usize) {
        self.cut.insert((from, to, with));
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        let all = (from, to, 0)..=(from, to, usize::MAX);
        self.cut.range(all).next().is_some()
    }

    /// The hosts to which there is a way from `host`, perhaps by others, and itself: no fewer than those that hear of
    /// what it sends.
    pub(crate) fn reached_from(&self, host: usize, hosts: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([host]);
        let mut left = vec![host];
        while let Some(from) = left.pop() {
            let is_reached = |to: &usize| {
                let is_cut_off = [from, *to].iter().any(|end| self.cut_off.contains(end));
                !is_cut_off && !self.is_cut(from, *to)
            };
            let next = (0..hosts).filter(is_reached);
            left.extend(next.filter(|to| found.insert(*to)));
        }
        found
    }

    /// Whether none of its requests can be answered.
    pub(crate) fn is_cut_off(&self, host: usize, hosts: usize) -> bool {
        let mut others = (0..hosts).filter(|other| *other != host);
        let is_cut = |from, to| self.is_cut(from, to);
        self.cut_off.contains(&host)
            || others.clone().all(|other| is_cut(host, other))
            || others.all(|other| is_cut(other, host))
    }

    /// When the next datagram arrives.
    pub(crate) fn next(&self) -> u64 {
        self.arrivals.peek().map_or(NEVER, |Reverse((at, _))| *at)
    }

    /// Hands over what has arrived; the hosts at which something did.
    ///
    /// # Errors
    /// If there is no such address.
    pub(crate) fn deliver(&mut self, now: u64) -> io::Result<Vec<usize>> {
        let mut hosts = Vec::new();
        while self.next() <= now {
            let Some(Reverse((_, number))) = self.arrivals.pop() else {
                break;
            };
            let datagram = self.under_way.remove(&number).expect("it is there");
            let (address, port) = datagram.to;
            let name = u64::from(u32::from_be_bytes(address)) << 16 | u64::from(port);
            let name = SocketAddr::from_abstract_name(format!("distlock-udp:{name:012x}"))?;
            // Where nobody listens, or the queue is full, it is lost.
            if self.post.send_to_addr(&datagram.data, &name).is_ok() {
                hosts.push(host_of(&datagram));
            }
        }
        Ok(hosts)
    }
}

/// The host of an address 10.0.0.N, numbered from 0.
pub(crate) fn host_of(datagram: &Datagram) -> usize {
    let ([.., number], _) = datagram.to;
    usize::from(number).wrapping_sub(1)
}

/// Where a host's member is reached.
pub(crate) fn address(host: usize) -> String {
    format!("udp:10.0.0.{}:7000", host + 1)
}
