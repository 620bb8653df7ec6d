#include "tessera/store/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "store_test_util.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The part of a file that is in the page cache.
double cached_part(const fs::path& path) {
  const auto bytes = static_cast<size_t>(fs::file_size(path));
  const int descriptor = open(path.c_str(), O_RDONLY);
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(map, bytes, pages.data()), 0);
  munmap(map, bytes);
  close(descriptor);
  return static_cast<double>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; })) /
         static_cast<double>(pages.size());
}

TEST(ReadAhead, BringsFilesIntoThePageCache) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "weights";
  std::ofstream(path) << std::string(size_t{70} << 20, 'x');
  const int descriptor = open(path.c_str(), O_RDONLY);
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);  // a file system in memory keeps it all the same
  close(descriptor);
  const ReadAhead ahead({"/nowhere", folder.path(), path});
  for (int i = 0; i < 3000 && cached_part(path) < 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(cached_part(path), 1);
}

TEST(ReadAhead, EndsWhateverItWasGiven) {
  ReadAhead ahead;
  ahead = ReadAhead({"/nowhere", "/dev/zero"});
  ahead = ReadAhead(std::vector<fs::path>());
}

}  // namespace
}  // namespace tessera
