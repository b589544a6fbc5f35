//! The switch: takes every packet out of its host's device, and puts it into the receiver's, later,
//! twice, damaged or not at all, by what is said for this direction. The draws follow from a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::now_ns;
use crate::meddler::{self, Meddler};
use crate::network;
use crate::rng::Rng;

/// What happens to packets in one direction between two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) is_cut: bool,
    pub(crate) lose_per_mille: u64,
    pub(crate) duplicate_per_mille: u64,
    pub(crate) corrupt_per_mille: u64,
    /// Each copy is drawn a delay up to this, so they overtake each other.
    pub(crate) delay_ms: u64,
}

/// How many packets suffered what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) forwarded: u64,
    pub(crate) cut: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
    pub(crate) delayed: u64,
    /// For all hosts, whether they were carried or not.
    pub(crate) multicast: u64,
    /// The receiver's device, or the switch, had no room.
    pub(crate) overrun: u64,
}

/// What got to one host's device, of what is for its member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// What a member sent.
    pub(crate) sent: u64,
    /// What somebody in the middle did.
    pub(crate) made: u64,
}

/// Packets that wait for their time; more are lost, as in any switch.
const MAX_WAITING: usize = 20_000;
/// No packet is longer: the devices' MTU.
const MAX_LEN: usize = 1_500;

pub(crate) struct Switch {
    state: Arc<Mutex<State>>,
    /// Closed when this is dropped, which ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    hosts: usize,
    /// By sender, then receiver.
    links: Vec<Link>,
    rngs: Vec<Rng>,
    counts: Counts,
    carries_multicast: bool,
    meddler: Option<Meddler>,
    /// By host.
    arrivals: Vec<Arrivals>,
    /// What is to be delivered at once, whatever is said of links.
    made: Vec<(u16, Vec<u8>)>,
}

