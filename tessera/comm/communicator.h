// Collectives among the ranks of a group. Every rank of the group calls the same collectives in the same order.
//
// Letters: R ranks of the group, P elements of a full array, S = P / R elements of a rank's shard. Rank r's shard of a
// full array is elements [r·S, (r+1)·S).
//
// On CPUs, every collective sums each element in the order of ranks 0, 1, … R−1. Therefore reduce_scatter and
// all_reduce of the same numbers give the same bits. 16-bit types are summed in f32 and rounded once. On GPUs, NCCL
// chooses the order (nccl_communicator.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // ---- Calls on a stream of the device. The stream's events show when the collectives are done. The calls return
  // immediately, with two exceptions on a GPU: each call waits until earlier work of the stream has been passed to
  // CUDA, and the first call of a group waits for all its ranks. `what` names the collective's subject in errors
  // ("parameters of h.3"). This text must live as long as the program. On CPUs, the stream throws CommunicationError if
  // a collective fails or a rank does not arrive within the time limit. The error names the calling rank, the
  // collective, its subject and the missing ranks. On GPUs, the watch of the group (collective_watch.h) ends the run.

  // all_gather is fastest if both of its arrays are in memory of this allocator. Null: all memory of the device is
  // equally good. All ranks must allocate buffers of the same sizes from it, and use them in all_gather for the first
  // time in the same order. `full` must be the same part of its buffer on all ranks. The group must outlive the
  // buffers. The memory of a freed buffer is free when all ranks have freed theirs.
  virtual Allocator* allocator() { return nullptr; }
  // full [P] = the shards [S] of all ranks, by rank. `shard` may be this rank's own part of `full`.
  virtual void all_gather(View shard, View full, Stream& stream, const char* what) = 0;
  // shard [S] = this rank's part of the sum of all ranks' `full` [P]. `shard` may be this rank's own part of `full`.
  // The other parts of `full` are unspecified afterwards.
  virtual void reduce_scatter(View full, View shard, Stream& stream, const char* what) = 0;
  // x (of any shape) = the sum of x over the ranks.
  virtual void all_reduce(View x, Stream& stream, const char* what) = 0;
  virtual void broadcast(View x, int root, Stream& stream, const char* what) = 0;

  // ---- Calls on host values. They are done on return. They throw CommunicationError if they fail.

  // Every rank's text, by rank. Texts may differ in length.
  virtual std::vector<std::string> all_gather_text(std::string_view text, const char* what) = 0;
  // For each value, its sum over the ranks, added in the order of ranks.
  virtual std::vector<double> sum(std::vector<double> values, const char* what) = 0;
  virtual void barrier(const char* what) = 0;
  // The greatest value of the ranks.
  int64_t max(int64_t value, const char* what);
  // Whether `value` is true on every rank.
  bool all(bool value, const char* what) { return max(value ? 0 : 1, what) == 0; }

  // The ranks that pass the same color form a group of `size` ranks. This rank becomes rank `rank` of that group.
  // Collective.
  virtual std::unique_ptr<Communicator> split(int color, int rank, int size) = 0;
  // A second group of the same ranks, for host calls that run concurrently with the host calls of this group.
  // Collective.
  virtual std::unique_ptr<Communicator> duplicate_for_host() { return split(0, rank(), size()); }

  // Bytes of views that this rank has sent to other ranks since construction. Work on streams counts when it is queued.
  int64_t bytes_sent() const { return bytes_sent_; }

 protected:
  void count_all_gather(int64_t shard_bytes) { bytes_sent_ += shard_bytes * (size() - 1); }
  void count_reduce_scatter(int64_t shard_bytes) { bytes_sent_ += shard_bytes * (size() - 1); }
  // Counts as a reduce_scatter followed by an all_gather.
  void count_all_reduce(int64_t bytes) { bytes_sent_ += 2 * bytes * (size() - 1) / size(); }
  void count_broadcast(int64_t bytes, int root) { bytes_sent_ += rank() == root ? bytes * (size() - 1) : 0; }

 private:
  int64_t bytes_sent_ = 0;
};

// A group of one rank. Collectives copy, or do nothing if the result is already in place.
std::unique_ptr<Communicator> make_self_communicator();
// Acts as rank `rank` of a group of `size` ranks, but the other ranks do not exist. Books on the counting device the
// memory that the collectives of this rank would hold, and counts the bytes that they would send. Texts and sums
// contain only this rank's values.
std::unique_ptr<Communicator> make_counting_communicator(Device& device, int rank, int size);

// The bytes of scratch (Category::communication) that a CPU group of this size holds on its device.
int64_t communication_scratch_bytes(int size);

}  // namespace tessera
