#include "tessera/app/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(error_of({"a", "b", "", "c"}), testing::HasSubstr("finds a GPU on rank 0, and none on rank 2"));
  EXPECT_THAT(error_of({"", "b"}), testing::HasSubstr("finds no GPU on rank 0, and one on rank 1"));
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
