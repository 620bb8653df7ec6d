#include "tessera/plan/memory_check.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string text_of(const std::function<std::string()>& check, const std::function<int()>& work) {
  try {
    within_memory(check, work);
  } catch (const OutOfMemoryError& error) {
    return error.what();
  }
  return "done";
}

TEST(WithinMemory, ReportsWhatFitsAndWhatFailed) {
  // `fails` is work that runs out of memory. `refuses` and `agrees` are two checks for such a failure: `refuses`
  // reports that the run does not fit into the memory that is left. `agrees` finds that the run fits, and returns
  // advice.
  const auto fails = []() -> int { throw OutOfMemoryError("GPU memory", "none left"); };
  const auto refuses = []() -> std::string {
    throw OutOfMemoryError("memory", "the run needs more", "With --batch-size 1 it fits");
  };
  const auto agrees = [] { return std::string("Start the run with: tessera train --batch-size 1"); };
  EXPECT_EQ(text_of(refuses, fails),
            "memory: the run needs more. With --batch-size 1 it fits. What failed: GPU memory: none left");
  EXPECT_EQ(text_of(agrees, fails), "GPU memory: none left. Start the run with: tessera train --batch-size 1");
  EXPECT_EQ(text_of(refuses, [] { return 1; }), "done");
}

}  // namespace
}  // namespace tessera
