//! What there is, and who is inside, as the header has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_int};
use std::ptr;

use crate::c::Handle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Agent,
    Mutex,
    Sem,
}

/// Who takes part. Each of the latter two has one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Local,
    Quorum,
    Presuming,
}

/// A handle, or something that is none of its kind.
#[derive(Clone, Copy, Debug)]
pub enum Picked {
    Nothing(usize),
    Slot(usize, usize),
}

impl Picked {
    pub const fn raw(self) -> Handle {
        match self {
            Self::Nothing(raw) | Self::Slot(_, raw) => ptr::without_provenance_mut(raw),
        }
    }
}

/// A lock: a group's, by its name.
type Key = (Group, CString);

#[derive(Debug)]
struct Slot {
    kind: Kind,
    raw: usize,
    is_open: bool,
    group: Group,
    /// Which agent it is of; itself, if it is one.
    agent: usize,
    /// Nothing, for an agent.
    name: CString,
    permits: u32,
    /// How often it is held by this handle.
    held: u32,
    /// Whether it was held when its agent was closed, and that was not told.
    is_lost: bool,
    has_begun: bool,
    lost_fd: Option<c_int>,
}

#[derive(Debug, Default)]
pub struct Model {
    slots: Vec<Slot>,
    fences: BTreeMap<Key, u64>,
    last_fence: u64,
    /// The highest fence of each file; `None` if it was damaged.
    checked: BTreeMap<usize, Option<u64>>,
}

impl Model {
    pub fn pick(&self, kind: Kind, x: u8) -> Picked {
        let of = |is_one: bool| {
            let slots = self.slots.iter().enumerate();
            slots.filter(move |(_, slot)| (slot.kind == kind) == is_one)
        };
        let choose = |which: usize, is_one: bool| {
            let count = of(is_one).count().max(1);
            of(is_one)
                .nth(which % count)
                .map(|(at, slot)| (at, slot.raw))
        };
        match x {
            0xff => Picked::Nothing(0),
            0xfe => Picked::Nothing(16),
            0xfd => Picked::Nothing(usize::MAX),
            0xf0.. => Picked::Nothing(choose(usize::from(x), false).map_or(1, |it| it.1)),
            // The latest most often.
            0x80.. => {
                let last = of(true).next_back();
                last.map_or(Picked::Nothing(1), |(at, slot)| Picked::Slot(at, slot.raw))
            }
            _ => match choose(usize::from(x), true) {
                Some((at, raw)) => Picked::Slot(at, raw),
                None => Picked::Nothing(1),
            },
        }
    }

    fn open_slot(&self, picked: Picked) -> Option<&Slot> {
        match picked {
            Picked::Slot(at, _) => self.slots.get(at).filter(|slot| slot.is_open),
            Picked::Nothing(_) => None,
        }
    }

    fn slot_mut(&mut self, picked: Picked) -> &mut Slot {
        match picked {
            Picked::Slot(at, _) => &mut self.slots[at],
            Picked::Nothing(_) => unreachable!("it succeeded with no handle"),
        }
    }

    pub fn is_open(&self, picked: Picked) -> bool {
        self.open_slot(picked).is_some()
    }

    pub fn is_driven(&self, picked: Picked) -> bool {
        let slot = self.open_slot(picked);
        slot.is_some_and(|slot| slot.group != Group::Local)
    }

    pub fn has_agent_of(&self, group: Group) -> bool {
        let is_it = |it: &Slot| it.kind == Kind::Agent && it.is_open && it.group == group;
        self.slots.iter().any(is_it)
    }

    /// Whether there was one that was closed.
    pub fn had_agent_of(&self, group: Group) -> bool {
        let is_it = |it: &Slot| it.kind == Kind::Agent && !it.is_open && it.group == group;
        self.slots.iter().any(is_it)
    }

    pub fn add_agent(&mut self, raw: Handle, group: Group) {
        let agent = self.slots.len();
        self.push(Kind::Agent, raw, (group, agent), CString::default(), 0);
    }

    pub fn add(
        &mut self,
        kind: Kind,
        raw: Handle,
        agent: Picked,
        name: Option<&CStr>,
        permits: u32,
    ) {
        let Picked::Slot(at, _) = agent else {
            unreachable!("it was opened with no agent");
        };
        let group = self.slots[at].group;
        self.push(
            kind,
            raw,
            (group, at),
            name.expect("it has one").into(),
            permits,
        );
    }

