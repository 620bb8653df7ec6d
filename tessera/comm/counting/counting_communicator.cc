#include "tessera/comm/communicator.h"
#include "tessera/comm/nccl/nccl_communicator.h"

namespace tessera {
namespace {

class CountingCommunicator final : public Communicator {
 public:
  // `nccl` books the memory of groups of GPUs; null on CPUs.
  CountingCommunicator(Device& device, std::shared_ptr<NcclMemory> nccl, int rank, int size)
      : device_(device),
        nccl_(std::move(nccl)),
        rank_(rank),
        size_(size),
        scratch_(device.allocate(nccl_ ? 0 : communication_scratch_bytes(size), Category::communication)) {}
  ~CountingCommunicator() override {
    if (has_moved_) nccl_->end_group();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(View shard, View, Stream&, const char*) override {
    begin();
    count_all_gather(shard.bytes());
  }
  void reduce_scatter(View, View shard, Stream&, const char*) override {
    begin();
    count_reduce_scatter(shard.bytes());
  }
  void all_reduce(View x, Stream&, const char*) override {
    begin();
    count_all_reduce(x.bytes());
  }
  void broadcast(View x, int root, Stream&, const char*) override {
    begin();
    count_broadcast(x.bytes(), root);
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char*) override { return {std::string(text)}; }
  std::vector<double> sum(std::vector<double> values, const char*) override { return values; }
  void barrier(const char*) override {}
  std::unique_ptr<Communicator> split(int, int rank, int size) override {
    return std::make_unique<CountingCommunicator>(device_, nccl_, rank, size);
  }

 private:
  void begin() {
    if (!nccl_ || has_moved_ || size_ == 1) return;
    nccl_->begin_group();
    has_moved_ = true;
  }

  Device& device_;
  std::shared_ptr<NcclMemory> nccl_;
  int rank_, size_;
  Buffer scratch_;
  bool has_moved_ = false;  // whether nccl_ has booked this group: its first collective on an array starts NCCL
};

}  // namespace

std::unique_ptr<Communicator> make_counting_communicator(Device& device, int rank, int size) {
  const bool cuda = counted_by(device).kind == DeviceKind::cuda;
  return std::make_unique<CountingCommunicator>(device, cuda ? std::make_shared<NcclMemory>(device) : nullptr, rank,
                                                size);
}

}  // namespace tessera
