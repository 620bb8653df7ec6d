#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "gpu_testing.h"
#include "tessera/ops/back_ends.h"

namespace tessera::testing {
namespace {

TEST(CudaDevice, AllocatesZeroedAlignedAndExact) {
  Device& gpu = *rig().gpu;
  const int64_t before = gpu.ledger().current(Category::staging);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{3} << 20}) {
    const Buffer buffer = gpu.allocate(bytes, Category::staging);
    EXPECT_EQ(gpu.ledger().current(Category::staging), before + bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Device::kAlignment, 0u);
    std::vector<std::byte> contents(static_cast<size_t>(bytes), std::byte{1});
    gpu.copy_to_host(buffer.view({bytes}, DType::u8), contents.data());
    EXPECT_EQ(contents, std::vector<std::byte>(static_cast<size_t>(bytes)));
  }
  EXPECT_EQ(gpu.ledger().current(Category::staging), before);
}

TEST(CudaDevice, OutOfMemoryLeavesTheDeviceUsable) {
  Device& gpu = *rig().gpu;
  EXPECT_THROW(gpu.allocate(int64_t{1} << 50, Category::staging), OutOfMemoryError);
  Tensor x(DType::f32, {10});
  rig().gpu_kernels->fill(x.gpu(), 2);
  EXPECT_EQ(x.values(), std::vector<double>(10, 2));
}

TEST(CudaDevice, NoSuchGpu) {
  EXPECT_THROW(make_cuda_device(1000), UsageError);
  EXPECT_THROW(make_cuda_device(-1), UsageError);
}

TEST(CudaDevice, InfoAndMemory) {
  const CudaInfo info = cuda_info();
  ASSERT_FALSE(info.devices.empty());
  EXPECT_TRUE(info.problem.empty());
  const CudaMemory memory = cuda_memory_of(*rig().gpu);
  EXPECT_EQ(memory.total_bytes > 0, true);
  EXPECT_LE(memory.usable_bytes, memory.total_bytes);
  EXPECT_GE(memory.usable_bytes, rig().gpu->ledger().current_total());
}

TEST(PinnedHost, ReusesABlockOfTheSameSize) {
  const auto host = make_pinned_host_device(rig().pool);
  constexpr int64_t kBytes = (int64_t{9} << 20) + 5;
  const auto all_zero = [](const Buffer& buffer) {
    return std::all_of(buffer.data(), buffer.data() + buffer.bytes(), [](std::byte b) { return b == std::byte{}; });
  };
  {
    const Buffer buffer = host->allocate(kBytes, Category::staging), other = host->allocate(1, Category::staging);
    EXPECT_TRUE(all_zero(buffer));
    std::fill(buffer.data(), buffer.data() + kBytes, std::byte{7});
  }
  EXPECT_EQ(host->ledger().current_total(), 0);
  // The device has kept the freed block of kBytes. This allocation has another size, so it cannot reuse the block. Both
  // together would exceed the ledger's peak, so the device frees the kept block.
  const Buffer smaller = host->allocate(kBytes - 4096, Category::staging);
  EXPECT_TRUE(all_zero(smaller));
  const Buffer larger = host->allocate(2 * kBytes, Category::staging);
  EXPECT_TRUE(all_zero(larger));
  const std::byte* first = nullptr;
  {
    const Buffer buffer = host->allocate(kBytes, Category::staging);
    std::fill(buffer.data(), buffer.data() + kBytes, std::byte{7});
    first = buffer.data();
  }
  const Buffer again = host->allocate(kBytes, Category::staging);
  EXPECT_EQ(again.data(), first);
  EXPECT_TRUE(all_zero(again));
  EXPECT_EQ(host->ledger().peak_total(), 4 * kBytes - 4096);
}

TEST(PinnedHost, MemoryBeyondItsLimitIsOrdinary) {
  constexpr int64_t kCount = 1 << 20, kBytes = 4 * kCount;
  const auto host = make_pinned_host_device(rig().pool, 2 * kBytes);
  const auto is_pinned = [](const Buffer& buffer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, buffer.data()) == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  };
  Device& gpu = *rig().gpu;
  const Buffer device = gpu.allocate(kBytes, Category::staging);
  const Buffer first = host->allocate(kBytes, Category::staging);
  auto second = std::make_optional(host->allocate(kBytes, Category::staging));
  EXPECT_EQ(reason_of_unpinned(*host), "");
  const Buffer third = host->allocate(kBytes, Category::staging), small = host->allocate(1, Category::staging);
  EXPECT_NE(reason_of_unpinned(*host), "");
  EXPECT_TRUE(is_pinned(first) && is_pinned(*second));
  EXPECT_FALSE(is_pinned(third) || is_pinned(small));
  // Copies between the GPU and the host work for pinned and for ordinary buffers.
  const auto values = [](const Buffer& buffer) { return buffer.view({kCount}, DType::f32); };
  for (int64_t i = 0; i < kCount; ++i) values(first).as<float>()[i] = static_cast<float>(i);
  const auto copies = gpu.make_stream();
  copies->copy(values(first), values(device));
  copies->copy(values(device), values(third));
  copies->synchronize();
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(values(third).as<float>()[i], static_cast<float>(i));
  copies->copy(values(third), values(device));
  copies->copy(values(device), values(*second));
  copies->synchronize();
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(values(*second).as<float>()[i], static_cast<float>(i));
  second.reset();
  EXPECT_TRUE(is_pinned(host->allocate(kBytes - 8, Category::staging))) << "the freed block did not make room";
  EXPECT_EQ(reason_of_unpinned(*make_cpu_device(rig().pool)), "");
  EXPECT_EQ(host->ledger().peak_total(), 3 * kBytes + 1);
}

