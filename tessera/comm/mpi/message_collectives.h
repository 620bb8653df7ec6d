// Collectives through MPI messages. They serve groups that span several nodes, and groups whose ranks may not read each
// other's memory.
#pragma once

#include <mpi.h>

#include "tessera/comm/mpi/collectives.h"

namespace tessera {

class MessageCollectives final : public Collectives {
 public:
  // Takes ownership of the communicator; nobody else may use it. reduce_scatter() and all_reduce() receive the
  // terms of their sums in `scratch`.
  MessageCollectives(const GroupInfo& group, MPI_Comm comm, View scratch);
  ~MessageCollectives() override;

  void all_gather(View shard, View full, const char* what) override;
  void reduce_scatter(View full, View shard, const char* what) override;
  void all_reduce(View x, const char* what) override;
  void broadcast(View x, int root, const char* what) override;
  std::vector<std::string> exchange(std::string_view text, const char* what) override;

 private:
  // Outstanding messages, and the peer of each message. The destructor cancels them: if a collective throws, the caller
  // may free the arrays, and a later message must not arrive in freed memory.
  struct Pending {
    std::vector<MPI_Request> requests;
    std::vector<int> peers;

    Pending() = default;
    ~Pending();
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    MPI_Request* add(int peer);
  };
  void send(Pending& pending, int peer, const std::byte* data, int64_t bytes);
  void receive(Pending& pending, int peer, std::byte* data, int64_t bytes);
  void wait(Pending& pending);
  void check(int mpi_result, int peer);
  void begin(const Call& call);  // sends `call` to the peers, receives their calls, and checks that all calls agree
  void gather_slices(View mine, View full);
  void reduce(View full, View out);

  MPI_Comm comm_;
  View scratch_;
  Call call_{};
  std::vector<Call> calls_;  // the current call of each peer, by rank
};

}  // namespace tessera
