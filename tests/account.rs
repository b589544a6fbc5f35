//! The example `account`: several processes, and one order of what they do.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Where cargo puts the example beside this test.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let profile = test.ancestors().nth(2).expect("target/debug/deps");
    let program = profile.join("examples/account");
    assert!(
        program.exists(),
        "build it first: cargo build --example account"
    );
    program
}

fn addresses(count: usize) -> Vec<String> {
    // All are taken before the first is given back, so that no two are the same.
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let address = |listener: &TcpListener| listener.local_addr().expect("its address").to_string();
    listeners.iter().map(address).collect()
}

/// Runs a process for each of `inputs`; what each printed.
fn run(inputs: &[String]) -> Vec<Output> {
    let addresses = addresses(inputs.len());
    let children: Vec<_> = (1..)
        .zip(inputs)
        .map(|(id, input)| {
            let mut child = Command::new(example())
                .arg(id.to_string())
                .args(&addresses)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the example");
            let mut stdin = child.stdin.take().expect("a pipe");
            let input = input.clone();
            let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
            (child, writer)
        })
        .collect();
    children
        .into_iter()
        .map(|(child, writer)| {
            writer
                .join()
                .expect("it writes")
                .expect("its input is read");
            child.wait_with_output().expect("it ends")
        })
        .collect()
}

#[test]
fn all_copies_go_through_the_same_states() {
    let inputs = ["+100\n", "+1%\n", "-7\n"].map(|line| line.repeat(200));
    let said = run(&inputs);
    for output in &said {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, said[0].stdout);
    }
    let lines = String::from_utf8_lossy(&said[0].stdout);
    assert_eq!(lines.lines().count(), 600);
    // Each one's own updates come in its own order, and all of them once.
    for id in 1..=3 {
        let own = lines
            .lines()
            .filter(|line| line.contains(&format!("from {id}:")));
        assert_eq!(own.count(), 200);
    }
}

#[test]
fn one_process_agrees_with_itself() {
    let said = run(&["+100\nnonsense\n+1%\n".to_owned()]);
    assert!(said[0].status.success(), "{said:?}");
    let lines = String::from_utf8_lossy(&said[0].stdout);
    assert_eq!(lines, "+100 from 1: 100100\n+1% from 1: 101101\n");
    let told = String::from_utf8_lossy(&said[0].stderr);
    assert!(told.contains("nonsense") && told.contains("+1%"), "{told}");
}
