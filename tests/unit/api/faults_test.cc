// Faults that end the program become exceptions in a library.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tessera/base/error.h"
#include "tessera/base/library.h"
#include "tessera/base/start_thread.h"

namespace tessera {
namespace {

TEST(Faults, OfAssertionsAreExceptions) {
  become_library();
  EXPECT_THROW(TESSERA_ASSERT(1 + 1 == 3), std::logic_error);
  try {
    TESSERA_ASSERT(1 + 1 == 3);
  } catch (...) {
    EXPECT_EQ(current_failure().code, ExitCode::kRunFailed);
    EXPECT_NE(current_failure().text.find("1 + 1 == 3"), std::string::npos);
  }
}

TEST(Faults, OfThreadsReachTheNextCall) {
  become_library();
  start_thread("a test", [] { throw RunError("the disk", "is full"); }).join();
  EXPECT_THROW(rethrow_lost_failure(), RunError);
  EXPECT_NO_THROW(rethrow_lost_failure());
}

}  // namespace
}  // namespace tessera
