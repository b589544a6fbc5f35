//! Hosts on several network hosts, a raw printer on port 9100, and `ippeveprinter`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{Agent, Config, DistMutex, Fence, FenceChecker, Mutex, TimedLockError};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::check::{self, Paper, Report};
use crate::network::{Network, PRINTER, address, skipped};
use crate::{Process, hosts, print_spooler};

/// A printer on a host of its own, and hosts that print there.
struct Shop {
    // The processes go before the network they are in, and that before the directory.
    _printer: Vec<Process>,
    network: Network,
    directory: TempDir,
    uri: String,
    hosts: u16,
    files: BTreeMap<String, String>,
}

impl Shop {
    /// A shop with a raw printer; `None` where this cannot run.
    fn raw(hosts: u16, files: u32, lines: u32) -> Option<Self> {
        let mut shop = Self::new(hosts, files, lines)?;
        let listen = format!("{}:9100", address(PRINTER));
        let mut serve = print_spooler();
        serve
            .args(["--serve", &listen, "--output"])
            .arg(shop.paper());
        let mut printer = Process(
            shop.network
                .on(PRINTER, &serve)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        shop.uri = first_line(printer.0.stdout.take().unwrap());
        shop._printer.push(printer);
        Some(shop)
    }

    /// A shop with CUPS's printer, which hands each job to the shell command `print`; `None` where
    /// this cannot run.
    fn ipp(hosts: u16, files: u32, lines: u32, print: &str) -> Option<Self> {
        for program in ["ippeveprinter", "dbus-daemon"] {
            let here = Command::new(program).arg("--help").output();
            if here.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                skipped(&format!("{program} is not installed"));
                return None;
            }
        }
        let mut shop = Self::new(hosts, files, lines)?;
        let directory = shop.directory.path();
        let (bus, address_of_bus) = start_bus(directory);
        let script = directory.join("print");
        let paper = shop.paper();
        fs::write(
            &script,
            format!("#!/bin/sh\npaper={}\n{print}\n", paper.display()),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        File::create(paper).unwrap();

        let mut serve = Command::new("ippeveprinter");
        // No registration on the network, and one format.
        serve.args("-r off -p 631 -f text/plain -vv".split(' '));
        serve
            .arg("-d")
            .arg(directory)
            .arg("-c")
            .arg(script)
            .arg("printer");
        serve.env("DBUS_SYSTEM_BUS_ADDRESS", address_of_bus);
        let mut printer = Process(
            shop.network
                .on(PRINTER, &serve)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut log = BufReader::new(printer.0.stderr.take().unwrap()).lines();
        // It says this once it listens.
        let ready = log
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.starts_with("printer-uri-supported="));
        assert!(ready, "ippeveprinter did not start");
        // It must not block on a full pipe, nor die of a closed one.
        thread::spawn(move || log.for_each(drop));
        shop.uri = format!("ipp://{}/ipp/print", address(PRINTER));
        shop._printer = vec![printer, bus];
        Some(shop)
    }

    fn new(hosts: u16, files: u32, lines: u32) -> Option<Self> {
        let network = Network::new(hosts)?;
        let directory = tempfile::tempdir().unwrap();
        let mut config = "insecure = true\n[group]\nname = \"print-shop\"\n".to_owned();
        let mut texts = BTreeMap::new();
        for host in 1..=hosts {
            let address = address(host);
            config += &format!("[[member]]\nid = {host}\naddress = \"udp:{address}:7400\"\n");
            for file in 1..=files {
                let name = format!("host{host}-file{file}");
                texts.insert(name.clone(), check::text(&name, lines));
            }
        }
        fs::write(directory.path().join("distlock.toml"), config).unwrap();
        for (name, text) in &texts {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let (printer, uri) = (Vec::new(), String::new());
        Some(Self {
            _printer: printer,
            network,
            directory,
            uri,
            hosts,
            files: texts,
        })
    }

    fn paper(&self) -> PathBuf {
        self.directory.path().join("paper")
    }

    /// The command by which `host` prints all its files.
    fn host(&self, host: u16, arguments: &[&str]) -> Command {
        let mut command = print_spooler();
        command
            .args(["--printer", &self.uri, "--stay"])
            .args(arguments);
        let own = format!("host{host}-");
        let names = self.files.keys().filter(|name| name.starts_with(&own));
        command.args(names.map(|name| self.directory.path().join(name)));
        command
    }

    /// Lets all hosts print, as members of a group or without a lock.
    fn print(&self, locked: bool, arguments: &[&str]) -> Vec<Report> {
        let commands = (1..=self.hosts).map(|host| {
            let mut command = self.host(host, arguments);
            if locked {
                let id = host.to_string();
                command
                    .arg("--config")
                    .arg(self.directory.path().join("distlock.toml"));
                command
                    .args(["--id", &id])
                    .arg("--state-dir")
                    .arg(self.directory.path().join(id));
            } else {
                command.arg("--no-lock");
            }
            self.network.on(host, &command)
        });
        hosts::run(commands.collect(), self.files.len()).unwrap()
    }

    fn read_paper(&self) -> Paper {
        Paper::read(&fs::read_to_string(self.paper()).unwrap(), &self.files).unwrap()
    }

    fn takes_turns(&self, arguments: &[&str]) {
        let mut reports = self.print(true, arguments);
        self.read_paper().check_turns(&mut reports).unwrap();
    }

    fn makes_a_mess(&self, arguments: &[&str]) {
        self.print(false, arguments);
        let paper = self.read_paper();
        assert!(!paper.torn.is_empty(), "{paper:?}");
        assert!(paper.changes > self.files.len(), "{paper:?}");
    }
}

/// ippeveprinter does not start without a system bus: here is one of its own.
fn start_bus(directory: &Path) -> (Process, String) {
    let address = format!("unix:path={}", directory.join("bus").display());
    let mut bus = Command::new("dbus-daemon");
    bus.args([
        "--session",
        "--nofork",
        "--print-address",
        "--address",
        &address,
    ]);
    let mut bus = Process(
        bus.stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon is installed"),
    );
    first_line(bus.0.stdout.take().unwrap());
    (bus, address)
}

fn first_line(output: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Puts a job on the paper as it comes.
const APPEND: &str = "cat \"$1\" >> \"$paper\"";

#[test]
fn hosts_take_turns_at_a_raw_printer() {
    if let Some(shop) = Shop::raw(4, 5, 200) {
        shop.takes_turns(&[]);
    }
}

#[test]
fn hosts_without_a_lock_mix_lines_at_a_raw_printer() {
    if let Some(shop) = Shop::raw(4, 5, 200) {
        shop.makes_a_mess(&[]);
    }
}

#[test]
fn hosts_take_turns_at_an_ipp_printer() {
    if let Some(shop) = Shop::ipp(4, 5, 200, APPEND) {
        shop.takes_turns(&[]);
    }
}

#[test]
fn hosts_take_turns_at_an_ipp_printer_that_takes_single_lines() {
    if let Some(shop) = Shop::ipp(3, 2, 10, APPEND) {
        shop.takes_turns(&["--jobs", "line"]);
    }
}

#[test]
fn hosts_without_a_lock_mix_lines_at_an_ipp_printer_that_takes_single_lines() {
    if let Some(shop) = Shop::ipp(3, 2, 10, APPEND) {
        shop.makes_a_mess(&["--jobs", "line"]);
    }
}

/// The lock as the kernel of this machine serves it, in a directory of the test's own.
fn local_lock(directory: &Path) -> Mutex {
    Agent::local_in(directory)
        .unwrap()
        .mutex("printer")
        .unwrap()
}

fn assert_held(lock: &dyn DistMutex) {
    // Long enough for a host that does not wait for its printer to be found out.
    let answer = lock.try_lock_for(Duration::from_millis(50));
    assert!(
        matches!(answer, Err(TimedLockError::TimedOut)),
        "{answer:?}"
    );
}

#[test]
fn programs_of_one_host_take_turns_through_its_agent() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let member = format!(
        "[[member]]\nid = 1\naddress = \"unix:{}\"\n",
        path("1").display()
    );
    let config = Config::parse(&format!("[group]\nname = \"host\"\n{member}")).unwrap();
    let node = config
        .node(1)
        .unwrap()
        .with_state_dir(path("state"))
        .with_socket(path("socket"));
    let _agent = Agent::from_config(node).unwrap();

    let mut serve = print_spooler();
    serve
        .args(["--serve", "127.0.0.1:0", "--output"])
        .arg(path("paper"));
    let mut printer = Process(serve.stdout(Stdio::piped()).spawn().unwrap());
    let uri = first_line(printer.0.stdout.take().unwrap());
    let mut files = BTreeMap::new();
    let programs = ["one", "two", "three"].map(|name| {
        files.insert(name.to_owned(), check::text(name, 200));
        fs::write(path(name), &files[name]).unwrap();
        let mut program = print_spooler();
        program.args([
            "--printer",
            &uri,
            // The lock is new, and served by what its first user asks for.
            "--algorithm",
            "ricart-agrawala",
            "--stay",
            "--socket",
        ]);
        program.arg(path("socket")).arg(path(name));
        program
    });
    let mut reports = hosts::run(programs.into(), files.len()).unwrap();
    let paper = Paper::read(&fs::read_to_string(path("paper")).unwrap(), &files).unwrap();
    paper.check_turns(&mut reports).unwrap();
}

#[test]
fn the_lock_is_held_until_a_raw_printer_closes() {
    let directory = tempfile::tempdir().unwrap();
    let lock = local_lock(directory.path());
    let file = directory.path().join("file");
    fs::write(&file, "one\ntwo\n").unwrap();

    let printer = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("socket://{}", printer.local_addr().unwrap());
    let mut host = print_spooler();
    host.args(["--printer", &uri])
        .arg(file)
        .env("DISTLOCK_DIR", directory.path());
    let host = thread::spawn(|| hosts::run(vec![host], 1).unwrap());

    let (mut connection, _) = printer.accept().unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("==== file, fence ") && text.ends_with("\none\ntwo\n"),
        "{text}"
    );
    assert_held(&lock);

    drop(connection);
    assert_eq!(host.join().unwrap()[0].name, "file");
    drop(lock.try_lock().unwrap());
}

#[test]
fn the_lock_is_held_until_an_ipp_job_is_completed() {
    // The job is not through before somebody opens this pipe.
    let Some(shop) = Shop::ipp(1, 1, 2, "cat \"$paper.go\"") else {
        return;
    };
    let mut gate = shop.paper().into_os_string();
    gate.push(".go");
    mkfifo(gate.as_os_str(), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();

    let directory = shop.directory.path().join("locks");
    let lock = local_lock(&directory);
    let mut host = shop.network.on(1, &shop.host(1, &[]));
    host.env("DISTLOCK_DIR", &directory);
    let host = thread::spawn(|| hosts::run(vec![host], 1).unwrap());

    let gate = File::options().write(true).open(gate).unwrap();
    assert_held(&lock);
    drop(gate);
    host.join().unwrap();
    drop(lock.try_lock().unwrap());
}

#[test]
fn a_job_that_the_printer_aborts_is_an_error() {
    let Some(shop) = Shop::ipp(1, 1, 2, "exit 1") else {
        return;
    };
    let output = shop
        .network
        .on(1, &shop.host(1, &["--no-lock"]))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("Aborted"),
        "{error}"
    );
}

/// A host that stood still, and goes on when its lock has long gone to another: only the printer
/// can stop it, in the middle of the file as well, and after its own restart.
#[test]
fn the_printer_refuses_who_was_overtaken() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let serve = |paper: &str| {
        let mut serve = print_spooler();
        serve.args(["--serve", "127.0.0.1:0", "--output"]);
        serve.arg(path(paper)).arg("--fences").arg(path("fences"));
        let mut printer = Process(
            serve
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let uri = first_line(printer.0.stdout.take().unwrap());
        (printer, uri.strip_prefix("socket://").unwrap().to_owned())
    };
    let end = |mut host: TcpStream| {
        host.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        host.read_to_string(&mut answer).unwrap();
        answer
    };
    let begin = |uri: &str, text: &str| {
        let mut host = TcpStream::connect(uri).unwrap();
        host.write_all(text.as_bytes()).unwrap();
        host
    };
    let printed = |paper: &str, what: &str| {
        let deadline = SystemTime::now() + Duration::from_secs(30);
        while !fs::read_to_string(path(paper)).unwrap().contains(what) {
            assert!(SystemTime::now() < deadline, "{what:?} is not printed");
            thread::sleep(Duration::from_millis(2));
        }
    };

    let (printer, uri) = serve("paper");
    let mut slow = begin(&uri, "==== slow, fence 7\nslow 1\n");
    printed("paper", "slow 1\n");
    let quick = begin(&uri, "==== quick, fence 8\nquick 1\n");
    printed("paper", "quick 1\n");
    slow.write_all(b"slow 2\n").unwrap();
    let answer = end(slow);
    assert!(
        answer.starts_with("refused: fence 7 was overtaken"),
        "{answer}"
    );
    assert_eq!(end(quick), "");
    let answer = end(begin(&uri, "no banner\n"));
    assert!(answer.starts_with("refused: it does not begin"), "{answer}");
    drop(printer);

    let (_printer, uri) = serve("second paper");
    let answer = end(begin(&uri, "==== late, fence 7\nlate 1\n"));
    assert!(
        answer.starts_with("refused: fence 7 is refused"),
        "{answer}"
    );
    assert_eq!(end(begin(&uri, "==== next, fence 9\nnext 1\n")), "");
    let all = ["paper", "second paper"].map(|paper| fs::read_to_string(path(paper)).unwrap());
    assert_eq!(
        all.concat(),
        "==== slow, fence 7\nslow 1\n==== quick, fence 8\nquick 1\n==== next, fence 9\nnext 1\n"
    );

    // What the host's side makes of it. Its fences are far below.
    let highest = Fence::new(i64::MAX.unsigned_abs()).unwrap();
    FenceChecker::new(path("fences")).check(highest).unwrap();
    fs::write(path("file"), "one\n").unwrap();
    let mut host = print_spooler();
    host.args(["--printer", &format!("socket://{uri}")]);
    let host = host
        .arg(path("file"))
        .env("DISTLOCK_DIR", path("local"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&host.stderr);
    assert_eq!(host.status.code(), Some(1), "{said}");
    assert!(said.contains("the printer refuses file, fence"), "{said}");
}
