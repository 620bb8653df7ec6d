// Collectives through messages. They serve groups that span several nodes, and groups whose ranks may not read each
// other's memory.
#pragma once

#include <memory>

#include "tessera/comm/messenger.h"
#include "tessera/comm/ranks/collectives.h"

namespace tessera {

class MessageCollectives final : public Collectives {
 public:
  // The channel has the ranks of the group, in the same order. reduce_scatter() and all_reduce() receive the terms of
  // their sums in `scratch`.
  MessageCollectives(const GroupInfo& group, std::unique_ptr<Channel> channel, View scratch);

  void all_gather(View shard, View full, const char* what) override;
  void reduce_scatter(View full, View shard, const char* what) override;
  void all_reduce(View x, const char* what) override;
  void broadcast(View x, int root, const char* what) override;
  std::vector<std::string> exchange(std::string_view text, const char* what) override;

 private:
  void wait(MessageBatch& batch);
  void begin(const Call& call);  // sends `call` to the peers, receives their calls, and checks that all calls agree
  void gather_slices(View mine, View full);
  void reduce(View full, View out);

  std::unique_ptr<Channel> channel_;
  View scratch_;
  Call call_{};
  std::vector<Call> calls_;  // the current call of each peer, by rank
};

}  // namespace tessera
