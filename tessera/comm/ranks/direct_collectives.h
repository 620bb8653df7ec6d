// The collectives of a group of ranks on one node. Each rank reads the memory of the other ranks (process_vm_readv).
#pragma once

#include "tessera/comm/ranks/collectives.h"
#include "tessera/comm/ranks/memory_access.h"
#include "tessera/comm/shared_pages.h"

namespace tessera {

class DirectCollectives final : public Collectives {
 public:
  // The bytes of shared pages that a group of `size` ranks needs, if each rank has one DirectCollectives object.
  static int64_t shared_bytes(int size);
  // Uses shared_bytes() bytes of the pages, starting at byte `offset`. Only the collectives that sum need `scratch`.
  // While the object exists, descendants of `reader` may read this process's memory (MemoryAccess).
  DirectCollectives(const GroupInfo& group, std::shared_ptr<SharedPages> pages, int64_t offset, View scratch,
                    pid_t reader);
  ~DirectCollectives() override;
  // Whether this rank can read the memory of all other ranks. Call it after all ranks have constructed their objects
  // and before any rank starts a collective: a rank's first collective replaces the address of token_ in the shared
  // pages with the address of its array.
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
  // The peers are neighbour(1) to neighbour(size - 1). In this order, each rank starts with a different peer.
  int neighbour(int i) const { return (group().rank + i) % group().size(); }
  void begin(const Call& call, const void* data);
  void meet(int peer);  // waits until the peer is at the same call
  void advance(uint32_t step);
  bool has_come(int peer, uint32_t step);
  void wait_for(int peer, uint32_t step);
  void read(int peer, int64_t offset, std::byte* to, int64_t bytes);  // reads from the peer's array
  void reduce(View full, View out);
  void finish();
  void leave();  // from now on, a peer that needs this rank throws an error and does not wait
  template <typename Failure>
  void give_up(const Failure& failure);

  static constexpr uint64_t kToken = 0x7e55e7a0c0111ec7;
  const uint64_t token_ = kToken;  // peers read it to test their access
  const MemoryAccess access_;
  std::shared_ptr<SharedPages> pages_;
  RankState* states_;
  View scratch_;
  uint32_t base_ = 0;  // the value of RankState::step after the latest finished collective
};

}  // namespace tessera
