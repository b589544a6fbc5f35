//! The engines that elect, without nodes: what the lectures count, and every order of events in
//! small groups.

mod counts;
mod electorate;
mod every_order;
