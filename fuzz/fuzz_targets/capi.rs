//! The functions of the C library in any order, with handles that are closed, of another kind, or of
//! nothing. What they answer must be what `include/distlock.h` says.
//!
//! An input is steps of four bytes. All happens in one thread, so whatever could wait for ever is
//! left out: it waits only for what the model says is free.
#![no_main]

#[path = "capi/c.rs"]
mod c;
#[path = "capi/model.rs"]
mod model;
#[path = "capi/places.rs"]
mod places;

use std::ffi::CStr;
use std::ptr;

use self::c::{Options, code};
use self::model::{Group, Kind, Model, Picked};
use self::places::{PLACES, Places, count_descriptors};

libfuzzer_sys::fuzz_target!(
    init: PLACES.clear(),
    |bytes: &[u8]| {
        PLACES.clear();
        let before = count_descriptors();
        let mut model = Model::default();
        for step in bytes.as_chunks::<4>().0.iter().take(64) {
            take(&mut model, *step);
        }
        model.all_open().for_each(|(kind, raw)| close_raw(kind, raw));
        assert_eq!(count_descriptors(), before, "descriptors are left open");
        all_is_free(&model);
    }
);

/// Permits that are asked for: none said, some, and too many.
const PERMITS: [u32; 8] = [0, 1, 1, 2, 3, 2, 1_000_000, u32::MAX];
/// How long a wait may be where it may not succeed.
const SHORT: [i64; 6] = [0, 0, 1, -2, i64::MIN, 0];
/// And where it must.
const LONG: [i64; 4] = [-1, i64::MAX, 60_000, 0];

fn take(model: &mut Model, [what, x, y, z]: [u8; 4]) {
    match what % 32 {
        0 | 1 => open_local(model),
        2 | 3 => open_member(model, y),
        4 => open_with(model, x, y, z),
        5 => close(model, Kind::Agent, x),
        6..9 => open_mutex(model, x, y, z),
        9 | 10 => open_sem(model, x, y, z),
        11 => close(model, Kind::Mutex, x),
        12 => close(model, Kind::Sem, x),
        13 | 14 => lock(model, x, z),
        15 => try_lock(model, x, y),
        16 => timed_lock(model, x, y, z),
        17 | 18 => unlock(model, x),
        19 => begin(model, x),
        20 => poll(model, x),
        21 => cancel(model, x),
        22 => look(model, x),
        23 | 24 => sem_wait(model, x, y, z),
        25 | 26 => sem_post(model, x),
        27 => sem_value(model, x, y),
        28 => drive(model, x, y),
        29 | 30 => check_fence(model, x, y, z),
        _ => words(y, z),
    }
}

fn open_local(model: &mut Model) {
    model.add_agent(c::open_local(), Group::Local);
}

/// The member of a group of one, without a thread.
fn open_member(model: &mut Model, y: u8) {
    // The former takes its time to form.
    let group = match y % 16 {
        1 => Group::Quorum,
        _ => Group::Presuming,
    };
    // A new incarnation may have to wait for as long as the lease of one before.
    if model.had_agent_of(group) && (group == Group::Quorum || y < 0xf0) {
        return;
    }
    let options = PLACES.options(group);
    let mut agent = ptr::null_mut();
    // SAFETY: they are what they say.
    let got = code(unsafe { c::distlock_agent_open_driven(&options, Some(&mut agent)) });
    if model.has_agent_of(group) {
        assert_eq!((got, agent.is_null()), (-libc::EBUSY, true));
    } else {
        assert_eq!(got, 0);
        model.add_agent(agent, group);
    }
}

/// Options of any size, with anything in them.
fn open_with(model: &mut Model, x: u8, y: u8, z: u8) {
    let mut options = [0_usize; 1024];
    let known = PLACES.nonsense(x);
    options[1] = known.config.addr();
    options[2] = [0, 1, 2, 65_536][usize::from(y % 4)];
    options[3] = known.socket.addr();
    options[4] = known.state.addr();
    let sizes = [
        0,
        7,
        8,
        12,
        16,
        24,
        32,
        40,
        48,
        56,
        57,
        64,
        4096,
        4104,
        8192,
        usize::MAX,
    ];
    let size = sizes[usize::from(z & 15) % sizes.len()];
    options[0] = size;
    let has_more = z & 0x10 != 0;
    // The flags, 1 for the local group and more that there are not; a store; and what no version has.
    options[5] = usize::from(z >> 6);
    options[6] = if y & 0x80 == 0 {
        0
    } else {
        known.config.addr()
    };
    options[7] = usize::from(has_more);
    // What is known of them ends there, and a member is not opened: nobody would drive it.
    let has = |at: usize| size > at * 8 && options[at] != 0;
    let is_valid = size % 8 == 0 && (8..=4096).contains(&size) && !(has_more && size > 56);
    let is_valid = is_valid && !(has(5) && options[5] > 1) && !has(6);
    let asks_for_local = has(5);
    let is_driven = z & 0x20 != 0;
    let mut agent = ptr::null_mut();
    let options: *const Options = options.as_ptr().cast();
    // SAFETY: as much is there as is looked at, and what should be strings is.
    let got = code(unsafe {
        match is_driven {
            true => c::distlock_agent_open_driven(options, Some(&mut agent)),
            false => c::distlock_agent_open(options, Some(&mut agent)),
        }
    });
    let is_local = is_valid && !has(1) && !has(2) && !has(3) && !has(4);
    assert_eq!(agent.is_null(), got != 0);
    if is_local && !is_driven {
        assert_eq!(got, 0);
        return model.add_agent(agent, Group::Local);
    }
    let is_client = is_valid && !asks_for_local && !has(1) && !has(2) && has(3) && !has(4);
    match (is_valid, is_client && !is_driven) {
        (true, true) => assert_eq!(got, -libc::ENOTCONN),
        (true, false) => assert!([-libc::EINVAL, -libc::ENOENT].contains(&got), "{got}"),
        (false, _) => assert_eq!(got, -libc::EINVAL),
    }
}

