#include "tessera/comm/ranks/memory_access.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

namespace tessera {
namespace {

std::mutex mutex;
std::vector<pid_t> readers;  // the readers of all MemoryAccess objects
pid_t named_reader = 0;

// Returns 0 if the system hides the parent.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(") ");  // the last ") ", because the name (field 2) may contain ") " too
  return name_end == line.npos ? 0 : static_cast<pid_t>(std::atoi(line.c_str() + name_end + 4));
}

// Names the reader that is the farthest ancestor of this process. Without readers, names nobody. The caller holds the
// mutex.
void name_reader() {
  pid_t farthest = 0;
  if (!readers.empty()) {
    farthest = readers.front();
    const std::vector<pid_t> chain = ancestors();
    const auto place = [&](pid_t pid) { return std::find(chain.begin(), chain.end(), pid) - chain.begin(); };
    for (const pid_t reader : readers) {
      if (place(reader) < std::ssize(chain) && place(reader) > place(farthest)) farthest = reader;
    }
  }
  if (farthest == named_reader) return;
#ifdef PR_SET_PTRACER
  // Without Yama, this call fails, and no permission is needed.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(farthest), 0, 0, 0);
#endif
  named_reader = farthest;
}

}  // namespace

std::vector<pid_t> ancestors() {
  std::vector<pid_t> chain;
  constexpr size_t kLongest = 64;
  for (pid_t pid = getppid(); pid > 1 && chain.size() < kLongest; pid = parent_of(pid)) chain.push_back(pid);
  return chain;
}

pid_t nearest_common(std::span<const std::vector<pid_t>> chains) {
  if (chains.empty()) return 0;
  for (const pid_t candidate : chains[0]) {
    const bool in_all = std::all_of(chains.begin(), chains.end(), [&](const std::vector<pid_t>& chain) {
      return std::find(chain.begin(), chain.end(), candidate) != chain.end();
    });
    if (in_all) return candidate;
  }
  return 0;
}

MemoryAccess::MemoryAccess(pid_t reader) : reader_(reader) {
  if (reader_ == 0) return;
  const std::lock_guard lock(mutex);
  readers.push_back(reader_);
  name_reader();
}

MemoryAccess::~MemoryAccess() {
  if (reader_ == 0) return;
  const std::lock_guard lock(mutex);
  readers.erase(std::find(readers.begin(), readers.end(), reader_));
  name_reader();
}

pid_t MemoryAccess::named() {
  const std::lock_guard lock(mutex);
  return named_reader;
}

}  // namespace tessera
