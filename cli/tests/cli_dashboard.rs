//! The dashboard for Grafana asks for what agents tell: a real Prometheus reads an agent, and answers each of its
//! questions.

mod cli_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use cli_support::group::Group;
use cli_support::{eventually, exits, refuses, skipped};
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../packaging/grafana/distlock.json");

/// What a panel asks for that a group in which all is well has nothing of.
const EMPTY: [&str; 3] = [
    "distlock_clock_rate_difference",
    "distlock_clients_refused_total",
    "distlock_datagrams_dropped_total",
];

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Each `expr` in `value`, wherever it is.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    value => questions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| questions(value, found)),
        _ => {}
    }
}

struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    /// One that reads `agent` each second. `None` if there is none here.
    fn start(group: &Group, agent: SocketAddr) -> Option<Self> {
        let config = group.file("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: distlock\n    \
             static_configs: [{{targets: [\"{agent}\"]}}]\n"
        );
        fs::write(&config, text).expect("a file");
        let port = free_port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                group.file("tsdb").display()
            ))
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

    /// The series that it answers with; nothing as long as it does not answer.
    fn answer(&self, question: &str) -> Option<Vec<Value>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        let encoded: String = question
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let ask = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{question}: {body}");
        Some(answer["data"]["result"].as_array()?.clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_panel_has_an_answer() {
    let group = Group::unix(1);
    let port = free_port();
    let text = fs::read_to_string(group.config()).expect("the configuration");
    let more = format!(
        "[metrics]\nlisten = \"tcp:127.0.0.1:{port}\"\n[audit]\nfile = {:?}\n",
        group.file("audit.jsonl")
    );
    fs::write(group.config(), format!("{text}{more}")).expect("a file");
    let _agent = group.agent(1);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Some(prometheus) = Prometheus::start(&group, address) else {
        return skipped("prometheus is not here");
    };
    let enters = |id: u32| {
        let lock = ["x", "licences"][id as usize % 2];
        exits(group.client(1, ["run", "-w", "30", lock, "true"]), 0);
    };
    (0..4).for_each(enters);
    let holder = group.hold(1, "x");
    refuses(group.client(1, ["run", "-n", "x", "true"]), 1, &["x"]);
    holder.let_go();
    // Rates take two readings with something between them.
    eventually("two readings are there", || {
        enters(0);
        prometheus
            .answer("sum(increase(distlock_grants_total[10s])) > 0")
            .is_some_and(|series| !series.is_empty())
    });

    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut asked = Vec::new();
    questions(&dashboard["panels"], &mut asked);
    assert!(asked.len() > 30, "{asked:?}");
    for question in asked {
        let filled = question
            .replace("$instance", ".*")
            .replace("$lock", ".*")
            .replace("$__rate_interval", "10s");
        assert!(!filled.contains('$'), "{filled}");
        let series = prometheus.answer(&filled).expect("it answers");
        let is_empty = EMPTY.iter().any(|name| filled.contains(name));
        assert!(!series.is_empty() || is_empty, "nothing for {filled}");
    }
}
