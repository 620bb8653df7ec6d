#include "tessera/device/device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/device/stack.h"

namespace tessera {
namespace {

TEST(Ledger, KeepsPeaksByPhaseAndCategory) {
  Ledger ledger;
  ledger.add(Category::parameters, 100);
  ledger.enter(Phase::step);
  ledger.add(Category::activations, 50);
  ledger.remove(Category::activations, 50);
  ledger.add(Category::gradients, 20);
  ledger.enter(Phase::save);
  EXPECT_EQ(ledger.peak(Phase::load, Category::parameters), 100);
  EXPECT_EQ(ledger.peak(Phase::load, Category::activations), 0);
  EXPECT_EQ(ledger.peak(Phase::step, Category::activations), 50);
  EXPECT_EQ(ledger.peak_total(Phase::step), 150);
  EXPECT_EQ(ledger.peak_total(Phase::save), 120);
  EXPECT_EQ(ledger.peak_total(), 150);
  EXPECT_EQ(ledger.current(Category::activations), 0);
}

TEST(CpuDevice, AllocatesAlignedMemoryAndBooksIt) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  {
    Buffer buffer = device->allocate(1000, Category::gradients);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Device::kAlignment, 0u);
    std::memset(buffer.data(), 1, 1000);
    EXPECT_EQ(device->ledger().current(Category::gradients), 1000);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(device->ledger().current_total(), 1000);
    float values[3] = {1, 2, 3}, back[3] = {};
    const View view = moved.view({3}, DType::f32);
    device->copy_from_host(values, view);
    device->copy_to_host(view, back);
    EXPECT_EQ(back[2], 3);
  }
  EXPECT_EQ(device->ledger().current_total(), 0);
}

// If the addresses of two large arrays are equal modulo a large power of two, elements with the same index use the same
// cache sets and memory banks. A loop over both arrays is then slow.
TEST(CpuDevice, LargeArraysStartAtDifferentOffsets) {
  constexpr int64_t kBytes = int64_t{128} << 20;  // the test does not touch this memory
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  const Buffer first = device->allocate(kBytes, Category::gradients),
               second = device->allocate(kBytes, Category::master);
  EXPECT_NE((reinterpret_cast<intptr_t>(first.data()) - reinterpret_cast<intptr_t>(second.data())) % kBytes, 0);
}

TEST(HostStream, RunsInOrderAndHandsOverByEvents) {
  const auto first = make_host_stream(), second = make_host_stream();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) first->run([&order, i] { order.push_back(i); });
  second->wait(first->record());
  second->run([&order] { order.push_back(100); });
  second->synchronize();
  ASSERT_EQ(order.size(), 101u);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(HostStream, AFailureReachesWaitersAndSkipsLaterWork) {
  const auto failing = make_host_stream(), other = make_host_stream();
  bool ran = false, ran_after = false;
  failing->run([] { throw RunError("here", "it broke"); });
  failing->run([&] { ran = true; });
  const Event event = failing->record();
  EXPECT_THROW(event.synchronize(), RunError);
  EXPECT_FALSE(event.reached());
  other->wait(event);
  other->run([&] { ran_after = true; });
  EXPECT_THROW(other->synchronize(), RunError);
  EXPECT_FALSE(ran || ran_after);
}

TEST(CpuDevice, ReportsTheAllocationThatDidNotFit) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  try {
    device->allocate(int64_t{1} << 60, Category::optimizer);
    FAIL();
  } catch (const OutOfMemoryError& e) {
    EXPECT_EQ(e.code(), ExitCode::kOutOfMemory);
    EXPECT_NE(std::string(e.what()).find("optimizer"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("1152921504606846976"), std::string::npos);
  }
  EXPECT_EQ(device->ledger().current_total(), 0);
}

TEST(CountingDevice, AllocatesNothingAndBooksEverything) {
  const auto device = make_counting_device();
  const Buffer a = device->allocate(int64_t{1} << 50, Category::parameters);
  const Buffer b = device->allocate(10, Category::activations);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(device->ledger().current_total(), (int64_t{1} << 50) + 10);
}

TEST(Stack, RefusesArraysThatDoNotFit) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  Stack stack(*device, 4 * Device::kAlignment);
  stack.push({3 * Device::kAlignment}, DType::u8);
  EXPECT_THROW(stack.push({Device::kAlignment + 1}, DType::u8), OutOfMemoryError);
  EXPECT_EQ(stack.mark(), 3 * Device::kAlignment);  // nothing was pushed
  EXPECT_NO_THROW(stack.push({Device::kAlignment}, DType::u8));
}

// Each array on the stack takes a multiple of kAlignment bytes: `a` takes one, and `b` takes two.
TEST(Stack, FreesInReverseOrder) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  Stack stack(*device, 4 * Device::kAlignment);
  const View a = stack.push({1}, DType::f32);
  const int64_t mark = stack.mark();
  const View b = stack.push({Device::kAlignment / 4 + 1}, DType::f32);
  EXPECT_EQ(b.data - a.data, Device::kAlignment);
  EXPECT_EQ(stack.mark(), 3 * Device::kAlignment);
  stack.pop_to(mark);
  {
    const StackScope scope(stack);
    EXPECT_EQ(stack.push({2}, DType::i32).data, b.data);
  }
  EXPECT_EQ(stack.mark(), mark);
  EXPECT_EQ(stack.peak_bytes(), 3 * Device::kAlignment);
}

// Only arrays that are pushed in the MeasuredScope count. The two arrays of the inner StackScope are the peak.
TEST(Stack, ReportsThePeakOfMeasuredScopes) {
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  Stack stack(*device, 8 * Device::kAlignment);
  stack.push({1}, DType::f32);
  {
    const MeasuredScope measured(stack);
    {
      const StackScope scope(stack);
      stack.push({Device::kAlignment}, DType::u8);
      stack.push({1}, DType::f32);
    }
    stack.push({1}, DType::f32);
  }
  stack.push({4 * Device::kAlignment}, DType::u8);
  EXPECT_EQ(stack.take_measured_peak_bytes(), 2 * Device::kAlignment);
  EXPECT_EQ(stack.take_measured_peak_bytes(), 0);
}

}  // namespace
}  // namespace tessera
