// The collectives of a group whose ranks run on one node and may read each other's memory (process_vm_readv).
#pragma once

#include "tessera/comm/mpi/collectives.h"
#include "tessera/comm/mpi/memory_access.h"
#include "tessera/comm/shared_pages.h"

namespace tessera {

class DirectCollectives final : public Collectives {
 public:
  // Bytes of shared pages that one object of `size` ranks needs.
  static int64_t shared_bytes(int size);
  // Uses the pages from byte `offset` on. Sums need `scratch`. While the object lives, descendants of `reader` may read
  // this process's memory.
  DirectCollectives(const GroupInfo& group, std::shared_ptr<SharedPages> pages, int64_t offset, View scratch,
                    pid_t reader);
  ~DirectCollectives() override;
  // Whether this rank can read the memory of all others. All ranks must have made their objects, and none may have used
  // its object yet.
  bool can_read_peers();

  void all_gather(View shard, View full, const char* what) override;
  void reduce_scatter(View full, View shard, const char* what) override;
  void all_reduce(View x, const char* what) override;
  void broadcast(View x, int root, const char* what) override;
  std::vector<std::string> exchange(std::string_view text, const char* what) override;

 private:
  struct RankState;
  RankState& own();
  RankState& state_of(int rank);
  int neighbour(int i) const { return (group().rank + i) % group().size(); }  // each rank starts with a different peer
  void begin(const Call& call, const void* data);
  void meet(int peer);  // waits until the peer is at the same call
  void advance(uint32_t step);
  bool has_come(int peer, uint32_t step);
  void wait_for(int peer, uint32_t step);
  void read(int peer, int64_t offset, std::byte* to, int64_t bytes);  // reads from the peer's array
  void reduce(View full, View out);
  void finish();
  void leave();  // after this, no peer waits for this rank
  template <typename Failure>
  void give_up(const Failure& failure);

  static constexpr uint64_t kToken = 0x7e55e7a0c0111ec7;
  const uint64_t token_ = kToken;  // peers read it to test their access
  const MemoryAccess access_;
  std::shared_ptr<SharedPages> pages_;
  RankState* states_;
  View scratch_;
  uint32_t base_ = 0;  // the value of `step` after the latest finished collective
};

}  // namespace tessera
