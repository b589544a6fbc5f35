//! Which server it is, and whether it keeps what it has acknowledged.
//!
//! | asked | why |
//! |-|-|
//! | `pg_is_in_recovery()`, `transaction_read_only` | a standby is not written to |
//! | `fsync`, `full_page_writes` | without, the server may lose or spoil what it wrote when its host fails |
//! | the table's persistence | an unlogged table is emptied after a crash |
//! | `synchronous_standby_names`, `pg_stat_replication` | what an asynchronous standby lacks is lost if it takes over |
//! | system identifier, timeline | a promoted standby, and what was restored from a backup, is another store |
//!
//! `synchronous_commit` is not asked: each write sets it for itself.
//!
//! All this may be read by every user, `pg_stat_replication` but for whether a standby is synchronous. What
//! cannot be known: whether a standby is to be promoted at all, or one of those that
//! `synchronous_standby_names` does not wait for; standbys that have no slot and are not connected at the
//! moment, or read the archive; whether the disk does what it says. The settings are read once for each
//! connection.

use super::statements::{Answer, group, text};
use super::wire::clean;

/// The oldest version that will do, as `server_version_num` has it.
const OLDEST: u32 = 120_000;

/// The store: the system identifier, which `initdb` drew, and the timeline, which a promotion and a
/// restored backup increase. `pg_control_checkpoint()` would have the latter as it was at the last
/// checkpoint, which may be before the promotion.
pub(super) const IDENTITY: &str = "(SELECT system_identifier FROM pg_control_system()) || '/' || \
     left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// Standbys that stream, and those that are away and have a slot; who subscribes to a publication is none.
const FACTS: &str = "SELECT current_setting('server_version_num'), pg_is_in_recovery(), \
     current_setting('transaction_read_only'), current_setting('fsync'), \
     current_setting('full_page_writes'), current_setting('synchronous_standby_names') <> '', \
     (SELECT count(*) FROM pg_stat_replication AS sender WHERE NOT EXISTS (\
     SELECT FROM pg_replication_slots AS slot \
     WHERE slot.active_pid = sender.pid AND slot.slot_type = 'logical')) + \
     (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active), \
     current_setting('server_encoding'), pg_backend_pid(), \
     (SELECT relpersistence FROM pg_class WHERE oid = to_regclass('distlock')), \
     (SELECT oid FROM pg_database WHERE datname = current_database())";

/// What was found out about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Its version, as `server_version_num` has it: 150018 is 15.18.
    pub version: u32,
    /// Which store it is: system identifier and timeline.
    pub identity: String,
    /// Why it may forget what it acknowledged, in words; empty if nothing was found.
    pub doubts: Vec<String>,
    /// Whether a pooler stands between, so that there are no sessions, and no hints.
    pub is_pooled: bool,
    /// Whether there is the table `distlock`.
    pub has_table: bool,
}

/// Asks for the facts.
pub(super) fn ask_facts() -> Result<Vec<u8>, String> {
    group(&[(FACTS, &[])])
}

/// Asks for the identity, by itself, as it may be forbidden.
pub(super) fn ask_identity() -> Result<Vec<u8>, String> {
    group(&[(&format!("SELECT {IDENTITY}"), &[])])
}

impl Findings {
    /// What the facts say, on a connection on which the server has named itself by `pid`. The identity is
    /// to come, and makes do with the database's number until then.
    ///
    /// # Errors
    /// Why the server will not do.
    pub(super) fn read(answer: &Answer, pid: Option<i32>) -> Result<Self, String> {
        if let Some(error) = &answer.error {
            return Err(error.to_string());
        }
        let row = answer.row(0).ok_or("the server does not say what it is")?;
        let field = |at| text(row, at);
        let version = field(0).and_then(|version| version.parse().ok());
        let version: u32 = version.ok_or("the server does not say which version it is")?;
        if version < OLDEST {
            return Err(format!(
                "the server is PostgreSQL {}: distlock needs 12, or later",
                version / 10_000
            ));
        }
        if field(1) != Some("f") {
            return Err("the server is a standby, which takes no writes".to_owned());
        }
        if field(2) != Some("off") {
            return Err("the database, or the user, is set to read only".to_owned());
        }
        // Other encodings lack characters that a command's name may have.
        let encoding = field(7).unwrap_or_default();
        if !matches!(encoding, "UTF8" | "SQL_ASCII") {
            let encoding = clean(encoding);
            return Err(format!(
                "the database's encoding is {encoding}: distlock needs one with UTF8"
            ));
        }
        let mut doubts = Vec::new();
        for (at, name) in [(3, "fsync"), (4, "full_page_writes")] {
            if field(at) != Some("on") {
                doubts.push(format!(
                    "{name} is off: when its host fails the server may lose what it acknowledged"
                ));
            }
        }
        let persistence = field(9);
        if persistence.is_some_and(|it| it != "p") {
            doubts.push("the table distlock is unlogged: a crash empties it".to_owned());
        }
        if field(5) != Some("t") && field(6) != Some("0") {
            let standbys = clean(field(6).unwrap_or("some"));
            doubts.push(format!(
                "of {standbys} standbys none is synchronous (synchronous_standby_names is empty): \
                 if one takes over, the last writes are lost"
            ));
        }
        let database = clean(field(10).unwrap_or("?"));
        Ok(Self {
            version,
            identity: format!("database {database}"),
            doubts,
            // A pooler draws a number of its own for each client.
            is_pooled: pid.is_none() || field(8).and_then(|it| it.parse().ok()) != pid,
            has_table: persistence.is_some(),
        })
    }

