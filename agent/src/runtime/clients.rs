//! The service for programs on this host, over a Unix stream socket.
//!
//! A client's requests and grants live as long as its stream and its process, whichever ends first:
//! a child that it forked may keep the stream open. Then what waits is cancelled and what is held
//! is released; a grant with a [`Lifeline`](crate::runtime::clients::lifeline::Lifeline) only when that has ended
//! too, and what has it open is killed. What is taken back so counts as abandoned; what a client
//! releases itself does not. A client that is cut off keeps what it holds until it can know that.
//!
//! Everything here runs on the agent thread, and is bounded: clients, also of one process, and what
//! they may take of the process's descriptors; requests of one client; messages obeyed in one turn,
//! of one client and of all together; bytes that are read and make no message yet; bytes that wait to
//! be read by a client that does not, and the names of elections that are observed, of one client and
//! of all together. A client that says nothing costs two descriptors and
//! nothing else; it may be one that holds a lock, so it has no time limit.

mod connection;
mod cut_off;
pub(crate) mod endpoint;
pub(crate) mod lifeline;
pub(crate) mod limits;
mod peer;
#[cfg(test)]
pub(crate) mod raw_client;
mod service;

pub(crate) use service::Service;
