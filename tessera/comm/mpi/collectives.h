// A sequence of collectives of a group. Only one thread at a time may use it. A group has two of these objects, one for
// its streams and one for host calls, so streams and host calls do not wait for each other.
//
// Letters: R ranks of the group, P elements of a full array. Slice q of a full array is elements [P·q/R, P·(q+1)/R).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/view.h"
#include "tessera/comm/status_board.h"

namespace tessera {

// The participants, and how long they wait for each other.
struct GroupInfo {
  int rank = 0;
  std::vector<int> world_ranks;  // by rank of the group; errors use these numbers
  double timeout_s = 600;
  StatusBoard* board = nullptr;  // shows in which collective a rank waits; may be null

  int size() const { return static_cast<int>(world_ranks.size()); }
};

enum class Collective : uint32_t { all_gather, reduce_scatter, all_reduce, broadcast, exchange };
const char* name_of(Collective collective);

// What a rank announces to its peers about its current collective. All fields must agree, except `what`. In an
// exchange, `bytes` may differ too.
struct Call {
  Collective collective;
  DType dtype;
  int root;
  int64_t bytes;  // of the larger array, or of this rank's text
  char what[52];  // the subject, truncated

  static Call make(Collective collective, DType dtype, int64_t bytes, const char* what, int root = 0);
  bool agrees_with(const Call& other) const;
  std::string to_string() const;  // "reduce_scatter of gradients of h.3"
};

class Collectives {
 public:
  explicit Collectives(const GroupInfo& group) : group_(group) {}
  virtual ~Collectives() = default;
  const GroupInfo& group() const { return group_; }

  // All of these functions throw CommunicationError. After an error the object is unusable.

  // Slice q of `full` = rank q's `shard`, for every q. `shard` may be this rank's slice of `full`.
  virtual void all_gather(View shard, View full, const char* what) = 0;
  // `shard` = this rank's slice of the sum of all ranks' `full`. `shard` may be this rank's slice of its own `full`.
  // The other slices of `full` stay unchanged.
  virtual void reduce_scatter(View full, View shard, const char* what) = 0;
  virtual void all_reduce(View x, const char* what) = 0;
  virtual void broadcast(View x, int root, const char* what) = 0;
  virtual std::vector<std::string> exchange(std::string_view text, const char* what) = 0;

 protected:
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(group_.timeout_s));
  }
  int64_t slice_begin(int64_t num_elems, int rank) const {  // P·q/R without overflow
    return num_elems / group_.size() * rank + num_elems % group_.size() * rank / group_.size();
  }
  View slice(View full, int rank) const {
    const View flat{full.data, full.dtype, {full.num_elems()}};
    return flat.rows(slice_begin(full.num_elems(), rank), slice_begin(full.num_elems(), rank + 1));
  }
  StatusBoard::Waiting waiting(const Call& call) const;
  // Ranks of the group as errors name them: "rank 1", "ranks 1, 3".
  std::string names_of(const std::vector<int>& ranks) const;
  [[noreturn]] void fail(const Call& call, const std::string& what, const std::string& remedy = "") const;
  [[noreturn]] void fail_waiting(const Call& call, const std::vector<int>& ranks) const;
  [[noreturn]] void fail_disagreeing(const Call& call, int peer, const Call& theirs) const;

 private:
  GroupInfo group_;
};

}  // namespace tessera
