#include "tessera/comm/communicator.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/device/counting/counting_device.h"

namespace tessera {
namespace {

class CountingCommunicator final : public Communicator {
 public:
  // `nccl` books the memory of groups of GPUs; null on CPUs.
  // `span`: the number of ranks from the group's first rank to its last one.
  CountingCommunicator(Device& device, std::shared_ptr<NcclMemory> nccl, int rank, int size, int span)
      : device_(device),
        nccl_(std::move(nccl)),
        rank_(rank),
        size_(size),
        span_(span),
        scratch_(device.allocate(nccl_ ? 0 : communication_scratch_bytes(size), Category::communication)) {}
  ~CountingCommunicator() override {
    if (has_moved_) nccl_->end_group();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(View shard, View, Stream& stream, const char*) override {
    move(stream, [&] { count_all_gather(shard.bytes()); });
  }
  void reduce_scatter(View, View shard, Stream& stream, const char*) override {
    move(stream, [&] { count_reduce_scatter(shard.bytes()); });
  }
  void all_reduce(View x, Stream& stream, const char*) override {
    move(stream, [&] { count_all_reduce(x.bytes()); });
  }
  void broadcast(View x, int root, Stream& stream, const char*) override {
    move(stream, [&] { count_broadcast(x.bytes(), root); });
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char*) override { return {std::string(text)}; }
  std::vector<double> sum(std::vector<double> values, const char*) override { return values; }
  void barrier(const char*) override {}
  // Whether the new group is within a node depends on whether its ranks are consecutive, like those of a node. A shard
  // group is (its color is rank / size), and a replica group is not. For rank 0, both have the color 0, but an engine
  // splits off the shard group first (RankGroups).
  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    const bool consecutive = color * size + rank == rank_ && num_splits_++ == 0;
    return std::make_unique<CountingCommunicator>(device_, nccl_, rank, size, consecutive ? size : size_);
  }

 private:
  template <typename Count>
  void move(Stream& stream, const Count& count) {
    if (nccl_ && !has_moved_ && size_ > 1) {
      nccl_->begin_group();
      has_moved_ = true;
    }
    const int64_t before = bytes_sent();
    count();
    const Timeline* timeline = timeline_of(device_);
    if (!timeline || size_ == 1) return;
    const Machine::Link link = timeline->link_of(size(), span_);
    spend_on_network(stream, link.latency_s + static_cast<double>(bytes_sent() - before) / link.bytes_per_s);
  }

  Device& device_;
  std::shared_ptr<NcclMemory> nccl_;
  int rank_, size_, span_;
  int num_splits_ = 0;
  Buffer scratch_;
  bool has_moved_ = false;  // whether nccl_ has booked this group: its first collective on an array starts NCCL
};

}  // namespace

std::unique_ptr<Communicator> make_counting_communicator(Device& device, int rank, int size) {
  const bool cuda = counted_by(device).kind == DeviceKind::cuda;
  return std::make_unique<CountingCommunicator>(device, cuda ? std::make_shared<NcclMemory>(device) : nullptr, rank,
                                                size, size);
}

}  // namespace tessera