TEST(CudaStream, OrdersCopiesHostWorkAndOtherStreams) {
  Device& gpu = *rig().gpu;
  const auto pinned = make_pinned_host_device(rig().pool);
  constexpr int64_t kCount = 1 << 20;
  const Buffer host = pinned->allocate(kCount * 4, Category::staging),
               back = pinned->allocate(kCount * 4, Category::staging),
               device = gpu.allocate(kCount * 4, Category::staging), sums = gpu.allocate(kCount * 4, Category::staging);
  const View from = host.view({kCount}, DType::f32), there = device.view({kCount}, DType::f32),
             twice = sums.view({kCount}, DType::f32), to = back.view({kCount}, DType::f32);
  const auto copies = gpu.make_stream();
  const auto files = make_host_stream();
  std::atomic<int> stage = 0;

  files->run([&] {
    for (int64_t i = 0; i < kCount; ++i) from.as<float>()[i] = static_cast<float>(i);
    stage = 1;
  });
  copies->wait(files->record());  // a CUDA stream waits for a host stream
  copies->run([&] { EXPECT_EQ(stage.exchange(2), 1); });
  copies->copy(from, there);
  gpu.compute_stream().wait(copies->record());
  rig().gpu_kernels->convert(there, twice);
  rig().gpu_kernels->add(there, twice);
  copies->wait(gpu.compute_stream().record());
  copies->copy(twice, to);
  files->wait(copies->record());  // a host stream waits for a CUDA stream
  files->run([&] { EXPECT_EQ(stage.exchange(3), 2); });
  files->synchronize();
  EXPECT_EQ(stage, 3);
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(to.as<float>()[i], static_cast<float>(2 * i));
}

// A copy stream that waits for the host does not block the caller. The caller blocks only when the compute stream must
// wait for work of the host.
TEST(CudaStream, WaitsForTheHostWithoutBlockingTheCaller) {
  Device& gpu = *rig().gpu;
  std::promise<void> go;
  float value = 0;
  const auto copies = gpu.make_stream(), host = make_host_stream();
  host->run([&, ready = go.get_future().share()] {
    ready.wait();
    value = 3;
  });
  Tensor there(DType::f32, {1});
  const View from{reinterpret_cast<std::byte*>(&value), DType::f32, {1}};
  copies->wait(host->record());
  copies->copy(from, there.gpu());
  const Event copied = copies->record();
  EXPECT_FALSE(copied.reached());
  go.set_value();
  gpu.compute_stream().wait(copied);
  EXPECT_EQ(there.values(), std::vector<double>{3});
  EXPECT_TRUE(copied.reached());
}

TEST(CudaStream, AFailureOfTheHostReachesTheComputeStream) {
  Device& gpu = *rig().gpu;
  const auto copies = gpu.make_stream(), host = make_host_stream();
  host->run([] { throw RunError("here", "it failed"); });
  copies->wait(host->record());
  const Event after = copies->record();
  EXPECT_THROW(gpu.compute_stream().wait(after), RunError);
  EXPECT_FALSE(after.reached());
  EXPECT_THROW(copies->native(), RunError);
}

// When a copy from a small array in pageable memory is requested, CUDA reads the array immediately. The request must
// therefore wait until earlier host work has written the array.
TEST(CudaStream, CopiesTheResultOfEarlierHostWork) {
  Device& gpu = *rig().gpu;
  const auto files = gpu.make_stream(), copies = gpu.make_stream();
  constexpr int64_t kCount = 100;
  std::vector<float> host(kCount);
  const View from{reinterpret_cast<std::byte*>(host.data()), DType::f32, {kCount}};
  Tensor there(DType::f32, {kCount});
  // The copy is first on the stream of the host work, then on a stream that waits for this work.
  for (Stream* stream : {files.get(), copies.get()}) {
    const float value = host[0] + 1;
    files->run([&, value] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::fill(host.begin(), host.end(), value);
    });
    copies->wait(files->record());
    stream->copy(from, there.gpu());
    stream->synchronize();
    EXPECT_EQ(there.values(), std::vector<double>(kCount, value));
  }
}

TEST(CudaStream, AFailureReachesWaitersAndSkipsLaterWork) {
  const auto stream = rig().gpu->make_stream();
  bool ran = false;
  stream->run([] { throw RunError("here", "it failed"); });
  stream->run([&] { ran = true; });
  EXPECT_THROW(stream->synchronize(), RunError);
  EXPECT_FALSE(ran);
}

TEST(CudaKernels, HoldTheReportedWorkspace) {
  EXPECT_EQ(rig().gpu->ledger().current(Category::workspace), kCudaWorkspaceBytes);
}

}  // namespace
}  // namespace tessera::testing
