#include "tessera/store/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "store_test_util.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Returns the fraction of a file that is in the page cache.
double cached_part(const fs::path& path) {
  const auto bytes = static_cast<size_t>(fs::file_size(path));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const int descriptor = open(path.c_str(), O_RDONLY);
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(map, bytes, pages.data()), 0);
  munmap(map, bytes);
  close(descriptor);
  return static_cast<double>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; })) /
         static_cast<double>(pages.size());
}

TEST(ReadAhead, ReadsFilesIntoThePageCache) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "weights";
  ASSERT_TRUE(std::ofstream(path) << std::string(size_t{70} << 20, 'x') << std::flush);
  const int descriptor = open(path.c_str(), O_RDONLY);
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
  if (cached_part(path) > 0.1) GTEST_SKIP() << folder.path() << " is on a file system in memory";
  const ReadAhead ahead({"/nowhere", folder.path(), path});
  // On a busy disk, the system may skip some of the reads that ReadAhead requests. The test therefore expects only 70 %
  // of the file in the page cache.
  for (int i = 0; i < 3000 && cached_part(path) < 0.7; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(cached_part(path), 0.7);
}

TEST(ReadAhead, EndsForAnyInput) {
  ReadAhead ahead;
  const TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ahead = ReadAhead({"/nowhere", "/dev/zero", pipe});
  ahead = ReadAhead(std::vector<fs::path>());
}

}  // namespace
}  // namespace tessera
