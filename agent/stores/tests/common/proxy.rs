//! Stands between a client and its server, and does what networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It is passed on.
    None,
    /// The server gets requests; its first reply ends the connection instead.
    CutAtReply,
    /// The server gets requests, and nobody its replies.
    LoseReplies,
    /// Requests wait here, also if the client goes, and reach the server once this is over.
    HoldRequests,
}

/// Stands between. Its threads end with the connections, or with the test.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Where the client finds it.
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    mishap: Mutex<Mishap>,
    changed: Condvar,
}

impl Proxy {
    /// Passes on to `server`.
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mishap: Mutex::new(Mishap::None),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // If there is no server, the connection ends at once.
                if let Ok(server) = TcpStream::connect(server) {
                    both(client, server, &shared);
                }
            }
        });
        Self { address, state }
    }

    /// From now on this happens, to present connections too.
    pub(crate) fn set(&self, mishap: Mishap) {
        *self.state.mishap.lock().unwrap() = mishap;
        self.state.changed.notify_all();
    }
}

fn both(client: TcpStream, server: TcpStream, state: &Arc<State>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let shared = Arc::clone(state);
    thread::spawn(move || pass(from_client, to_server, &shared, true));
    let shared = Arc::clone(state);
    thread::spawn(move || pass(server, client, &shared, false));
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, is_request: bool) {
    let mut bytes = [0; 16384];
    let mut was_held = false;
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        let mut mishap = state.mishap.lock().unwrap();
        while is_request && *mishap == Mishap::HoldRequests {
            was_held = true;
            mishap = state.changed.wait(mishap).unwrap();
        }
        let mishap = *mishap;
        if count == 0 || (!is_request && mishap == Mishap::CutAtReply) {
            break;
        }
        if !is_request && mishap == Mishap::LoseReplies {
            continue;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if was_held {
        // Servers that learn that nobody waits may give up what they do.
        thread::sleep(Duration::from_secs(1));
    }
    let _ = to.shutdown(Shutdown::Write);
    if !is_request {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
