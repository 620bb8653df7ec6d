#include "tessera/comm/communicator.h"

namespace tessera {
namespace {

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(Device& device, int rank, int size)
      : device_(device),
        rank_(rank),
        size_(size),
        scratch_(device.allocate(counted_by(device).kind == DeviceKind::cpu ? communication_scratch_bytes(size) : 0,
                                 Category::communication)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(View shard, View, Stream&, const char*) override { count_all_gather(shard.bytes()); }
  void reduce_scatter(View, View shard, Stream&, const char*) override { count_reduce_scatter(shard.bytes()); }
  void all_reduce(View x, Stream&, const char*) override { count_all_reduce(x.bytes()); }
  void broadcast(View x, int root, Stream&, const char*) override { count_broadcast(x.bytes(), root); }

  std::vector<std::string> all_gather_text(std::string_view text, const char*) override { return {std::string(text)}; }
  std::vector<double> sum(std::vector<double> values, const char*) override { return values; }
  void barrier(const char*) override {}
  std::unique_ptr<Communicator> split(int, int rank, int size) override {
    return make_counting_communicator(device_, rank, size);
  }

 private:
  Device& device_;
  int rank_, size_;
  Buffer scratch_;
};

}  // namespace

std::unique_ptr<Communicator> make_counting_communicator(Device& device, int rank, int size) {
  return std::make_unique<CountingCommunicator>(device, rank, size);
}

}  // namespace tessera
