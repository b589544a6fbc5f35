//! Hosts in network namespaces without a name: each goes with its last process, however the test
//! ends. Every host has one device, whose other end the switch has in its hands.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// What goes here is for all hosts that listen.
pub(crate) const MULTICAST: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 1);

/// A host's address; hosts are 1 and up.
pub(crate) fn address(host: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, u8::try_from(host).expect("few hosts"))
}

/// Which host has `address`.
pub(crate) fn host(address: [u8; 4]) -> Option<u16> {
    match address {
        [10, 77, 1, host] if host > 0 => Some(host.into()),
        _ => None,
    }
}

type Order = Box<dyn FnOnce() + Send>;

/// A namespace, with mounts of its own, and the thread in it that does there what it is told to.
#[derive(Debug)]
pub(crate) struct Namespace {
    orders: SyncSender<Order>,
}

impl Namespace {
    /// Host `number`, and the switch's end of its device: packets in and out, without blocking.
    ///
    /// # Errors
    /// What this process may not do here.
    pub(crate) fn new(number: u16) -> io::Result<(Self, File)> {
        let (orders, taken) = sync_channel::<Order>(0);
        let (made, making) = sync_channel(1);
        thread::spawn(move || {
            let device = enter_new(number);
            let is_made = device.is_ok();
            made.send(device).expect("it is awaited");
            if is_made {
                // The system ends a thread's children with the thread, so the one that starts them stays.
                taken.iter().for_each(|order| order());
            }
        });
        let device = making.recv().expect("the thread tells")?;
        Ok((Self { orders }, device))
    }

    /// Starts `command` on this host. It dies with the test, however that ends.
    pub(crate) fn spawn(&self, mut command: Command) -> io::Result<Child> {
        #[expect(unsafe_code, reason = "std has no other way to say this")]
        // SAFETY: prctl is a plain system call, which a forked child may make.
        unsafe {
            command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
        }
        self.within(move || command.spawn())
    }

    /// What `what` gives on this host, which nobody else can use meanwhile.
    pub(crate) fn within<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, given) = sync_channel(1);
        let order = move || sender.send(what()).expect("it is awaited");
        let sent = self.orders.send(Box::new(order));
        sent.expect("the thread lives as long as this");
        given.recv().expect("the thread answers")
    }
}

/// Moves this thread into namespaces of its own, and makes the device there.
fn enter_new(number: u16) -> io::Result<File> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    // What is mounted here is mounted nowhere else.
    does("mount", &["--make-rprivate", "/"])?;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lab0") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            // Packets as they are, from the IP header on.
            ifru_flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        },
    };
    #[expect(unsafe_code, reason = "there is no safe call for this")]
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let own = format!("{}/24", address(number));
    does("ip", &["link", "set", "lo", "up"])?;
    does("ip", &["address", "add", &own, "dev", "lab0"])?;
    does("ip", &["link", "set", "lab0", "up"])?;
    Ok(device)
}

fn does(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let command = arguments.join(" ");
    Err(io::Error::other(format!(
        "{program} {command}: {}",
        said.trim()
    )))
}