fn close(model: &mut Model, kind: Kind, x: u8) {
    let picked = model.pick(kind, x);
    close_raw(kind, picked.raw());
    model.closed(picked);
}

fn close_raw(kind: Kind, raw: c::Handle) {
    match kind {
        Kind::Agent => c::distlock_agent_close(raw),
        Kind::Mutex => c::distlock_mutex_close(raw),
        Kind::Sem => c::distlock_sem_close(raw),
    }
}

/// Why nothing is opened, if it is not.
fn refused(model: &Model, agent: Picked, name: Option<&CStr>, has_place: bool) -> Option<i32> {
    let name = name.map(CStr::to_bytes);
    if !has_place || name.is_none_or(<[u8]>::is_empty) || !model.is_open(agent) {
        return Some(-libc::EINVAL);
    }
    name.filter(|name| name.len() > 255)
        .map(|_| -libc::ENAMETOOLONG)
}

fn open_mutex(model: &mut Model, x: u8, y: u8, z: u8) {
    let agent = model.pick(Kind::Agent, x);
    let (name, has_place) = (PLACES.name(y), z != 0xff);
    let mut mutex = ptr::without_provenance_mut(1);
    let place = has_place.then_some(&mut mutex);
    let got = code(c::distlock_mutex_open(agent.raw(), name.into(), place));
    assert!(!has_place || mutex.is_null() == (got != 0));
    match refused(model, agent, name, has_place) {
        // Of several errors any may be told.
        Some(_) if got == -libc::EINVAL => {}
        Some(why) => assert_eq!(got, why),
        None if got == 0 => model.add(Kind::Mutex, mutex, agent, name, 1),
        None => assert!(got == -libc::EINVAL && model.is_served_otherwise(agent, name, 1)),
    }
}

fn open_sem(model: &mut Model, x: u8, y: u8, z: u8) {
    let agent = model.pick(Kind::Agent, x);
    let (name, has_place) = (PLACES.name(y), z != 0xff);
    let permits = PERMITS[usize::from(z) % PERMITS.len()];
    let mut sem = ptr::without_provenance_mut(1);
    let place = has_place.then_some(&mut sem);
    let got = code(c::distlock_sem_open(
        agent.raw(),
        name.into(),
        permits,
        place,
    ));
    assert!(!has_place || sem.is_null() == (got != 0));
    match refused(model, agent, name, has_place) {
        Some(_) if got == -libc::EINVAL => {}
        Some(why) => assert_eq!(got, why),
        None if got == 0 => {
            let permits = match permits {
                0 => model.known(agent, name).expect("somebody says it"),
                _ => permits,
            };
            model.add(Kind::Sem, sem, agent, name, permits);
        }
        None => assert!(
            got == -libc::EINVAL
                && (permits == 0
                    || permits > 1000
                    || model.is_served_otherwise(agent, name, permits))
        ),
    }
}

fn lock(model: &mut Model, x: u8, z: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    if model.may_wait(mutex) {
        let mut fence = u64::MAX;
        let place = (z != 0).then_some(&mut fence);
        let got = code(c::distlock_lock(mutex.raw(), place));
        model.waited(mutex, got, (z != 0).then_some(fence));
    }
}

fn try_lock(model: &mut Model, x: u8, y: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let mut fence = u64::MAX;
    let place = (y != 0).then_some(&mut fence);
    let got = code(c::distlock_trylock(mutex.raw(), place));
    model.tried(mutex, got, (y != 0).then_some(fence));
}

fn timed_lock(model: &mut Model, x: u8, y: u8, z: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let is_long = z & 1 != 0 && model.may_wait(mutex);
    let timeout = timeout(is_long, y);
    let mut fence = u64::MAX;
    let got = code(c::distlock_timedlock(
        mutex.raw(),
        timeout,
        Some(&mut fence),
    ));
    if timeout < -1 {
        assert_eq!(got, -libc::EINVAL);
    } else if is_long && timeout != 0 {
        model.waited(mutex, got, Some(fence));
    } else {
        model.timed(mutex, got, Some(fence));
    }
}

