#include "tessera/device/nvml/nvml.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/device/nvml/gpu_health.h"
#include "tessera/device/nvml/gpu_sampler.h"

namespace tessera {
namespace {

// tests/stubs/nvml_stub.cc replaces NVIDIA's library. It has one GPU, at this address, and returns the values that the
// tests expect.
constexpr const char* kAddress = "0000:1B:00.0";

// The path of a variant of the stub: "" (complete), "_old", "_lost" or "_no_driver".
std::string stub(const std::string& variant) {
  return std::string(TESSERA_STUBS) + "/nvml" + variant + "/libnvidia-ml.so.1";
}

std::string error_of(const std::string& library) {
  try {
    const Nvml nvml(library.c_str());
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

TEST(Nvml, ReturnsTheValuesOfTheLibrary) {
  const Nvml nvml(stub("").c_str());
  EXPECT_EQ(nvml.driver_version(), "580.1.2");
  EXPECT_EQ(nvml.version(), "13.580.1.2");
  const GpuSample sample = nvml.sample(nvml.gpu_at(kAddress));
  EXPECT_EQ(sample.memory_bytes, 15) << "without the memory that the driver reserves";
  EXPECT_EQ(sample.memory_total_bytes, 100);
  EXPECT_EQ(sample.process_memory_bytes, 12);
  EXPECT_EQ(sample.utilization_percent, 93);
  EXPECT_EQ(sample.power_w, 612.5);
  EXPECT_EQ(sample.sm_clock_mhz, 1755);
}

TEST(Nvml, ReportsASickGpu) {
  const GpuHealth sick = gpu_health(kAddress, stub("").c_str());
  EXPECT_EQ(sick.uncorrected_errors, 3);
  EXPECT_EQ(sick.slowed_by, "heat (hardware), power brake");
  for (const std::string& library : {stub("_old"), stub("_lost"), stub("_no_driver"), std::string("missing.so")}) {
    const GpuHealth unknown = gpu_health(kAddress, library.c_str());
    EXPECT_FALSE(unknown.uncorrected_errors || unknown.slowed_by) << library;
  }
  EXPECT_FALSE(gpu_health("0000:2C:00.0", stub("").c_str()).slowed_by);
}

TEST(Nvml, IdentifiesAGpu) {
  const Nvml nvml(stub("").c_str()), old(stub("_old").c_str());
  const GpuIdentity gpu = nvml.identity(nvml.gpu_at(kAddress));
  EXPECT_EQ(gpu.name, "NVIDIA Stub");
  EXPECT_EQ(gpu.index, 3u);
  EXPECT_EQ(old.identity(old.gpu_at(kAddress)).name, "");
}

TEST(Nvml, NamesAMissingGpu) {
  const Nvml nvml(stub("").c_str());
  try {
    nvml.gpu_at("0000:2C:00.0");
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("0000:2C:00.0: Not Found"), std::string::npos) << error.what();
  }
}

TEST(Nvml, AnOlderLibraryReturnsFewerValues) {
  const Nvml nvml(stub("_old").c_str());
  EXPECT_EQ(nvml.driver_version(), "");
  const GpuSample sample = nvml.sample(nvml.gpu_at(kAddress));
  EXPECT_EQ(sample.memory_bytes, 20);
  EXPECT_EQ(sample.power_w, 612.5);
  EXPECT_FALSE(sample.process_memory_bytes || sample.utilization_percent || sample.sm_clock_mhz);
}

TEST(Nvml, ALostGpuReturnsNoValues) {
  const Nvml nvml(stub("_lost").c_str());
  const GpuSample sample = nvml.sample(nvml.gpu_at(kAddress));
  EXPECT_FALSE(sample.memory_bytes || sample.process_memory_bytes || sample.utilization_percent || sample.power_w ||
               sample.sm_clock_mhz);
}

TEST(Nvml, AMissingOrWrongLibraryIsAnError) {
  EXPECT_NE(error_of("libnvidia-ml-that-nobody-has.so").find("cannot be opened"), std::string::npos);
  EXPECT_NE(error_of("libm.so.6").find("lacks functions"), std::string::npos);
  EXPECT_NE(error_of(stub("_no_driver")).find("cannot start: Driver Not Loaded"), std::string::npos);
}

TEST(GpuUsage, IsMeanAndPeakOfTheSamples) {
  GpuUsage usage;
  usage.add({.memory_bytes = 10,
             .memory_total_bytes = {},
             .process_memory_bytes = {},
             .utilization_percent = 0,
             .power_w = 1,
             .sm_clock_mhz = 7});
  usage.add({.memory_bytes = 30,
             .memory_total_bytes = {},
             .process_memory_bytes = {},
             .utilization_percent = 50,
             .power_w = {},
             .sm_clock_mhz = 5});
  EXPECT_EQ(usage.memory_bytes.mean(), 20);
  EXPECT_EQ(usage.memory_bytes.peak, 30);
  EXPECT_EQ(usage.utilization_percent.mean(), 25);
  EXPECT_EQ(usage.sm_clock_mhz.peak, 7);
  EXPECT_EQ(usage.power_w.mean(), 1);
  EXPECT_EQ(usage.power_w.count, 1);
  EXPECT_EQ(usage.process_memory_bytes.count, 0);
}

TEST(GpuSampler, SamplesWhileNobodyAsks) {
  auto nvml = std::make_unique<Nvml>(stub("").c_str());
  const Nvml::Gpu gpu = nvml->gpu_at(kAddress);
  GpuSampler sampler(std::move(nvml), gpu, std::chrono::milliseconds(1));
  int64_t asked = 1;
  // Each call of usage() adds one sample, and each round of the loop raises the limit by one. So the loop ends only if
  // the sampler's thread also adds samples.
  while (sampler.usage().memory_bytes.count <= asked) ++asked;
  const GpuUsage usage = sampler.usage();
  EXPECT_EQ(usage.memory_bytes.mean(), 15);
  EXPECT_EQ(usage.power_w.peak, 612.5);
}

TEST(GpuSampler, ReturnsTheNewestSample) {
  auto nvml = std::make_unique<Nvml>(stub("").c_str());
  const Nvml::Gpu gpu = nvml->gpu_at(kAddress);
  GpuSampler sampler(std::move(nvml), gpu, std::chrono::hours(1));
  sampler.usage();
  EXPECT_EQ(sampler.latest().utilization_percent, 93);
}

TEST(GpuSampler, ALongIntervalDoesNotDelayItsEnd) {
  auto nvml = std::make_unique<Nvml>(stub("").c_str());
  const Nvml::Gpu gpu = nvml->gpu_at(kAddress);
  GpuSampler sampler(std::move(nvml), gpu, std::chrono::hours(1));
  EXPECT_GE(sampler.usage().memory_bytes.count, 1);
}

TEST(GpuSampler, ACpuHasNone) {
  ThreadPool pool(1);
  EXPECT_FALSE(make_gpu_sampler(*make_cpu_device(pool)));
}

}  // namespace
}  // namespace tessera
