// Permits other processes to read this process's memory, on systems that require a permission. Yama, a Linux security
// module, lets only the ancestors of a process read its memory. The process can also name one reader (prctl
// PR_SET_PTRACER). This reader and all its descendants may then read the memory. The ranks of a node name a common
// ancestor. Each rank is its descendant, so each rank may read the memory of every other rank.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

namespace tessera {

// This process's ancestors, parent first, without process 1. The list ends early if the system hides an
// ancestor, or after 64 processes.
std::vector<pid_t> ancestors();

// Each chain is the result of ancestors() in one process. Returns the nearest ancestor that all these processes have in
// common, or 0 if they have none.
pid_t nearest_common(std::span<const std::vector<pid_t>> chains);

// While an object of this class exists, its reader and the descendants of this reader may read this process's memory.
// All readers are ancestors of this process. If objects have different readers, the process names the farthest ancestor
// among them, because the other readers descend from it. If `reader` is 0, the object names nobody.
class MemoryAccess {
 public:
  explicit MemoryAccess(pid_t reader);
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;

  static pid_t named();  // the current named reader; 0: nobody

 private:
  pid_t reader_;
};

}  // namespace tessera
