// Tests the communicator of GPUs with a stand-in for the NCCL library. Needs no GPU.
#ifdef TESSERA_HAVE_NCCL
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>

#include "manual_stream.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

constexpr int kSuccess = 0, kCudaError = 1, kSystemError = 2, kRemoteError = 6;  // ncclResult_t
constexpr int kPolicyZero = 2, kNoPolicy = std::numeric_limits<int>::min();      // CTAPolicy of ncclConfig_t

// Rank 0 of a group of two ranks. The other rank always sends the same text as rank 0, and if `apart`, the number of
// another node.
class HostOfTwo final : public Communicator {
 public:
  explicit HostOfTwo(bool apart = false) : apart_(apart) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::vector<std::string> all_gather_text(std::string_view text, const char*) override {
    return {std::string(text), apart_ && text == "0" ? "1" : std::string(text)};
  }
  std::vector<double> sum(std::vector<double> values, const char*) override { return values; }
  void barrier(const char*) override {}
  std::unique_ptr<Communicator> split(int, int, int) override { return std::make_unique<HostOfTwo>(); }
  void all_gather(View, View, Stream&, const char*) override {}
  void reduce_scatter(View, View, Stream&, const char*) override {}
  void all_reduce(View, Stream&, const char*) override {}
  void broadcast(View, int, Stream&, const char*) override {}

 private:
  const bool apart_;
};

// Loads the stand-in for NCCL and returns its function `name`. A test must call of_stub() before the
// communicator loads NCCL. dlopen("libnccl.so.2") in the communicator then returns the stand-in, because it is already
// loaded.
template <typename Function>
Function* of_stub(const char* name) {
  static void* const library = dlopen(TESSERA_STUBS "/nccl/libnccl.so.2", RTLD_NOW);
  EXPECT_TRUE(library) << dlerror();
  return reinterpret_cast<Function*>(dlsym(library, name));
}

ManualStream* stream_of_stub = nullptr;

struct Nccl : testing::Test {
  Nccl() { stream_of_stub = &stream; }
  // Sets what NCCL's calls return, and the error that NCCL reports between calls (tests/stubs/nccl_stub.cc).
  void set(int of_calls, int between_calls) {
    of_stub<void(int, int, void (*)())>("stub_nccl_set")(of_calls, between_calls, [] { stream_of_stub->put(); });
  }
  static int num_destroyed() { return of_stub<int()>("stub_nccl_num_destroyed")(); }
  static int num_aborted() { return of_stub<int()>("stub_nccl_num_aborted")(); }
  static int num_windows() { return of_stub<int()>("stub_nccl_num_windows")(); }
  static int policy() { return of_stub<int()>("stub_nccl_policy")(); }
  std::unique_ptr<Communicator> make_group(double timeout_s, bool apart = false) {
    const auto fail = [this](const CommunicationError& error) { failure.set_value(error.what()); };
    return make_nccl_communicator(std::make_unique<HostOfTwo>(apart), 0, std::make_shared<NcclMemory>(*device),
                                  {.rank = 5, .timeout_s = timeout_s, .board = nullptr, .fail = fail});
  }
  View view() { return view_of(x.data(), {8}); }
  int64_t booked_mib() const { return (device->ledger().current(Category::context) - kCudaContextBytes) >> 20; }

  const std::unique_ptr<Device> device = make_counting_device({.kind = DeviceKind::cuda});
  std::promise<std::string> failure;
  std::vector<float> x = std::vector<float>(8);
  ManualStream stream;
};

TEST_F(Nccl, CollectivesThatEndAreFine) {
  set(kSuccess, kSuccess);
  auto group = make_group(1e6);
  group->all_reduce(view(), stream, "gradients of h.3");
  group->all_gather(view().rows(0, 4), view(), stream, "parameters of h.3");
  EXPECT_EQ(group->bytes_sent(), 32 + 16);
  stream.finish();
  group.reset();
  EXPECT_EQ(num_destroyed(), 1);
  EXPECT_EQ(num_aborted(), 0);
}

// A group starts NCCL at its first collective on an array. Each group that has started NCCL books 530 MiB until its
// end. The first of these groups also books 390 MiB for NCCL's kernels. These bytes stay booked (NcclMemory).
TEST_F(Nccl, StartsWithTheFirstArrayAndBooksItsMemory) {
  set(kSuccess, kSuccess);
  auto world = make_group(1e6), group = world->split(0, 0, 2);
  world->sum({1}, "counts");
  EXPECT_EQ(booked_mib(), 0);
  group->all_reduce(view(), stream, "gradients of h.3");
  group->all_reduce(view(), stream, "gradients of h.2");
  EXPECT_EQ(booked_mib(), 390 + 530);
  world->all_reduce(view(), stream, "gradients of h.3");
  EXPECT_EQ(booked_mib(), 390 + 2 * 530);
  stream.finish();
  group.reset();
  EXPECT_EQ(booked_mib(), 390 + 530);
  EXPECT_EQ(num_destroyed(), 1);
  auto unused = make_group(1e6);
  unused.reset();
  EXPECT_EQ(num_destroyed(), 1);
  EXPECT_EQ(booked_mib(), 390 + 530);
}

struct NcclMapped : Nccl {
  void SetUp() override {
    set(kSuccess, kSuccess);
    if (!make_group(1e6)->allocator()) GTEST_SKIP() << "the nccl.h of this build is older than 2.28";
  }
};

