//! Where a group is, in one word: `--at`, `DISTLOCK_AT`.

use std::path::PathBuf;

use super::{GroupChoice, GroupOptions, checked_socket, refused};
use crate::agent::Agent;
#[cfg(feature = "store")]
use crate::config::{Config, StoreConfig};
use crate::error::OpenError;

/// A group whose locks a store has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreChoice {
    /// Of the store at this place, such as `etcd://10.0.0.1,10.0.0.2?group=shop`.
    At(String),
    /// Of the store that the file names in its `[store]`.
    Config(PathBuf),
}

impl StoreChoice {
    /// Reads the configuration.
    ///
    /// # Errors
    /// If it cannot be read, or is refused, or names no store.
    #[cfg(feature = "store")]
    pub fn load(&self) -> Result<StoreConfig, OpenError> {
        match self {
            Self::At(place) => StoreConfig::at(place),
            Self::Config(path) => match Config::load(path)?.store() {
                Some(store) => Ok(store),
                None => refused(format!("{} names no store", path.display())),
            },
        }
    }

    #[cfg(feature = "store")]
    pub(super) fn open(&self) -> Result<Agent, OpenError> {
        Agent::from_store(self.load()?)
    }

    #[cfg(not(feature = "store"))]
    pub(super) fn open(&self) -> Result<Agent, OpenError> {
        refused(
            "this build of distlock has no stores: build it with the feature etcd or postgresql",
        )
    }
}

/// The group at that place.
pub(super) fn choice_at(place: &str) -> Result<GroupChoice, OpenError> {
    if place == "local:" || place == "local" {
        return Ok(GroupChoice::Local);
    }
    if let Some(socket) = place.strip_prefix("unix:") {
        return checked_socket(socket.into()).map(GroupChoice::Agent);
    }
    if let Some(file) = place.strip_prefix("file:") {
        let (path, id) = match file.rsplit_once('#') {
            Some((path, id)) => (path, Some(id)),
            None => (file, None),
        };
        let mut options = GroupOptions::new().config(path);
        if let Some(id) = id {
            let Some(id) = id.parse().ok() else {
                return refused(format!(
                    "{place:?}: after the # comes the number of a member, from 1 to 65535"
                ));
            };
            options = options.id(id);
        }
        return options.configured(&|_| None);
    }
    if place.contains("://") {
        #[cfg(feature = "store")]
        StoreConfig::at(place)?;
        return Ok(GroupChoice::Store(StoreChoice::At(place.to_owned())));
    }
    refused(format!(
        "{place:?} is no place of a group: write it like etcd://10.0.0.1,10.0.0.2, \
         postgresql://app@db/shop, unix:/run/distlock/distlock.sock, file:shop.toml#2 or local:"
    ))
}
