//! Totally ordered multicast: a queue of messages that all members of a group deliver in one order.
//!
//! Whoever updates copies of something multicasts the update, and applies what is delivered, its
//! own updates too: then all copies go through the same states (Lamport 1978). [`TotalOrder`] is
//! one member's part. It sends nothing itself: the program carries its [`Message`]s, which can be
//! serialized, to all other members, over connections that lose nothing and keep the order.
//!
//! The lecture's account has 1,000. One city adds 100, the other one percent, at the same time. In
//! either order it would come to 1,111 here and to 1,110 there:
//!
//! ```
//! use distlock::NodeId;
//! use distlock::multicast::{Epoch, Install, TotalOrder};
//!
//! let [here, there] = [1, 2].map(|id| NodeId::new(id).expect("ids start at 1"));
//! let mut san_francisco = TotalOrder::new(here, 64);
//! let mut new_york = TotalOrder::new(there, 64);
//! let first = Epoch::ZERO.next().expect("there are many");
//! let view = Install::new(first, vec![here, there], [
//!     san_francisco.freeze(first)?,
//!     new_york.freeze(first)?,
//! ])?;
//! san_francisco.install(&view)?;
//! new_york.install(&view)?;
//!
//! let add = san_francisco.multicast("+100")?;
//! let interest = new_york.multicast("+1%")?;
//! san_francisco.receive(there, interest)?;
//! new_york.receive(here, add)?;
//! // Each has what the other said, and says so.
//! if let Some(acknowledgement) = san_francisco.acknowledge() {
//!     new_york.receive(here, acknowledgement)?;
//! }
//! if let Some(acknowledgement) = new_york.acknowledge() {
//!     san_francisco.receive(there, acknowledgement)?;
//! }
//! for mut copy in [san_francisco, new_york] {
//!     let mut account = 1_000;
//!     while let Some(update) = copy.deliver() {
//!         match update.payload {
//!             "+100" => account += 100,
//!             _ => account += account / 100,
//!         }
//!     }
//!     assert_eq!(account, 1_111);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When somebody is gone
//!
//! Nothing is delivered before all members have it, so one that has crashed stops the others, until
//! they change the view: each [freezes](TotalOrder::freeze) and tells what it has not delivered,
//! somebody makes the new view of that ([`Install::new`]), and all [install](TotalOrder::install)
//! it. They deliver first what any of them had, so that nothing of those who are left is lost, and
//! what any two have delivered are always prefixes of each other, also of those who are not there
//! any more. A view can only be made of what all its members said, and only one view may follow
//! another: let whoever holds a lock make it, with the lock's fence checked where views are kept.

pub use distlock_agent::protocol::Epoch;
pub use distlock_agent::protocol::multicast::{
    Delivery, Install, InstallError, Message, MulticastError, ReceiveError, TooLate, TotalOrder,
    Undelivered, ViewError,
};
