#include "tessera/comm/shared_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace tessera {
namespace {

constexpr int64_t kBytes = 10'000;

TEST(SharedPages, AreTheSameToAllWhoOpenThem) {
  const SharedPages made = SharedPages::create(kBytes);
  ASSERT_TRUE(made);
  EXPECT_LT(made.name().size(), 64u);
  EXPECT_EQ(std::count(made.data(), made.data() + kBytes, std::byte{0}), kBytes);
  const pid_t child = fork();
  if (child == 0) {
    const SharedPages opened = SharedPages::open(made.name(), kBytes);
    if (opened) opened.data()[kBytes - 1] = std::byte{7};
    _exit(opened && opened.name().empty() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(made.data()[kBytes - 1], std::byte{7});
}

TEST(SharedPages, CannotBeOpenedAfterTheirCreatorHasReleasedThem) {
  std::optional<SharedPages> made(SharedPages::create(kBytes));
  const std::string name = made->name();
  const SharedPages opened = SharedPages::open(name, kBytes);
  ASSERT_TRUE(opened);
  made.reset();
  EXPECT_FALSE(SharedPages::open(name, kBytes));
  opened.data()[0] = std::byte{1};  // existing mappings stay valid
}

TEST(SharedPages, OtherFilesAreNotMistakenForThem) {
  const SharedPages made = SharedPages::create(kBytes);
  EXPECT_FALSE(SharedPages::open(made.name(), int64_t{1} << 30)) << "the pages are smaller than 1 GiB";
  // A name ends with a random number, which identifies the pages. A name with another number must not open them.
  std::string other = made.name();
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(SharedPages::open(other, kBytes));
  // This name contains the descriptor of an open file that is not shared pages.
  const int file = ::open("/proc/self/exe", O_RDONLY);
  EXPECT_FALSE(SharedPages::open(fmt::format("tessera-{}-{}-{}", getpid(), file, "0123456789abcdef"), kBytes));
  close(file);
  for (const char* name : {"", "tessera", "tessera-1-2", "tessera-1-2-x"}) {
    EXPECT_FALSE(SharedPages::open(name, kBytes)) << name;
  }
}

}  // namespace
}  // namespace tessera
