// Tests simulated time: machines, and streams of counting devices with a timeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "machine.h"
#include "tessera/base/error.h"
#include "tessera/device/counting/counting_device.h"

namespace tessera {
namespace {

constexpr double kMb_s = 1e-4;  // of a copy of 1 MB between device and host

class TimelineTest : public testing::Test {
 protected:
  View on_device(int64_t bytes) { return view(*device_, bytes); }
  View on_host(int64_t bytes) { return view(*host_, bytes); }
  void kernel(double seconds) { spend_on_kernel(*device_, "kernel", Busy::products, seconds); }

  const Machine machine_ = round_machine();
  Timeline timeline_{machine_};
  const std::unique_ptr<Device> device_ = make_counting_device({DeviceKind::cuda, 1, &timeline_}),
                                host_ = make_counting_device({DeviceKind::cpu, 1, &timeline_});
  Stream& compute_ = device_->compute_stream();

 private:
  View view(Device& device, int64_t bytes) {
    buffers_.push_back(device.allocate(bytes, Category::workspace));
    return buffers_.back().view({bytes}, DType::u8);
  }
  std::vector<Buffer> buffers_;
};

TEST_F(TimelineTest, WorkOfOneStreamFollowsItsEarlierWork) {
  kernel(3);
  kernel(4);
  EXPECT_EQ(timeline_.now(), 0);  // nobody waits yet
  compute_.synchronize();
  EXPECT_DOUBLE_EQ(timeline_.now(), 7);
  EXPECT_DOUBLE_EQ(timeline_.busy(Busy::products), 7);
  EXPECT_DOUBLE_EQ(timeline_.kernels().at("kernel"), 7);
}

TEST_F(TimelineTest, StreamsOverlapUpToTheirEvents) {
  const auto copy = device_->make_stream();
  const View a = on_host(1'000'000), b = on_device(1'000'000);
  kernel(1);
  copy->copy(a, b);  // during the kernel
  const Event copied = copy->record();
  compute_.wait(copied);
  kernel(1);
  copy->wait(compute_.record());
  copy->copy(b, a);
  copy->synchronize();
  EXPECT_DOUBLE_EQ(timeline_.now(), 2 + kMb_s);
  EXPECT_TRUE(copied.reached());
}

// If two streams use one link, the copy that is ready first runs first, even if it was put on its stream later.
TEST_F(TimelineTest, ALinkTakesTurns) {
  const auto first = device_->make_stream(), second = device_->make_stream();
  const View a = on_host(1'000'000), b = on_device(1'000'000);
  for (int i = 0; i < 10; ++i) first->copy(a, b);
  second->copy(a, b);
  second->synchronize();
  EXPECT_LT(timeline_.now(), 2.5 * kMb_s);
  first->synchronize();
  EXPECT_NEAR(timeline_.now(), 11 * kMb_s, 1e-9);
  const auto back = device_->make_stream();  // the other direction of the link is free
  for (int i = 0; i < 10; ++i) first->copy(a, b), back->copy(b, a);
  back->synchronize();
  EXPECT_NEAR(timeline_.now(), 21 * kMb_s, 1e-9);
}

TEST_F(TimelineTest, HostCodeRunsInItsTurnAndTakesTheTimeOfItsKernels) {
  const auto stream = host_->make_stream();
  std::vector<double> times;
  kernel(5);
  stream->wait(compute_.record());
  stream->run([&] {
    times.push_back(stream->clock());
    spend_on_kernel(*host_, "adamw", Busy::memory, 2);
    times.push_back(stream->clock());
  });
  EXPECT_TRUE(times.empty());
  stream->synchronize();
  EXPECT_THAT(times, testing::ElementsAre(testing::DoubleEq(5), testing::DoubleEq(7)));
}

// AdamW on the host and copies share the bandwidth of the host's memory.
TEST_F(TimelineTest, CopiesSlowTheHost) {
  const auto host = host_->make_stream(), copy = device_->make_stream();
  copy->copy(on_host(1'000'000), on_device(1'000'000));
  copy->synchronize();
  const double begin = timeline_.now();
  copy->copy(on_device(10'000'000), on_host(10'000'000));  // 1 ms over the link, 0.1 ms of the host's memory
  for (int i = 0; i < 10; ++i) host->run([&] { spend_on_kernel(*host_, "adamw", Busy::memory, 1e-4); });
  host->synchronize();
  EXPECT_NEAR(timeline_.now() - begin, 1.1e-3, 1e-6);
}

TEST_F(TimelineTest, ALaunchTakesTheThreadTime) {
  Machine slow = machine_;
  slow.launch_s = 0.5;
  Timeline timeline(slow);
  const auto device = make_counting_device({DeviceKind::cuda, 1, &timeline});
  for (int i = 0; i < 4; ++i) spend_on_kernel(*device, "kernel", Busy::products, 0.1);
  device->compute_stream().synchronize();
  EXPECT_DOUBLE_EQ(timeline.now(), 2.1);
  timeline.begin_graph();
  for (int i = 0; i < 4; ++i) spend_on_kernel(*device, "kernel", Busy::products, 0.1);
  timeline.end_graph();
  device->compute_stream().synchronize();
  EXPECT_DOUBLE_EQ(timeline.now(), 3);
}

TEST_F(TimelineTest, HostCodeKnowsWhenTheWorkBeforeItEnded) {
  std::vector<double> times;
  for (const double seconds : {1, 2, 4}) {
    kernel(seconds);
    compute_.run([&] { times.push_back(compute_.clock()); });
  }
  compute_.synchronize();
  EXPECT_THAT(times, testing::ElementsAre(1, 3, 7));
}

// A CPU's kernels run in the calling thread, and its cores do one piece of work at a time.
TEST(TimelineOfCpu, KernelsBlockTheThread) {
  const Machine machine = round_machine();
  Timeline timeline(machine);
  const auto device = make_counting_device({DeviceKind::cpu, 2, &timeline}),
             host = make_counting_device({DeviceKind::cpu, 2, &timeline});
  const auto stream = host->make_stream();
  spend_on_kernel(*device, "a", Busy::products, 1);
  EXPECT_DOUBLE_EQ(timeline.now(), 1);
  stream->run([&] { spend_on_kernel(*host, "b", Busy::memory, 2); });
  spend_on_kernel(*device, "c", Busy::products, 1);
  stream->synchronize();
  EXPECT_DOUBLE_EQ(timeline.now(), 4);
}

// ---- machines

TEST(Machine, MeasuredProductsAreFoundAgain) {
  std::mt19937_64 random(3);
  const auto any = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  Machine machine = round_machine();
  machine.products.clear();
  // Rates as of a real machine: they fall with small sizes, and with a little noise.
  for (const ProductForm form : {ProductForm::forward, ProductForm::backward_input, ProductForm::backward_weight}) {
    for (const int64_t rows : {256, 1024, 4096}) {
      for (const int64_t in : {512, 2048, 8192}) {
        for (const int64_t out : {512, 2048, 8192}) {
          const double work = 2.0 * static_cast<double>(rows * in * out);
          const double rate = work / (work / 7e14 + 3e-6) * any(0.98, 1.02);
          machine.products.push_back({Arithmetic::bf16, form, rows, in, out, rate});
        }
      }
    }
  }
  for (const Machine::Product& p : machine.products) {
    const double found = product_rate(machine, p.type, p.form, p.rows, p.in, p.out);
    EXPECT_NEAR(found / p.flops_per_s, 1, 0.04);
    // The types that were not measured have the rates of the most similar one.
    EXPECT_EQ(product_rate(machine, Arithmetic::f16, p.form, p.rows, p.in, p.out), found);
  }
  for (int i = 0; i < 200; ++i) {
    const auto size = [&] { return static_cast<int64_t>(std::exp2(any(8, 13))); };
    const int64_t rows = size(), in = size(), out = size();
    const double work = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
    EXPECT_NEAR(
        product_rate(machine, Arithmetic::bf16, ProductForm::forward, rows, in, out) / (work / (work / 7e14 + 3e-6)), 1,
        0.25);
  }
}

TEST(Machine, TheTimeOfAKernelGrowsWithItsBytes) {
  Machine machine = round_machine();
  machine.memory = {{1 << 12, 2e-6}, {1 << 20, 3e-6}, {1 << 30, 3e-4}};
  double last = 0;
  for (double bytes = 1; bytes < 1e12; bytes *= 1.7) {
    const double seconds = memory_time(machine, bytes);
    EXPECT_GE(seconds, std::max(last, 2e-6));
    last = seconds;
  }
  EXPECT_NEAR(memory_time(machine, 1 << 20), 3e-6, 1e-12);
  EXPECT_NEAR(memory_time(machine, 2.0 * (1 << 30)), 5.97e-4, 1e-6);
}

TEST(Machine, ARecordReadsBack) {
  const Record record = record_of(round_machine());
  EXPECT_EQ(record_of(machine_from(Record::parse(record.dump()), "here")), record);
}

// A type that was measured at few sizes has the rates of the densest one, times a ratio.
TEST(Machine, ATypeWithFewProductsFollowsBf16) {
  Machine machine = round_machine();
  machine.products.clear();
  const auto rate = [](int64_t size) { return size == 512 ? 4e14 : 6e14; };  // one size is slow
  for (const int64_t size : {128, 256, 512, 1024, 2048}) {
    machine.products.push_back({Arithmetic::bf16, ProductForm::forward, size, size, size, rate(size)});
  }
  for (const int64_t size : {256, 1024}) {
    machine.products.push_back({Arithmetic::tf32, ProductForm::forward, size, size, size, rate(size) / 2});
  }
  for (const int64_t size : {256, 512, 1024}) {
    const double of_bf16 = product_rate(machine, Arithmetic::bf16, ProductForm::forward, size, size, size);
    EXPECT_NEAR(product_rate(machine, Arithmetic::tf32, ProductForm::forward, size, size, size) / of_bf16, 0.5, 0.02);
  }
}

// All products in fp8 sum over the columns of both factors: those of the backward pass are forward products of other
// sizes. A machine without measured ones has the rates of bf16.
TEST(Machine, ProductsIn8BitsAreMeasuredForward) {
  using enum ProductForm;
  Machine machine = round_machine();
  EXPECT_NEAR(product_rate(machine, Arithmetic::fp8, backward_weight, 64, 64, 64), 1e12, 1e9);
  const auto rate = [](int64_t rows, int64_t in, int64_t out) {
    return 1e12 * static_cast<double>(rows + 3 * in + 7 * out);
  };
  for (const int64_t rows : {64, 1024}) {
    for (const int64_t in : {64, 256}) {
      for (const int64_t out : {64, 512})
        machine.products.push_back({Arithmetic::fp8, forward, rows, in, out, rate(rows, in, out)});
    }
  }
  EXPECT_EQ(record_of(machine_from(record_of(machine), "here")), record_of(machine));
  const double wanted = rate(1024, 256, 512);
  EXPECT_NEAR(product_rate(machine, Arithmetic::fp8, forward, 1024, 256, 512), wanted, 1e-3 * wanted);
  EXPECT_NEAR(product_rate(machine, Arithmetic::fp8, backward_input, 1024, 512, 256), wanted, 1e-3 * wanted);
  EXPECT_NEAR(product_rate(machine, Arithmetic::fp8, backward_weight, 256, 512, 1024), wanted, 1e-3 * wanted);
}

// A file with any value missing or damaged is an error that names the value.
TEST(Machine, DamagedRecordsAreRefused) {
  const Record whole = record_of(round_machine());
  const auto error = [](const Record& record) -> std::string {
    try {
      machine_from(record, "m.json");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  for (const auto& [key, value] : whole.items()) {
    Record without = whole;
    without.erase(key);
    EXPECT_THAT(error(without), testing::AllOf(testing::StartsWith("m.json: "), testing::HasSubstr(key)));
    for (const Record& wrong : {Record(nullptr), Record(true), Record(-1), Record("x"), Record::array(),
                                Record(std::numeric_limits<double>::infinity())}) {
      if (value.is_string() && wrong.is_string()) continue;
      Record damaged = whole;
      damaged[key] = wrong;
      EXPECT_THAT(error(damaged), testing::HasSubstr(key)) << wrong;
    }
  }
  for (const char* key : {"products", "attention", "memory"}) {
    for (const auto& [name, value] : whole[key][0].items()) {
      Record damaged = whole;
      damaged[key][0].erase(name);
      EXPECT_THAT(error(damaged), testing::HasSubstr(name)) << key;
      damaged = whole;
      damaged[key][0][name] = Record::object();
      EXPECT_THAT(error(damaged), testing::HasSubstr(name)) << key;
    }
  }
  Record no_form = whole;
  for (Record& product : no_form["products"]) product["form"] = "forward";
  EXPECT_THAT(error(no_form), testing::HasSubstr("no product \"backward_input\" of type \"f32\""));
  Record twice = whole;
  twice["memory"] = {whole["memory"][1], whole["memory"][1]};
  EXPECT_THAT(error(twice), testing::HasSubstr("ascending order"));
}

}  // namespace
}  // namespace tessera