    fn push(&mut self, kind: Kind, raw: Handle, of: (Group, usize), name: CString, permits: u32) {
        let raw = raw.addr();
        assert!(
            raw != 0 && self.slots.iter().all(|it| it.raw != raw),
            "its handle is not new"
        );
        self.slots.push(Slot {
            kind,
            raw,
            is_open: true,
            group: of.0,
            agent: of.1,
            name,
            permits,
            held: 0,
            is_lost: false,
            has_begun: false,
            lost_fd: None,
        });
    }

    /// What is held by it is released.
    pub fn closed(&mut self, picked: Picked) {
        let Picked::Slot(at, _) = picked else {
            return;
        };
        let is_agent = self.slots[at].kind == Kind::Agent;
        let was_open = std::mem::take(&mut self.slots[at].is_open);
        for slot in self
            .slots
            .iter_mut()
            .filter(|it| it.agent == at && is_agent && was_open)
        {
            slot.is_lost |= slot.held > 0;
            slot.held = 0;
        }
        let slot = &mut self.slots[at];
        (slot.held, slot.has_begun) = (0, false);
    }

    /// All that is open, in the order of opening: agents mostly before what they have.
    pub fn all_open(&self) -> impl Iterator<Item = (Kind, Handle)> {
        let open = self.slots.iter().filter(|slot| slot.is_open);
        open.map(|slot| (slot.kind, ptr::without_provenance_mut(slot.raw)))
    }

    /// The names of all locks of `group` that there have been.
    pub fn names(&self, group: Group) -> BTreeSet<&CStr> {
        let locks = self
            .slots
            .iter()
            .filter(|it| it.kind != Kind::Agent && it.group == group);
        locks.map(|slot| slot.name.as_c_str()).collect()
    }

    fn of_lock<'a>(&'a self, slot: &'a Slot) -> impl Iterator<Item = &'a Slot> {
        let same = move |it: &&Slot| {
            it.kind != Kind::Agent && (it.group, &it.name) == (slot.group, &slot.name)
        };
        self.slots.iter().filter(same)
    }

    /// How many permits there are by another handle of that agent, or by the configuration.
    pub fn known(&self, agent: Picked, name: Option<&CStr>) -> Option<u32> {
        let (agent, name) = self.open_slot(agent).zip(name)?;
        let is_it = |it: &&Slot| {
            it.kind != Kind::Agent
                && it.is_open
                && it.agent == agent.agent
                && it.name.as_c_str() == name
        };
        let configured = || 1 + u32::from(name == c"pool");
        match self.slots.iter().rfind(is_it) {
            Some(other) => Some(other.permits),
            None => (agent.group != Group::Local).then(configured),
        }
    }

    /// Whether that lock may be known with another number of permits.
    pub fn is_served_otherwise(&self, agent: Picked, name: Option<&CStr>, permits: u32) -> bool {
        let Some((agent, name)) = self.open_slot(agent).zip(name) else {
            return false;
        };
        let mut others = self.slots.iter().filter(|it| it.kind != Kind::Agent);
        agent.group != Group::Local && (name == c"pool") == (permits != 2)
            || others.any(|it| {
                it.group == agent.group && it.name.as_c_str() == name && it.permits != permits
            })
    }

    fn agent_is_open(&self, slot: &Slot) -> bool {
        self.slots[slot.agent].is_open
    }

    fn is_disputed(&self, slot: &Slot) -> bool {
        self.of_lock(slot).any(|it| it.permits != slot.permits)
    }

    fn inside(&self, slot: &Slot) -> u32 {
        self.of_lock(slot).map(|it| it.held).sum()
    }

    fn has_begun(&self, slot: &Slot) -> bool {
        self.of_lock(slot).any(|it| it.has_begun)
    }

    /// Whether to wait for it cannot last for ever.
    pub fn may_wait(&self, picked: Picked) -> bool {
        self.open_slot(picked).is_none_or(|slot| {
            !self.agent_is_open(slot)
                || !self.has_begun(slot)
                    && !self.is_disputed(slot)
                    && self.inside(slot) < slot.permits
        })
    }

    /// It waited for what the model says is free.
    pub fn waited(&mut self, picked: Picked, got: c_int, fence: Option<u64>) {
        self.attempted(picked, got, fence, &[]);
    }