impl Switch {
    /// Between `devices`, of hosts 1 and up.
    pub(crate) fn new(devices: Vec<File>, seed: u64) -> Self {
        let hosts = devices.len();
        let mut seeds = Rng::new(seed);
        let links = hosts * hosts;
        let state = Arc::new(Mutex::new(State {
            hosts,
            links: vec![Link::default(); links],
            rngs: (0..links).map(|_| Rng::new(seeds.next())).collect(),
            counts: Counts::default(),
            carries_multicast: true,
            meddler: None,
            arrivals: vec![Arrivals::default(); hosts],
            made: Vec::new(),
        }));
        let (stopped, stop) = nix::unistd::pipe().expect("a pipe");
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || forward(&devices, &shared, &stopped));
        Self {
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Sets all directions: `link` tells, of a sender and a receiver.
    pub(crate) fn set(&self, link: impl Fn(u16, u16) -> Link) {
        let mut state = lock(&self.state);
        let hosts = u16::try_from(state.hosts).expect("few hosts");
        for from in 1..=hosts {
            for to in 1..=hosts {
                let index = state.index(from, to);
                state.links[index] = link(from, to);
            }
        }
    }

    /// Whether what is for all hosts gets to any, from now on.
    pub(crate) fn carry_multicast(&self, carries: bool) {
        lock(&self.state).carries_multicast = carries;
    }

    /// Lets somebody into the middle, or out; who was there before.
    pub(crate) fn let_in(&self, meddler: Option<Meddler>) -> Option<Meddler> {
        std::mem::replace(&mut lock(&self.state).meddler, meddler)
    }

    /// Delivers packets that nobody sent, each to a host.
    pub(crate) fn inject(&self, packets: impl IntoIterator<Item = (u16, Vec<u8>)>) {
        lock(&self.state).made.extend(packets);
    }

    /// Whether all that was injected is delivered.
    pub(crate) fn is_drained(&self) -> bool {
        lock(&self.state).made.is_empty()
    }

    /// What got to host `number`.
    pub(crate) fn arrivals(&self, number: u16) -> Arrivals {
        lock(&self.state).arrivals[usize::from(number) - 1]
    }

    pub(crate) fn counts(&self) -> Counts {
        lock(&self.state).counts
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn index(&self, from: u16, to: u16) -> usize {
        usize::from(from - 1) * self.hosts + usize::from(to - 1)
    }

    /// What arrives of `packet`, where, with which delay, and whether it is what was sent.
    fn copies(&mut self, from: u16, packet: &[u8]) -> Vec<(u16, Duration, Vec<u8>, bool)> {
        let mut copies = Vec::new();
        for to in self.receivers(from, packet) {
            let suffered = self.suffer(from, to, packet).into_iter();
            copies.extend(suffered.map(|(delay, copy)| (to, delay, copy, true)));
            let is_cut = self.links[self.index(from, to)].is_cut;
            let meddler = self.meddler.as_mut().filter(|_| !is_cut);
            if let Some((to, made)) = meddler.and_then(|it| it.sees(from, to, packet)) {
                copies.push((to, Duration::ZERO, made, false));
            }
        }
        copies
    }

    /// The hosts that a packet is for.
    fn receivers(&mut self, from: u16, packet: &[u8]) -> Vec<u16> {
        let is_multicast = packet.get(16..20) == Some(&network::MULTICAST.octets()[..]);
        if !is_multicast {
            return receiver(packet, self.hosts).into_iter().collect();
        }
        self.counts.multicast += 1;
        if !self.carries_multicast {
            return Vec::new();
        }
        let hosts = u16::try_from(self.hosts).expect("few hosts");
        (1..=hosts).filter(|&to| to != from).collect()
    }

    /// The copies of `packet` that arrive, with their delays.
    fn suffer(&mut self, from: u16, to: u16, packet: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        let index = self.index(from, to);
        let (link, rng, counts) = (self.links[index], &mut self.rngs[index], &mut self.counts);
        if link.is_cut {
            counts.cut += 1;
            return Vec::new();
        }
        if rng.happens(link.lose_per_mille) {
            counts.lost += 1;
            return Vec::new();
        }
        let copies = 1 + usize::from(rng.happens(link.duplicate_per_mille));
        counts.duplicated += copies as u64 - 1;
        (0..copies)
            .map(|_| {
                let mut copy = packet.to_vec();
                if rng.happens(link.corrupt_per_mille) && damage(&mut copy, rng) {
                    counts.corrupted += 1;
                }
                let delay = Duration::from_micros(rng.range(0, link.delay_ms * 1_000 + 1));
                counts.delayed += u64::from(!delay.is_zero());
                (delay, copy)
            })
            .collect()
    }
}

/// A packet: when it is due, its place among all, the receiver, its bytes, and whether it was sent.
type Waiting = Reverse<(u64, u64, u16, Vec<u8>, bool)>;

/// How many injected packets are delivered at a time: a socket has room for more.
const AT_ONCE: usize = 100;
/// How long to wait before the next of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Until `stopped` is.
fn forward(devices: &[File], state: &Mutex<State>, stopped: &OwnedFd) {
    let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
    let mut order = 0_u64;
    loop {
        let now = now_ns();
        while let Some(Reverse((due, ..))) = waiting.peek() {
            if *due > now {
                break;
            }
            let Some(Reverse((_, _, to, packet, is_sent))) = waiting.pop() else {
                unreachable!("it was there")
            };
            deliver(devices, state, to, &packet, is_sent);
        }
        let (made, are_left) = {
            let all = &mut lock(state).made;
            let count = all.len().min(AT_ONCE);
            let made: Vec<_> = all.drain(..count).collect();
            (made, !all.is_empty())
        };
        for (to, packet) in made {
            deliver(devices, state, to, &packet, false);
        }
        let mut next = waiting.peek().map(|Reverse((due, ..))| *due);
        // What is injected wakes nobody.
        if are_left || lock(state).meddler.is_some() {
            let soon = now + PAUSE.as_nanos() as u64;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        if wait(devices, stopped, next, now) {
            return;
        }
        for (index, mut device) in devices.iter().enumerate() {
            let from = u16::try_from(index + 1).expect("few hosts");
            let mut buffer = [0; MAX_LEN];
            while let Ok(len) = device.read(&mut buffer) {
                let mut locked = lock(state);
                for (to, delay, packet, is_sent) in locked.copies(from, &buffer[..len]) {
                    if waiting.len() == MAX_WAITING {
                        locked.counts.overrun += 1;
                        continue;
                    }
                    order += 1;
                    let delay = u64::try_from(delay.as_nanos()).expect("short");
                    // Without a delay packets keep their order.
                    waiting.push(Reverse((now_ns() + delay, order, to, packet, is_sent)));
                }
            }
        }
    }
}

fn deliver(devices: &[File], state: &Mutex<State>, to: u16, packet: &[u8], is_sent: bool) {
    let index = usize::from(to) - 1;
    let written = (&devices[index]).write(packet);
    let mut state = lock(state);
    if written.is_err() {
        state.counts.overrun += 1;
        return;
    }
    state.counts.forwarded += 1;
    let arrivals = &mut state.arrivals[index];
    match (meddler::payload(packet), is_sent) {
        (None, _) => {}
        (Some(_), true) => arrivals.sent += 1,
        (Some(_), false) => arrivals.made += 1,
    }
}

/// Until a packet comes, or is due, or the switch is to stop: then `true`.
fn wait(devices: &[File], stopped: &OwnedFd, next: Option<u64>, now: u64) -> bool {
    let fds = devices.iter().map(AsFd::as_fd).chain([stopped.as_fd()]);
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = next.map_or(PollTimeout::NONE, |due| {
        let ms = due.saturating_sub(now).div_ceil(1_000_000);
        PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
    });
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => panic!("poll: {}", io::Error::from(error)),
    }
    let stopped = fds
        .last()
        .and_then(PollFd::revents)
        .unwrap_or(PollFlags::empty());
    !stopped.is_empty()
}

/// The host that an IPv4 packet is for; of other packets none.
fn receiver(packet: &[u8], hosts: usize) -> Option<u16> {
    let is_ipv4 = packet.len() >= 20 && packet[0] >> 4 == 4;
    let to = packet.get(16..20)?.try_into().ok()?;
    network::host(to).filter(|&host| is_ipv4 && usize::from(host) <= hosts)
}

/// Flips one bit of a UDP packet's payload, and takes its checksum away, which is optional: else
/// the receiver's kernel would drop it, and no agent would see the damage. Of other packets, and of
/// parts of one: none.
fn damage(packet: &mut [u8], rng: &mut Rng) -> bool {
    const UDP: u8 = 17;
    let udp = usize::from(packet[0] & 0x0f) * 4;
    let payload = udp + 8;
    let is_part = (packet[6] & 0x3f, packet[7]) != (0, 0);
    if packet[9] != UDP || is_part || packet.len() <= payload {
        return false;
    }
    packet[udp + 6..payload].fill(0);
    let byte = rng.range(payload as u64, packet.len() as u64) as usize;
    packet[byte] ^= 1 << rng.range(0, 8);
    true
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("the switch goes on")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet from host 1 to host `to`, with sixteen bytes in it.
    fn packet(to: u8) -> Vec<u8> {
        let mut packet = vec![0; 44];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&[10, 77, 1, to]);
        packet[26..28].fill(0xff);
        packet
    }

    fn state(link: Link) -> State {
        State {
            hosts: 2,
            links: vec![link; 4],
            rngs: (0..4).map(Rng::new).collect(),
            counts: Counts::default(),
            carries_multicast: true,
            meddler: None,
            arrivals: vec![Arrivals::default(); 2],
            made: Vec::new(),
        }
    }

    #[test]
    fn packets_go_to_hosts_and_nowhere_else() {
        assert_eq!(receiver(&packet(2), 3), Some(2));
        assert_eq!(receiver(&packet(4), 3), None);
        assert_eq!(receiver(&packet(0), 3), None);
        assert_eq!(receiver(&packet(2)[..19], 3), None);
        let mut other = packet(2);
        other[0] = 0x65;
        assert_eq!(receiver(&other, 3), None);
    }

    #[test]
    fn what_is_for_all_gets_to_all_others_if_it_is_carried() {
        let mut state = state(Link::default());
        let mut packet = packet(2);
        packet[16..20].copy_from_slice(&network::MULTICAST.octets());
        let copies = state.copies(1, &packet);
        assert_eq!(copies, [(2, Duration::ZERO, packet.clone(), true)]);
        state.carries_multicast = false;
        assert_eq!(state.copies(1, &packet), []);
        assert_eq!(state.counts.multicast, 2);
    }

    #[test]
    fn shares_are_as_asked_and_follow_the_seed() {
        let link = Link {
            is_cut: false,
            lose_per_mille: 100,
            duplicate_per_mille: 100,
            corrupt_per_mille: 100,
            delay_ms: 10,
        };
        let run = || {
            let mut state = state(link);
            let sent: Vec<_> = (0..10_000)
                .flat_map(|_| state.suffer(1, 2, &packet(2)))
                .collect();
            (sent, state.counts)
        };
        let (sent, counts) = run();
        assert_eq!(sent, run().0);
        let near = |count: u64| assert!((850..1_150).contains(&count), "{counts:?}");
        near(counts.lost);
        near(counts.duplicated);
        near(counts.corrupted);
        assert_eq!(sent.len() as u64, 10_000 - counts.lost + counts.duplicated);
        let longest = sent.iter().map(|(delay, _)| *delay).max().unwrap();
        assert!(longest > Duration::from_millis(9) && longest <= Duration::from_millis(10));
    }

    #[test]
    fn a_cut_is_of_one_direction() {
        let mut state = state(Link::default());
        let index = state.index(1, 2);
        state.links[index].is_cut = true;
        assert_eq!(state.suffer(1, 2, &packet(2)), []);
        let back = state.suffer(2, 1, &packet(1));
        assert_eq!(back, [(Duration::ZERO, packet(1))]);
    }

    #[test]
    fn damage_is_one_bit_that_no_checksum_gives_away() {
        for seed in 0..100 {
            let mut damaged = packet(2);
            assert!(damage(&mut damaged, &mut Rng::new(seed)));
            assert_eq!(damaged[26..28], [0, 0]);
            damaged[26..28].fill(0xff);
            let flips = damaged
                .iter()
                .zip(packet(2))
                .map(|(a, b)| (a ^ b).count_ones());
            assert_eq!(flips.sum::<u32>(), 1);
            assert_eq!(damaged[..28], packet(2)[..28]);
        }
        assert!(!damage(&mut packet(2)[..28].to_vec(), &mut Rng::new(1)));
    }
}
