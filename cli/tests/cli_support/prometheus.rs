//! A real Prometheus, and what it answers.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longer than it takes to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

pub(crate) struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    /// Starts Prometheus with the configuration `config` and all its files in `directory`. `None` if Prometheus is
    /// not installed.
    pub(crate) fn start(directory: &Path, config: &str) -> Option<Self> {
        let file = directory.join("prometheus.yml");
        fs::write(&file, config).expect("a file");
        let port = free_port();
        let data = directory.join("tsdb");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Self {
            child: child.ok()?,
            port,
        })
    }

    /// The data that it answers with at `path` of its API; nothing as long as it does not answer.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let ask = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let mut answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {body}");
        Some(answer["data"].take())
    }

    /// The series that it answers a question with; nothing as long as it does not answer.
    pub(crate) fn query(&self, question: &str) -> Option<Vec<Value>> {
        let encoded: String = question
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let answer = self.get(&format!("query?query={encoded}"))?;
        Some(answer["result"].as_array()?.clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