    /// What the server says of its identity; whether it says it.
    pub(super) fn identify(&mut self, answer: &Answer) -> bool {
        let identity = answer.row(0).and_then(|row| text(row, 0));
        if let (None, Some(identity)) = (&answer.error, identity) {
            self.identity = clean(identity);
            return true;
        }
        let why = match &answer.error {
            Some(error) => error.to_string(),
            None => "it says nothing".to_owned(),
        };
        self.doubts.push(format!(
            "which server it is cannot be found out, nor whether a standby has taken over or a \
             backup was restored ({why}): GRANT EXECUTE ON FUNCTION pg_control_system(), \
             pg_walfile_name(pg_lsn), pg_current_wal_lsn() TO the user"
        ));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Row, ServerError};
    use super::*;

    /// A server with its defaults.
    const SOUND: [Option<&str>; 11] = [
        Some("150018"),
        Some("f"),
        Some("off"),
        Some("on"),
        Some("on"),
        Some("f"),
        Some("0"),
        Some("UTF8"),
        Some("77"),
        Some("p"),
        Some("5"),
    ];

    fn answer(fields: &[Option<&str>]) -> Answer {
        let row: Row = fields
            .iter()
            .map(|field| field.map(|text| text.as_bytes().to_vec()))
            .collect();
        Answer {
            rows: vec![vec![row]],
            done: 1,
            error: None,
        }
    }

    fn with(at: usize, field: Option<&str>) -> Result<Findings, String> {
        let mut fields = SOUND;
        fields[at] = field;
        Findings::read(&answer(&fields), Some(77))
    }

    #[test]
    fn a_server_with_its_defaults_keeps_what_it_acknowledged() {
        let mut found = with(0, Some("120000")).unwrap();
        assert_eq!(found.doubts, Vec::<String>::new());
        assert!(!found.is_pooled && found.has_table);
        assert!(found.identify(&answer(&[Some("7312/00000001")])));
        assert_eq!(found.identity, "7312/00000001");
        assert!(found.doubts.is_empty());
    }

    #[test]
    fn one_that_may_forget_says_why() {
        for (at, field, why) in [
            (3, "off", "fsync"),
            (4, "off", "full_page_writes"),
            (6, "2", "of 2 standbys"),
            (9, "u", "unlogged"),
        ] {
            let found = with(at, Some(field)).unwrap();
            assert_eq!(found.doubts.len(), 1);
            assert!(found.doubts[0].contains(why), "{:?}", found.doubts);
        }
        let mut found = with(9, None).unwrap();
        assert!(!found.has_table && found.doubts.is_empty());
        let refused = Answer {
            error: Some(ServerError {
                text: "permission denied".to_owned(),
                ..ServerError::default()
            }),
            ..Answer::default()
        };
        assert!(!found.identify(&refused));
        assert!(found.doubts[0].contains("permission denied"));
        assert_eq!(found.identity, "database 5");
    }

    #[test]
    fn synchronous_standbys_raise_no_doubt() {
        let mut fields = SOUND;
        (fields[5], fields[6]) = (Some("t"), Some("2"));
        let found = Findings::read(&answer(&fields), Some(77)).unwrap();
        assert!(found.doubts.is_empty());
    }

    #[test]
    fn one_that_will_not_do_says_why() {
        for (at, field, why) in [
            (0, "110022", "PostgreSQL 11"),
            (0, "x", "which version"),
            (1, "t", "standby"),
            (2, "on", "read only"),
            (7, "LATIN1", "encoding is LATIN1"),
        ] {
            let error = with(at, Some(field)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(Findings::read(&Answer::default(), None).is_err());
        assert!(Findings::read(&answer(&[]), None).is_err());
    }

    #[test]
    fn a_pooler_is_known_by_the_number_that_it_draws() {
        assert!(with(8, Some("78")).unwrap().is_pooled);
        let found = Findings::read(&answer(&SOUND), None).unwrap();
        assert!(found.is_pooled);
    }
}
