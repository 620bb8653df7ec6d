// Messages through one connection to each peer.
#pragma once

#include <memory>
#include <vector>

#include "tessera/comm/messenger.h"
#include "tessera/comm/tcp/socket.h"

namespace tessera {

// `sockets`: a connection to each peer, by its rank in the channel. The own place is empty. The sockets must not block
// (O_NONBLOCK). If messages are given up, the channel closes its connections, so the peers notice it.
std::unique_ptr<Channel> make_tcp_channel(std::vector<Socket> sockets);

}  // namespace tessera
