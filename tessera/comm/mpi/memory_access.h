// The permission for other processes to read this one's memory, where the system asks for one (Yama lets only ancestors
// read unless a process names another reader, prctl PR_SET_PTRACER). A process names one reader; that reader's
// descendants may read as well.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

namespace tessera {

// This process's ancestors, its parent first, without process 1. Ends early where the system does not show them.
std::vector<pid_t> ancestors();

// The nearest process from which all chains of ancestors descend; 0: there is none below process 1.
pid_t nearest_common(std::span<const std::vector<pid_t>> chains);

// While objects live, the descendants of their readers may read this process's memory. Of several readers, which are
// ancestors of this process, the farthest is named, because the others descend from it. A reader of 0 names nobody.
class MemoryAccess {
 public:
  explicit MemoryAccess(pid_t reader);
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;

  static pid_t named();  // the reader that is named now; 0: nobody

 private:
  pid_t reader_;
};

}  // namespace tessera
