//! Clients that have gone, or are cut off.

use std::collections::btree_map::Entry;

use mio::Registry;

use crate::protocol::Time;
use crate::runtime::clients::connection::Ended;
use crate::runtime::clients::cut_off::CutOff;
use crate::runtime::clients::limits::MAX_TAKEN;
use crate::runtime::clients::peer::Peer;
use crate::runtime::clients::service::Service;
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::ClientId;

impl Service {
    pub(super) fn end(
        &mut self,
        id: ClientId,
        ended: &Ended,
        shared: &Shared,
        registry: &Registry,
    ) {
        self.is_news = true;
        if let Some(reason) = ended.reason() {
            self.count(reason, 1);
        }
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        self.taken -= client.counted;
        let peer = client.peer();
        match client.end(id, shared, &mut self.lifelines, registry) {
            Some(cut_off) => drop(self.cut_off.insert(id, cut_off)),
            None => self.leave_process(peer),
        }
    }

    /// A client of a process is there no more.
    pub(super) fn leave_process(&mut self, peer: Peer) {
        if let Entry::Occupied(mut count) = self.of_process.entry(peer.pid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// While all together take too much, cuts off the client that takes the most.
    pub(super) fn cut_off(&mut self, shared: &Shared, registry: &Registry) {
        while self.taken > MAX_TAKEN {
            let most = self.clients.iter().max_by_key(|(_, client)| client.counted);
            let Some((&id, client)) = most else {
                return;
            };
            let what = format!("client {:?} was cut off: {}", client.peer(), Ended::TooMuch);
            self.tell_log(&what);
            self.end(id, &Ended::TooMuch, shared, registry);
        }
    }

    /// Takes back what those held who were cut off and know it by now; when to look again.
    pub(super) fn forget_cut_off(&mut self, shared: &Shared) -> Option<Time> {
        let now = clock::now();
        let clients = self.cut_off.iter_mut();
        let is_over =
            |(&id, client): (&ClientId, &mut CutOff)| client.end(id, now, shared).then_some(id);
        for id in clients.filter_map(is_over).collect::<Vec<_>>() {
            if let Some(client) = self.cut_off.remove(&id) {
                self.leave_process(client.peer());
            }
        }
        self.cut_off.values().filter_map(CutOff::due).min()
    }
}
