//! Parts of states, each kept once.
//!
//! States are many, what one member can be in is not: millions of states share some thousands of
//! members' parts. A part's hash is taken once; as with the checker's own fingerprints of states,
//! two parts with one hash of 64 bits count as the same.

use alloc::sync::Arc;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::sync::{Mutex, PoisonError};

use std;

/// A part that states share.
#[derive(Debug)]
pub(super) struct Shared<T> {
    print: u64,
    part: Arc<T>,
}

impl<T> Shared<T> {
    /// What stands for the part.
    pub(super) fn print(&self) -> u64 {
        self.print
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        let part = Arc::clone(&self.part);
        Self {
            print: self.print,
            part,
        }
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

/// All parts of one kind that any state has had.
#[derive(Debug)]
pub(super) struct Pool<T>(Mutex<HashMap<u64, Arc<T>>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Hash> Pool<T> {
    pub(super) fn share(&self, part: T) -> Shared<T> {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        let print = hasher.finish();
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let part = match parts.entry(print) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => Arc::clone(place.insert(Arc::new(part))),
        };
        Shared { print, part }
    }
}
