// The collectives of a group that spans nodes, or whose ranks may not read each other's memory. It uses MPI messages.
#pragma once

#include <mpi.h>

#include "tessera/comm/mpi/collectives.h"

namespace tessera {

class MessageCollectives final : public Collectives {
 public:
  // Takes ownership of the communicator; nobody else may use it. Sums need `scratch`.
  MessageCollectives(const GroupInfo& group, MPI_Comm comm, View scratch);
  ~MessageCollectives() override;

  void all_gather(View shard, View full, const char* what) override;
  void reduce_scatter(View full, View shard, const char* what) override;
  void all_reduce(View x, const char* what) override;
  void broadcast(View x, int root, const char* what) override;
  std::vector<std::string> exchange(std::string_view text, const char* what) override;

 private:
  // Outstanding messages, and the peer of each. If a call fails, its exception frees memory in which outstanding
  // messages would still arrive. Therefore the destructor cancels them.
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
  void begin(const Call& call);  // exchanges calls with the peers, and checks that they agree
  void gather_slices(View mine, View full);
  void reduce(View full, View out);

  MPI_Comm comm_;
  View scratch_;
  Call call_{};
  std::vector<Call> calls_;  // of the peers, by rank
};

}  // namespace tessera
