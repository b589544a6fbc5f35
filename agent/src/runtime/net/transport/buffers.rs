//! How much of what arrives and leaves the kernel keeps.

use socket2::Socket;

use crate::runtime::net::aead;

/// Room for the longest datagram of ours, and the byte that tells a longer one: of that the kernel
/// copies no more.
pub(super) const BUFFER: usize = aead::MAX_LEN + 1;
/// Room for what arrives while the agent is busy: a few thousand small datagrams. The kernel may
/// grant less.
pub(super) const SOCKET_BUFFER: usize = 1 << 20;
/// Room for what comes between two looks and can be taken in one, in bytes, which the kernel doubles for
/// what it adds. It may grant less.
pub(super) const ROOM: usize = 1 << 18;

/// Sizes the buffers. A smaller buffer than asked for is no error: it loses more under load.
pub(super) fn size_buffers(socket: &Socket) {
    let sized = socket
        .set_recv_buffer_size(SOCKET_BUFFER)
        .and_then(|()| socket.set_send_buffer_size(SOCKET_BUFFER));
    if let Err(error) = sized {
        tracing::debug!("the socket's buffers keep their size: {error}");
    }
}
