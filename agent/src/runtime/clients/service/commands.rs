//! What clients run under locks, when a lock is lost or the lease is nearly over.

use mio::Registry;

use crate::protocol::{Release, Time};
use crate::runtime::clients::connection::Connection;
use crate::runtime::clients::lifeline;
use crate::runtime::clients::service::Service;
use crate::runtime::frames::FromAgent;
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::{ClientId, Lease};

impl Service {
    /// Tells a client that a grant is lost. What runs under it is ended from here too, since its
    /// runner may stand still: before `limit`, at which others may be let in.
    pub(crate) fn lose(
        &mut self,
        client: ClientId,
        id: u64,
        limit: Time,
        shared: &Shared,
        registry: &Registry,
    ) {
        self.take_over(client, id, registry);
        let lease = shared.identity.settings.lease;
        // First its runner ends it, and knows why.
        let [ask, kill] = lifeline::eviction(clock::now(), limit, lease);
        self.lifelines.evict((client, id), ask, kill);
    }

    /// Tells a client that a grant is lost. What runs under it is not the client's any more.
    fn take_over(&mut self, client: ClientId, id: u64, registry: &Registry) {
        let Some(connection) = self.clients.get_mut(&client) else {
            return;
        };
        connection.tell(&FromAgent::Lost { id });
        self.ready.insert(client);
        if let Some((ticket, lifeline)) = connection.take_command(id) {
            let abandoned = (ticket, Release::Abandoned);
            self.lifelines
                .wait_for(lifeline, abandoned, (client, id), registry);
        }
    }

    /// The lease has another end, and those whom it concerns are told.
    pub(crate) fn renew(&mut self, lease: Lease, shared: &Shared) {
        self.lease = lease;
        self.evict_at = self.eviction(shared);
        let concerned = |client: &Connection| client.is_concerned();
        for (&id, client) in self.clients.iter_mut().filter(|(_, c)| concerned(c)) {
            client.tell_lease(lease);
            self.ready.insert(id);
        }
    }

    /// When commands are told to end if the lease is not renewed.
    pub(super) fn eviction(&self, shared: &Shared) -> Option<Time> {
        let bounded = ![Time::ZERO, Time::MAX].contains(&self.lease.until);
        let lease = shared.identity.settings.lease;
        bounded.then(|| lifeline::ask_at(self.lease.until, lease))
    }

    /// Ends the commands whose time is over, before anything else is done.
    pub(crate) fn evict(&mut self, shared: &Shared, registry: &Registry) {
        self.evict_in_time(shared, registry);
        self.lifelines.end_overdue();
    }

    /// Ends all commands when the lease is nearly over and was not renewed. There is no way back:
    /// their locks count as lost, also if it is renewed after all.
    pub(super) fn evict_in_time(&mut self, shared: &Shared, registry: &Registry) {
        let now = clock::now();
        if self.evict_at.is_none_or(|at| now < at) {
            return;
        }
        self.evict_at = None;
        let clients = self.clients.iter();
        let commands: Vec<_> = clients
            .flat_map(|(&client, connection)| connection.commands().map(move |id| (client, id)))
            .collect();
        for (client, id) in commands {
            self.take_over(client, id, registry);
        }
        let lease = shared.identity.settings.lease;
        let kill = lifeline::kill_at(self.lease.until, lease);
        if self.lifelines.evict_all(now, kill) {
            tracing::warn!(
                event = "commands-ended",
                "the lease was not renewed and is nearly over: commands that run under locks are \
                 ended; see whether a majority of the members can be reached"
            );
        }
    }
}