// Buffers become windows at the first all_gather that uses them, each once, and are windows as long as they live.
TEST_F(NcclMapped, AllGatherMapsWhatItUses) {
  auto group = make_group(1e6);
  Buffer shards = device->allocate(64, Category::parameters, group->allocator()),
         full = device->allocate(64, Category::gathered, group->allocator());
  EXPECT_EQ(device->ledger().current(Category::parameters), 64);
  const View shard = shards.view({16}, DType::f32).rows(8, 12);
  group->reduce_scatter(full.view({8}, DType::f32), shard, stream, "gradients");
  EXPECT_EQ(num_windows(), 0);
  group->all_gather(shard, full.view({8}, DType::f32), stream, "parameters");
  group->all_gather(shard, full.view({16}, DType::f32).rows(8, 16), stream, "parameters");
  EXPECT_EQ(num_windows(), 2);
  EXPECT_EQ(policy(), kPolicyZero);
  group->all_gather(view().rows(0, 4), view(), stream, "memory of the device");
  EXPECT_EQ(num_windows(), 2);
  stream.finish();
  shards = {};
  EXPECT_EQ(num_windows(), 1);
  full = {};
  EXPECT_EQ(num_windows(), 0);
  EXPECT_EQ(device->ledger().current(Category::gathered), 0);
}

TEST_F(NcclMapped, NothingIsMappedBetweenNodes) {
  const auto group = make_group(1e6, true);
  const Buffer full = device->allocate(64, Category::gathered, group->allocator());
  group->all_gather(full.view({4}, DType::f32), full.view({8}, DType::f32), stream, "parameters");
  EXPECT_EQ(num_windows(), 0);
  EXPECT_EQ(policy(), kNoPolicy);
  stream.finish();
}

TEST_F(NcclMapped, AFailureToMapIsAnErrorOfTheCollective) {
  const auto group = make_group(1e6);
  const Buffer full = device->allocate(64, Category::gathered, group->allocator());
  group->all_reduce(view(), stream, "the first array");
  set(kSystemError, kSuccess);
  EXPECT_THROW(group->all_gather(full.view({4}, DType::f32), full.view({8}, DType::f32), stream, "parameters"),
               CommunicationError);
  EXPECT_EQ(num_windows(), 0);
  stream.finish();
}

TEST_F(NcclMapped, MemoryThatNcclDoesNotGiveIsAnError) {
  set(kCudaError, kSuccess);
  const auto group = make_group(1e6);
  EXPECT_THROW(device->allocate(64, Category::parameters, group->allocator()), OutOfMemoryError);
  EXPECT_EQ(device->ledger().current(Category::parameters), 0);
  set(kSystemError, kSuccess);
  EXPECT_THROW(device->allocate(64, Category::parameters, group->allocator()), RunError);
}

TEST_F(Nccl, ACollectiveThatDoesNotEndIsReportedWithTheRankInTheWorld) {
  set(kSuccess, kSuccess);
  const auto world = make_group(0.01);
  const auto group = world->split(0, 0, 2);
  group->broadcast(view(), 1, stream, "parameters of h.4");
  EXPECT_EQ(failure.get_future().get(),
            "rank 5: broadcast of parameters of h.4: waited 0.01 s for the other ranks of its group. If the other "
            "ranks are only slow, give a longer comm_timeout");
}

TEST_F(Nccl, AnErrorBetweenCallsIsReportedWithWhatRuns) {
  set(kSuccess, kSuccess);
  const auto group = make_group(1e6);
  group->reduce_scatter(view(), view().rows(0, 4), stream, "gradients of h.3");
  set(kSuccess, kRemoteError);
  EXPECT_EQ(failure.get_future().get(),
            "rank 5: reduce_scatter of gradients of h.3: NCCL has failed: remote process exited: a cable is out. "
            "Set NCCL_DEBUG=INFO to see details");
}

TEST_F(Nccl, AnErrorOfACallIsThrownAndTheGroupAborted) {
  set(kSuccess, kSuccess);
  try {
    const auto group = make_group(1e6);
    group->all_reduce(view(), stream, "gradients of h.4");
    set(kSystemError, kSuccess);
    group->all_reduce(view(), stream, "gradients of h.3");
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 5: all_reduce of gradients of h.3: NCCL has failed: unhandled system error: a cable is out. "
                 "Set NCCL_DEBUG=INFO to see details");
  }
  EXPECT_EQ(num_destroyed(), 0) << "ncclCommDestroy() would wait for the other ranks";
  EXPECT_EQ(num_aborted(), 1);
  auto group = make_group(1e6);
  EXPECT_THROW(group->all_reduce(view(), stream, "gradients of h.3"), CommunicationError) << "NCCL does not start";
  group.reset();
  EXPECT_EQ(num_destroyed() + num_aborted(), 1) << "no group of NCCL exists for the second communicator";
}

TEST_F(Nccl, OutOfMemoryIsNotACommunicationError) {
  set(kSuccess, kSuccess);
  const auto group = make_group(1e6);
  group->all_reduce(view(), stream, "gradients of h.4");
  set(kCudaError, kSuccess);
  try {
    group->all_reduce(view(), stream, "gradients of h.3");
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 5: all_reduce of gradients of h.3: NCCL has failed: unhandled "
                                                 "cuda error: Cuda failure 2 'out of memory'"));
  }
}

}  // namespace
}  // namespace tessera
#endif
