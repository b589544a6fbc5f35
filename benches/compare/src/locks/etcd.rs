//! etcd's own lock service, through the HTTP gateway that each node has.

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use ureq::Agent;

use super::{Locks, patiently};

/// How long a session may be silent, in seconds: longer than any run, so that none is renewed.
const LEASE_SECS: u64 = 3600;

/// A session: a lease, by which keys are owned.
pub(super) struct Etcd {
    http: Agent,
    address: String,
    lease: Value,
    key: Value,
}

impl Etcd {
    pub(super) fn open(address: &str) -> Self {
        let http = Agent::new_with_defaults();
        let grant = json!({ "TTL": LEASE_SECS });
        let granted = patiently(|| post(&http, address, "lease/grant", &grant));
        Self {
            http,
            address: address.to_owned(),
            lease: granted["ID"].clone(),
            key: Value::Null,
        }
    }

    fn ask(&self, service: &str, request: &Value) -> Value {
        post(&self.http, &self.address, service, request).expect("etcd answers")
    }
}

impl Locks for Etcd {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let name = Base64::encode_string(format!("lock-{lock}").as_bytes());
        let request = json!({ "name": name, "lease": self.lease });
        let mut answer = self.ask("lock/lock", &request);
        self.key = answer["key"].take();
        // What the store had when this one was the first in the queue: higher than for all before.
        let revision = answer["header"]["revision"].as_str();
        Some(revision.and_then(|it| it.parse().ok()).expect("a number"))
    }

    fn leave(&mut self, _: usize) {
        self.ask("lock/unlock", &json!({ "key": self.key }));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // An hour later it would end by itself.
        let revoke = json!({ "ID": self.lease });
        let _ = post(&self.http, &self.address, "lease/revoke", &revoke);
    }
}

fn post(http: &Agent, address: &str, service: &str, request: &Value) -> Result<Value, ureq::Error> {
    let url = format!("http://{address}/v3/{service}");
    http.post(url).send_json(request)?.body_mut().read_json()
}