    /// It only tried.
    pub fn tried(&mut self, picked: Picked, got: c_int, fence: Option<u64>) {
        self.attempted(picked, got, fence, &[-libc::EBUSY]);
    }

    /// It waited for a moment.
    pub fn timed(&mut self, picked: Picked, got: c_int, fence: Option<u64>) {
        self.attempted(picked, got, fence, &[-libc::ETIMEDOUT, -libc::EDEADLK]);
    }

    /// What an attempt to enter came to; if it is not free it is one of `otherwise`.
    fn attempted(&mut self, picked: Picked, got: c_int, fence: Option<u64>, otherwise: &[c_int]) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!(got, -libc::EINVAL, "{picked:?}");
        };
        if !self.agent_is_open(slot) {
            return assert_eq!(got, -libc::ECANCELED);
        }
        let is_full = self.inside(slot) >= slot.permits;
        if self.is_disputed(slot) && got == -libc::EINVAL {
            return;
        }
        if is_full {
            return assert!(otherwise.contains(&got), "{got}: {slot:?}");
        }
        // A group may have formed so far, or not.
        let is_uncertain = self.has_begun(slot)
            || self.is_disputed(slot)
            || slot.group != Group::Local && !otherwise.is_empty();
        let is_alone = got == -libc::ENOTCONN && slot.group == Group::Quorum;
        if is_uncertain && (otherwise.contains(&got) || is_alone) {
            return;
        }
        let is_in = got == 0 || self.may_be_told(slot, got);
        assert!(is_in, "{got}, and it is free: {slot:?}");
        self.entered(picked, fence);
    }

    /// Whether it may be held with the word that somebody died inside: after an incarnation that was
    /// closed before it knew whether there had been another.
    fn may_be_told(&self, slot: &Slot, got: c_int) -> bool {
        let group = slot.group;
        got == -libc::EOWNERDEAD && group != Group::Local && self.had_agent_of(group)
    }

    fn entered(&mut self, picked: Picked, fence: Option<u64>) {
        let slot = self.slot_mut(picked);
        slot.held += 1;
        slot.is_lost = false;
        let (is_mutex, group) = (slot.kind == Kind::Mutex, slot.group);
        let key = (group, slot.name.clone());
        let Some(fence) = fence.filter(|_| is_mutex) else {
            return;
        };
        if group == Group::Presuming {
            return assert_eq!(fence, 0);
        }
        let before = self.fences.insert(key, fence).unwrap_or(0);
        assert!(
            fence > before && fence <= i64::MAX as u64,
            "{fence} after {before}"
        );
        self.last_fence = fence;
    }

    pub fn unlocked(&mut self, picked: Picked, got: c_int) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!(got, -libc::EINVAL);
        };
        let expected = match slot {
            _ if slot.held > 0 => 0,
            _ if slot.is_lost => -libc::ECANCELED,
            _ => -libc::EPERM,
        };
        assert_eq!(got, expected, "{slot:?}");
        let slot = self.slot_mut(picked);
        (slot.held, slot.is_lost) = (0, false);
    }

    pub fn begun(&mut self, picked: Picked, got: c_int) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!(got, -libc::EINVAL);
        };
        if slot.has_begun {
            return assert_eq!(got, -libc::EALREADY);
        }
        if !self.agent_is_open(slot) {
            return assert_eq!(got, -libc::ECANCELED);
        }
        if self.is_disputed(slot) && got == -libc::EINVAL {
            return;
        }
        if got == -libc::EDEADLK {
            return assert!(self.inside(slot) >= slot.permits || self.has_begun(slot));
        }
        assert_eq!(got, 0, "{slot:?}");
        self.slot_mut(picked).has_begun = true;
    }

    pub fn polled(&mut self, picked: Picked, got: c_int, fence: u64) {
        let Some(slot) = self.open_slot(picked).filter(|slot| slot.has_begun) else {
            return assert_eq!(got, -libc::EINVAL);
        };
        let is_cancelled = !self.agent_is_open(slot);
        let is_full = self.inside(slot) >= slot.permits;
        let is_disputed = self.is_disputed(slot);
        let is_told = self.may_be_told(slot, got);
        match got {
            _ if got == -libc::EINPROGRESS => return,
            _ if got == 0 || is_told => {
                assert!(!is_full, "two are inside");
                self.entered(picked, Some(fence));
            }
            _ if got == -libc::ECANCELED => assert!(is_cancelled),
            _ if got == -libc::EDEADLK => assert!(is_full || is_disputed),
            _ if got == -libc::EINVAL => assert!(is_disputed),
            _ => panic!("{got}"),
        }
        self.slot_mut(picked).has_begun = false;
    }

    pub fn cancelled(&mut self, picked: Picked, got: c_int) {
        if !self.is_open(picked) {
            return assert_eq!(got, -libc::EINVAL);
        }
        assert_eq!(got, 0);
        self.slot_mut(picked).has_begun = false;
    }

    pub fn looked(&mut self, picked: Picked, is_held: c_int, fd: c_int) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!((is_held, fd), (-libc::EINVAL, -libc::EINVAL));
        };
        assert_eq!(is_held, c_int::from(slot.held > 0), "{slot:?}");
        assert!(
            fd >= 0 && slot.lost_fd.is_none_or(|before| before == fd),
            "{fd}: {slot:?}"
        );
        assert_eq!(is_readable(fd), slot.is_lost, "{slot:?}");
        self.slot_mut(picked).lost_fd = Some(fd);
    }

    /// Whether it is clear which permit would be given back.
    pub fn is_post_clear(&self, picked: Picked) -> bool {
        self.open_slot(picked)
            .is_none_or(|slot| self.posted_of(slot).is_some())
    }

    /// Those of whom a permit can be given back there: its own handle first, else the only one.
    fn posted_of(&self, slot: &Slot) -> Option<Option<usize>> {
        let all = self.slots.iter().enumerate();
        let of_agent = all.filter(|(_, it)| {
            it.kind == Kind::Sem && it.agent == slot.agent && it.name == slot.name && it.held > 0
        });
        let holders: Vec<_> = of_agent.map(|(at, it)| (at, it.raw)).collect();
        match holders.iter().find(|(_, raw)| *raw == slot.raw) {
            Some((at, _)) => Some(Some(*at)),
            None if holders.len() < 2 => Some(holders.first().map(|(at, _)| *at)),
            None => None,
        }
    }

    pub fn posted(&mut self, picked: Picked, got: c_int) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!(got, -libc::EINVAL);
        };
        match self.posted_of(slot).expect("it is clear") {
            Some(at) => {
                assert_eq!(got, 0);
                self.slots[at].held -= 1;
            }
            None if !self.agent_is_open(slot) => {
                assert!([-libc::EPERM, -libc::ECANCELED].contains(&got), "{got}");
            }
            None => assert_eq!(got, -libc::EPERM),
        }
    }

    pub fn counted(&self, picked: Picked, got: c_int, value: c_int, has_place: bool) {
        let Some(slot) = self.open_slot(picked) else {
            return assert_eq!(got, -libc::EINVAL);
        };
        if !self.agent_is_open(slot) {
            let canceled = [-libc::ECANCELED, -libc::EINVAL];
            return assert!(canceled.contains(&got), "{got}");
        }
        if !has_place {
            return assert_eq!(got, -libc::EINVAL);
        }
        assert_eq!(got, 0, "{slot:?}");
        let free = slot.permits.saturating_sub(self.inside(slot));
        let free = c_int::try_from(free).unwrap_or(c_int::MAX);
        let is_clear = !self.has_begun(slot) && !self.is_disputed(slot);
        assert!(value == free || !is_clear, "{value}, not {free}: {slot:?}");
    }

    /// A fence that was granted lately.
    pub const fn last_fence(&self) -> u64 {
        self.last_fence
    }

    pub fn is_damaged(&mut self, file: Option<usize>) {
        if let Some(file) = file {
            self.checked.insert(file, None);
        }
    }

    pub fn checked(&mut self, file: usize, fence: u64, got: c_int) {
        match self.checked.get(&file).copied().unwrap_or(Some(0)) {
            _ if fence == 0 || fence > i64::MAX as u64 || file == 4 => {
                assert_eq!(got, -libc::EINVAL);
            }
            _ if file == 3 => assert_eq!(got, -libc::ENOENT),
            Some(highest) if fence < highest => assert_eq!(got, -libc::ESTALE),
            Some(_) => {
                assert_eq!(got, 0);
                self.checked.insert(file, Some(fence));
            }
            None => assert!([0, -libc::EBADMSG].contains(&got), "{got}"),
        }
    }
}

fn is_readable(fd: c_int) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: it is one.
    unsafe { libc::poll(&mut polled, 1, 0) == 1 }
}
