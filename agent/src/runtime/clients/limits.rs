//! How many clients there may be, how much one may ask of the agent, and as what the status counts a
//! refusal.

/// More are turned away with a message. All of them at once can be told of a new lease, or that a
/// lock is lost, in some milliseconds.
pub(crate) const MAX_CLIENTS: usize = 4_096;
/// Clients of one process: a program that forgets to close them does not keep all others out. Those of
/// other PID namespaces, which are all number 0 here, cannot be told apart, and are not counted.
pub(crate) const MAX_OF_ONE_PROCESS: usize = 1_024;
/// Messages obeyed in one turn, of all clients together, which share them evenly; a client whose turn
/// it is counts for one more. It is some hundred microseconds' work, after which datagrams and timers
/// come first again.
pub(super) const TURN_LIMIT: usize = 256;
/// As the status counts what there were too few of.
pub(super) const FEW_DESCRIPTORS: &str = "few-descriptors";
pub(super) const TOO_MUCH: &str = "too-much";
pub(super) const TOO_MANY_REQUESTS: &str = "too-many-requests";
pub(super) const TOO_MANY_QUESTIONS: &str = "too-many-questions";
pub(super) const MISSED_EVENT: &str = "missed-event";
/// The token of a client's process is this much above that of its stream.
pub(super) const PROCESSES: usize = 1 << (usize::BITS - 2);
/// What all clients together leave unread, and observe. It is four of the longest statuses, or 16 KiB
/// for each of as many clients as there may be: who reads what it is told needs none of it but for
/// moments, for the kernel keeps as much as most ever have to read.
pub(super) const MAX_TAKEN: usize = 64 << 20;
/// What they may leave unread and observe so that another status is told, which may be 16 MiB: a quarter
/// stays for what is short, which is told however much there is. Otherwise somebody would be cut off
/// for others' questions.
pub(super) const MAX_WITH_STATUS: usize = MAX_TAKEN / 4 * 3;
/// Requests of one client, waiting and granted: more threads than a program has, and a sixteenth of
/// what an agent takes in all.
pub(super) const MAX_REQUESTS: usize = 4_096;
/// A client that leaves more than this unread is not heard, and misses events, until it has read
/// some of it.
pub(super) const UNREAD_LIMIT: usize = 64 * 1024;
