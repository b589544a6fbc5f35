//! What the sockets have seen.

/// What the sockets have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportCounters {
    /// Datagrams given to the kernel.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams the kernel did not take: a full queue, nobody there, no route.
    pub send_lost: u64,
    /// Datagrams received from members.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams that the kernel dropped before they were read, because no member has the address
    /// that they came from, or because the queue was full; of those by multicast it is not known.
    /// Of each socket it counts to 2³², and begins anew.
    pub dropped_by_kernel: u64,
    /// Datagrams dropped because no member has the address they came from; of Unix datagrams also
    /// those of other users than root and this process's.
    pub dropped_foreign: u64,
    /// Datagrams dropped because they were longer than any of ours.
    pub dropped_truncated: u64,
    /// Datagrams dropped because they were nothing that is sealed, or sealed for another member.
    pub dropped_malformed: u64,
    /// Datagrams dropped because they were not sealed, in a group that has a key.
    pub dropped_unsealed: u64,
    /// Datagrams dropped because they were sealed, in a group without a key.
    pub dropped_sealed: u64,
    /// Datagrams dropped because they were sealed with a key that this member does not have.
    pub dropped_unknown_key: u64,
    /// Datagrams dropped because they were not sealed by the member that they name, or were changed
    /// on their way.
    pub dropped_forged: u64,
    /// Datagrams dropped because they came before.
    pub dropped_replayed: u64,
    /// Datagrams dropped because the incarnation that sealed them had not shown yet that it is there.
    /// They were answered by a challenge.
    pub dropped_unproven: u64,
    /// Datagrams dropped because they answered no challenge that was open, or challenged another
    /// incarnation of this member.
    pub dropped_stale: u64,
    /// Datagrams dropped because too many came in one turn, from one address, of incarnations that
    /// had not shown that they are there.
    pub dropped_strange: u64,
    /// Challenges that were answered, and answers that were right.
    pub handshakes: u64,
    /// Of those sent: by multicast, for several members each.
    pub multicast_sent: u64,
    /// How many datagrams those have replaced.
    pub multicast_merged: u64,
    /// Of those received: by multicast, for this member or for others.
    pub multicast_received: u64,
    /// Of those received: dropped because what came by multicast made no sense, or was of another
    /// group.
    pub dropped_multicast: u64,
    /// How many times a member was found not to be reached by multicast any more.
    pub multicast_lost: u64,
    /// Errors while receiving, other than that there was nothing.
    pub receive_errors: u64,
}
