//! The locks of the laboratory.

use std::collections::BTreeMap;

/// In place of an algorithm: the lock names none, and is served by the group's default.
pub(crate) const DEFAULT: &str = "default";

/// Who may be inside together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Alone,
    Shared,
    Permits(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) name: String,
    algorithm: String,
    pub(crate) served: Served,
}

impl Lock {
    /// A lock of each of `engines`, a semaphore with two permits, and a book that is shared. Both are
    /// served by the default, but where the semaphore alone is tried.
    pub(crate) fn all(engines: &[&str]) -> Vec<Self> {
        let lock = |name: &str, algorithm: &str, served| Self {
            name: name.to_owned(),
            algorithm: algorithm.to_owned(),
            served,
        };
        let other = match engines {
            [engine @ "semaphore"] => engine,
            _ => DEFAULT,
        };
        let engines = engines
            .iter()
            .map(|engine| lock(engine, engine, Served::Alone));
        let others = [
            lock("seats", other, Served::Permits(2)),
            lock("book", other, Served::Shared),
        ];
        engines.chain(others).collect()
    }

    /// The lock of `engine` alone.
    pub(crate) fn only(engine: &str) -> Vec<Self> {
        let mut locks = Self::all(&[engine]);
        locks.truncate(1);
        locks
    }

    /// As in the configuration, which lists no lock that needs nothing but the default.
    pub(crate) fn configuration(&self) -> String {
        let Self {
            name, algorithm, ..
        } = self;
        let mut served = String::new();
        if algorithm != DEFAULT {
            served += &format!("algorithm = \"{algorithm}\"\n");
        }
        if let Served::Permits(permits) = self.served {
            served += &format!("permits = {permits}\n");
        }
        if served.is_empty() {
            return served;
        }
        format!("[[lock]]\nname = \"{name}\"\n{served}")
    }

    /// For the judge.
    pub(crate) fn permits(locks: &[Self]) -> BTreeMap<String, usize> {
        let permits = |served| match served {
            Served::Permits(permits) => permits,
            Served::Alone | Served::Shared => 1,
        };
        let locks = locks.iter();
        locks
            .map(|lock| (lock.name.clone(), permits(lock.served)))
            .collect()
    }

    /// For a process in a role.
    pub(crate) fn format(locks: &[Self]) -> String {
        let words = locks.iter().map(|Self { name, served, .. }| match served {
            Served::Alone => format!("{name}:alone"),
            Served::Shared => format!("{name}:shared"),
            Served::Permits(permits) => format!("{name}:{permits}"),
        });
        words.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn parse(text: &str) -> Vec<Self> {
        let lock = |word: &str| {
            let (name, served) = word.split_once(':').expect("a lock");
            Self {
                name: name.to_owned(),
                algorithm: String::new(),
                served: match served {
                    "alone" => Served::Alone,
                    "shared" => Served::Shared,
                    permits => Served::Permits(permits.parse().expect("permits")),
                },
            }
        };
        text.split(',').map(lock).collect()
    }
}
