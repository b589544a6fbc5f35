//! Elections for particular networks, which no group of agents is, and the worlds that they run in:
//! [`best_capacity`] where nodes reach their neighbours only, whose links come and go
//! ([`wireless`]); [`repelling`] tokens in a plane ([`tokens`]) and [`super_peers`] by identifiers,
//! where several are to be chosen.

pub mod best_capacity;
pub mod repelling;
pub mod super_peers;
pub mod tokens;
pub mod topology;
pub mod wireless;