fn timeout(is_long: bool, y: u8) -> i64 {
    let times: &[i64] = if is_long { &LONG } else { &SHORT };
    times[usize::from(y) % times.len()]
}

fn unlock(model: &mut Model, x: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let got = code(c::distlock_unlock(mutex.raw()));
    model.unlocked(mutex, got);
}

fn begin(model: &mut Model, x: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let got = code(c::distlock_lock_begin(mutex.raw()));
    model.begun(mutex, got);
}

fn poll(model: &mut Model, x: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let mut fence = u64::MAX;
    let got = code(c::distlock_lock_poll(mutex.raw(), Some(&mut fence)));
    model.polled(mutex, got, fence);
}

fn cancel(model: &mut Model, x: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let got = code(c::distlock_lock_cancel(mutex.raw()));
    model.cancelled(mutex, got);
}

fn look(model: &mut Model, x: u8) {
    let mutex = model.pick(Kind::Mutex, x);
    let is_held = code(c::distlock_is_held(mutex.raw()));
    let fd = code(c::distlock_lost_fd(mutex.raw()));
    model.looked(mutex, is_held, fd);
}

fn sem_wait(model: &mut Model, x: u8, y: u8, z: u8) {
    let sem = model.pick(Kind::Sem, x);
    match z % 4 {
        0 if model.may_wait(sem) => {
            let got = code(c::distlock_sem_wait(sem.raw()));
            model.waited(sem, got, None);
        }
        1 => {
            let is_long = model.may_wait(sem);
            let timeout = timeout(is_long, y);
            let got = code(c::distlock_sem_timedwait(sem.raw(), timeout));
            if timeout < -1 {
                assert_eq!(got, -libc::EINVAL);
            } else if is_long && timeout != 0 {
                model.waited(sem, got, None);
            } else {
                model.timed(sem, got, None);
            }
        }
        _ => {
            let got = code(c::distlock_sem_trywait(sem.raw()));
            model.tried(sem, got, None);
        }
    }
}

fn sem_post(model: &mut Model, x: u8) {
    let sem = model.pick(Kind::Sem, x);
    if model.is_post_clear(sem) {
        let got = code(c::distlock_sem_post(sem.raw()));
        model.posted(sem, got);
    }
}

fn sem_value(model: &mut Model, x: u8, y: u8) {
    let sem = model.pick(Kind::Sem, x);
    let mut value = i32::MIN;
    let place = (y != 0).then_some(&mut value);
    let got = code(c::distlock_sem_getvalue(sem.raw(), place));
    model.counted(sem, got, value, y != 0);
}

/// What is for agents without a thread.
fn drive(model: &mut Model, x: u8, y: u8) {
    let agent = model.pick(Kind::Agent, x);
    let mut ms = i64::MIN;
    let got = code({
        match y % 5 {
            0 => c::distlock_agent_fd(agent.raw()).min(0),
            1 => c::distlock_agent_timeout(agent.raw(), Some(&mut ms)),
            2 => c::distlock_agent_sigio(agent.raw(), i32::from(y & 0x80 != 0)),
            3 => c::distlock_agent_timeout(agent.raw(), None),
            _ => c::distlock_agent_process(agent.raw()),
        }
    });
    let is_driven = model.is_driven(agent);
    let expected = if is_driven && y % 5 != 3 {
        0
    } else {
        -libc::EINVAL
    };
    assert_eq!(got, expected, "{}", y % 5);
    assert!(y % 5 != 1 || !is_driven || ms >= -1, "{ms}");
}

fn check_fence(model: &mut Model, x: u8, y: u8, z: u8) {
    let file = usize::from(x) % Places::FILES;
    if z == 0xff {
        return model.is_damaged(PLACES.damage(file, y));
    }
    let fence = match z {
        0xf0.. => [0, 1, u64::MAX, i64::MAX as u64, 1 << 63][usize::from(y) % 5],
        _ => model
            .last_fence()
            .wrapping_add(u64::from(y % 4))
            .wrapping_sub(1),
    };
    let path = PLACES.file(file);
    let got = code(c::distlock_fence_check(path.as_deref().into(), fence));
    model.checked(file, fence, got);
}

fn words(y: u8, z: u8) {
    let number = i32::from_le_bytes([y, z, y & z, y ^ z]);
    for number in [number, i32::from(y), -i32::from(y)] {
        assert!(!c::words(number).is_empty());
    }
    assert!(!c::version().is_empty());
}

/// After everything was closed nobody is inside.
fn all_is_free(model: &Model) {
    let agent = c::open_local();
    for name in model.names(Group::Local) {
        let (mut mutex, mut fence) = (ptr::null_mut(), 0);
        let opened = c::distlock_mutex_open(agent, Some(name).into(), Some(&mut mutex));
        assert_eq!(opened, 0, "{name:?}");
        assert_eq!(c::distlock_trylock(mutex, Some(&mut fence)), 0, "{name:?}");
        assert!(fence > 0);
        c::distlock_mutex_close(mutex);
    }
    c::distlock_agent_close(agent);
}
