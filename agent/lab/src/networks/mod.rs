//! Elections in particular networks: nodes that reach their neighbours only, whose links come and
//! go ([`wireless`]); and nodes in a plane, some of whom are to be super-peers ([`tokens`]).

pub mod tokens;
pub mod topology;
pub mod wireless;
