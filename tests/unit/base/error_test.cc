#include "tessera/base/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <system_error>
#include <vector>

namespace tessera {
namespace {

TEST(Printable, CutsBetweenCharactersAndReplacesControls) {
  EXPECT_EQ(printable("a\tb\x1b[1m\x7fé"), "a?b?[1m?é");
  EXPECT_EQ(printable(std::string(100, 'x')), std::string(100, 'x'));
  // The limit counts bytes, and é has two bytes.
  EXPECT_EQ(printable("xéé", 3), "xé…");
  EXPECT_EQ(printable("xéé", 4), "xé…");
}

template <typename Throw>
Failure failure_of(Throw&& throws) {
  try {
    throws();
  } catch (...) {
    return current_failure();
  }
  return {ExitCode::kDone, ""};
}

// Errors of the standard library become messages with a remedy. The texts of the library itself do not.
TEST(CurrentFailure, ExplainsErrorsOfLibraries) {
  namespace fs = std::filesystem;
  const std::string long_name(300, 'x');
  const Failure file = failure_of([&] { static_cast<void>(fs::file_size(long_name)); });
  EXPECT_EQ(file.code, ExitCode::kBadInput);
  EXPECT_EQ(file.text,
            long_name + ": cannot be used: File name too long. Check the path, its permissions and the disk");
  EXPECT_EQ(failure_of([] { static_cast<void>(fs::absolute("")); }).text.find("filesystem error"), std::string::npos);
  const Failure thread = failure_of([] { throw std::system_error(EAGAIN, std::generic_category()); });
  EXPECT_EQ(thread.code, ExitCode::kRunFailed);
  EXPECT_EQ(thread.text,
            "the system refuses a request: Resource temporarily unavailable. Check the limits of this process "
            "(ulimit -a), and start the command again");
  EXPECT_EQ(failure_of([] {
              std::vector<int> v;
              v.resize(v.max_size() + 1);
            }).code,
            ExitCode::kOutOfMemory);
  EXPECT_EQ(failure_of([] { throw std::bad_alloc(); }).code, ExitCode::kOutOfMemory);
  EXPECT_EQ(failure_of([] { static_cast<void>(std::stoi("x")); }).text,
            "an internal error of Tessera or one of its libraries (stoi). Report the command and its output");
}

}  // namespace
}  // namespace tessera
