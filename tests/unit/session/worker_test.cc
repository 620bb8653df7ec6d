#include "tessera/session/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

std::string error_of(const std::vector<std::string>& gpus) {
  try {
    check_gpus(gpus);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Worker, RanksHaveGpusOfTheirOwn) {
  EXPECT_EQ(error_of({"a"}), "");
  EXPECT_EQ(error_of({"a", "b", "c"}), "");
  EXPECT_EQ(error_of({"", "", ""}), "");
  EXPECT_THAT(error_of({"a", "b", "c", "b"}), testing::HasSubstr("ranks 1 and 3 have the same GPU"));
  EXPECT_THAT(error_of({"a", "b", "", "c"}), testing::HasSubstr("finds a GPU on rank 0, but none on rank 2"));
  EXPECT_THAT(error_of({"", "b"}), testing::HasSubstr("finds no GPU on rank 0, but one on rank 1"));
}

// A run that starts on the CPU prints a note if it was probably intended for a GPU. The note says why no GPU is used.
TEST(Worker, ReportsWhyThereIsNoGpu) {
  std::map<std::string, std::string> variables;
  CudaInfo info;
  info.built = true;
  info.problem = "no NVIDIA driver is loaded";
  const auto note = [&] {
    return note_of_no_gpu(info, [&](const char* name) -> const char* {
      const auto at = variables.find(name);
      return at == variables.end() ? nullptr : at->second.c_str();
    });
  };
  EXPECT_EQ(note(), "");
  variables["SLURM_JOB_GPUS"] = "0,1";
  EXPECT_EQ(note(),
            "No GPU is used, although SLURM_JOB_GPUS is 0,1. Reason: no NVIDIA driver is loaded. In a container, start "
            "it with --nv (Apptainer) or --gpus all (Docker)");
  variables["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(note(), "");
  variables.clear();
  info.has_driver = true;
  info.problem = "the driver supports CUDA 11.8, but this program was built with 13.0";
  EXPECT_EQ(note(), "No GPU is used, although this machine has a driver. Reason: " + info.problem);
  info.devices.emplace_back();
  EXPECT_EQ(note(), "");
}

TEST(Worker, RefusesGpusThatItHasNoCodeFor) {
  const CudaDeviceInfo v100{.name = "V100", .memory_bytes = 0, .major = 7, .minor = 0};
  const CudaDeviceInfo a10{.name = "A10", .memory_bytes = 0, .major = 8, .minor = 6};
  CudaInfo info;
  for (const char* architectures : {"80 90", "90-real 80-virtual"}) {
    info.architectures = architectures;
    EXPECT_NO_THROW(check_code(info, a10));
    EXPECT_THROW(check_code(info, v100), UsageError);
  }
  for (const char* architectures : {"70", "all-major", "native"}) {
    info.architectures = architectures;
    EXPECT_NO_THROW(check_code(info, v100));
  }
}

TEST(Worker, OlderGpusHaveFewerPrecisions) {
  using P = Settings::Precision;
  const CudaDeviceInfo v100{.name = "V100", .memory_bytes = 0, .major = 7, .minor = 0};
  const CudaDeviceInfo a100{.name = "A100", .memory_bytes = 0, .major = 8, .minor = 0};
  for (const P precision : {P::fp32, P::tf32, P::fp16, P::bf16}) {
    EXPECT_NO_THROW(check_precision(precision, a100));
    if (precision == P::fp32 || precision == P::fp16) {
      EXPECT_NO_THROW(check_precision(precision, v100));
    } else {
      EXPECT_THROW(check_precision(precision, v100), UsageError);
    }
  }
}

}  // namespace
}  // namespace tessera
