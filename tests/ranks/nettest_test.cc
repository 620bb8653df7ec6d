// Runs network tests on real ranks. A network test must find no wrong element in healthy collectives, and must count
// the wrong elements of damaged collectives.
#include <functional>

#include "forwarding_group.h"
#include "rank_test.h"
#include "tessera/comm/nettest/net_test.h"
#include "tessera/comm/ranks/ranks_world.h"

namespace tessera {
namespace {

// Forwards to another communicator, and damages an array before or after each collective.
class Damaged final : public ForwardingGroup {
 public:
  using Damage = std::function<void(View)>;
  Damaged(Communicator& real, Damage before, Damage after)
      : ForwardingGroup(real), before_(std::move(before)), after_(std::move(after)) {}
  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    around(full, stream, [&] { real_.all_gather(shard, full, stream, what); });
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    around(shard, stream, [&] { real_.reduce_scatter(full, shard, stream, what); });
  }
  void all_reduce(View x, Stream& stream, const char* what) override {
    around(x, stream, [&] { real_.all_reduce(x, stream, what); });
  }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    around(x, stream, [&] { real_.broadcast(x, root, stream, what); });
  }

 private:
  template <typename Call>
  void around(View view, Stream& stream, const Call& call) {
    if (before_) stream.run([this, view] { before_(view); });
    call();
    if (after_) stream.run([this, view] { after_(view); });
  }

  Damage before_, after_;
};

class NetTests : public testing::Test {
 protected:
  NetResult run(Communicator& group, NetCollective collective, int64_t bytes, DType dtype) {
    const NetTest test{
        .collective = collective, .bytes = bytes, .dtype = dtype, .warmup = 1, .iterations = 2, .seed = 42};
    Buffer buffer = device_->allocate(net_buffer_bytes(test, group.size()), Category::communication);
    return run_net_test(group, *device_, buffer, test);
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ = make_cpu_device(pool_);
  std::unique_ptr<Communicator> group_ = make_group_with(test_world(), device_.get(), {.transport = test_transport()});
  const int size_ = group_->size(), rank_ = group_->rank();
};

constexpr NetCollective kCollectives[] = {NetCollective::all_reduce, NetCollective::all_gather,
                                          NetCollective::reduce_scatter, NetCollective::broadcast};

TEST_F(NetTests, HealthyRanksHaveNoWrongElement) {
  for (const NetCollective collective : kCollectives) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t bytes : {1, 1000, 300'000, 6'000'000}) {
        const NetResult result = run(*group_, collective, bytes, dtype);
        EXPECT_EQ(result.wrong, 0) << name_of(collective) << " " << name_of(dtype) << " " << bytes;
        EXPECT_GT(result.seconds, 0);
        EXPECT_NEAR(result.busbw, result.algbw * bus_factor(collective, size_), 1e-12);
        EXPECT_EQ(result.iterations, 2);
        // All ranks return the same time.
        const auto times = group_->all_gather_text(std::to_string(result.seconds), "times");
        EXPECT_EQ(times, std::vector<std::string>(times.size(), times[0]));
      }
    }
  }
}

TEST_F(NetTests, OneChangedElementOnOneRankIsCounted) {
  const bool is_last = rank_ == size_ - 1;
  for (const NetCollective collective : kCollectives) {
    Damaged damaged(*group_, {}, [&](View x) {
      if (is_last) x.data[x.bytes() - 1] ^= std::byte{1};
    });
    // The wrong element counts twice, because a network test checks the data before and after it measures the time.
    EXPECT_EQ(run(damaged, collective, 100'000, DType::f32).wrong, 2) << name_of(collective);
  }
}

// The contribution of rank 1 is replaced by zeros.
TEST_F(NetTests, ALostContributionIsCounted) {
  for (const NetCollective collective : {NetCollective::all_reduce, NetCollective::all_gather}) {
    Damaged damaged(*group_,
                    [&](View x) {
                      if (rank_ == 1) std::memset(x.data, 0, static_cast<size_t>(x.bytes()));
                    },
                    {});
    EXPECT_GT(run(damaged, collective, 100'000, DType::bf16).wrong, 1000) << name_of(collective);
  }
}

TEST_F(NetTests, ACollectiveThatDoesNothingIsCounted) {
  class Idle final : public ForwardingGroup {
   public:
    using ForwardingGroup::ForwardingGroup;
    void all_gather(View, View, Stream&, const char*) override {}
    void reduce_scatter(View, View, Stream&, const char*) override {}
    void all_reduce(View, Stream&, const char*) override {}
    void broadcast(View, int, Stream&, const char*) override {}
  };
  Idle idle(*group_);
  for (const NetCollective collective : kCollectives) {
    EXPECT_GT(run(idle, collective, 100'000, DType::f32).wrong, 1000) << name_of(collective);
  }
}

TEST_F(NetTests, PairsOfRanksAreAllTested) {
  std::vector<int> units(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) units[static_cast<size_t>(r)] = r;
  const NetTest test{.collective = NetCollective::all_reduce, .bytes = 50'000, .warmup = 1, .iterations = 2};
  Buffer buffer = device_->allocate(net_buffer_bytes(test, size_), Category::communication);
  const auto pairs = run_pair_tests(*group_, *device_, buffer, test, units);
  ASSERT_EQ(pairs.size(), static_cast<size_t>(size_ * (size_ - 1) / 2));
  size_t at = 0;
  for (int a = 0; a < size_; ++a) {
    for (int b = a + 1; b < size_; ++b, ++at) {
      EXPECT_EQ(std::pair(pairs[at].first, pairs[at].second), std::pair(a, b));
      EXPECT_EQ(pairs[at].result.wrong, 0);
      EXPECT_GT(pairs[at].result.busbw, 0);
      EXPECT_EQ(pairs[at].result.message.bytes, 50'000);
    }
  }
}

// A pair test measures two units together. A unit may consist of several ranks, for example all ranks of a node.
TEST_F(NetTests, PairsOfUnitsContainAllTheirRanks) {
  if (size_ < 3) return;
  std::vector<int> units(static_cast<size_t>(size_), 1);
  units[0] = 0;
  const NetTest test{.collective = NetCollective::all_gather, .bytes = 60'000, .warmup = 0, .iterations = 1};
  Buffer buffer = device_->allocate(net_buffer_bytes(test, size_), Category::communication);
  const auto pairs = run_pair_tests(*group_, *device_, buffer, test, units);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].result.message.num_elems, pairs[0].result.message.count * size_);
  EXPECT_EQ(pairs[0].result.wrong, 0);
}

TEST_F(NetTests, ATimeLimitGivesAtLeastOneIteration) {
  NetTest test{.bytes = 1'000'000, .warmup = 1000, .iterations = 1'000'000, .longest_s = 0.001};
  Buffer buffer = device_->allocate(net_buffer_bytes(test, size_), Category::communication);
  const NetResult result = run_net_test(*group_, *device_, buffer, test);
  EXPECT_GE(result.iterations, 1);
  EXPECT_LT(result.iterations, 1'000'000);
}

}  // namespace
}  // namespace tessera
