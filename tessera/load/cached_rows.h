// Training data from the cache of --data-cache, which the ranks of a run share.
#pragma once

#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/load/data_cache.h"
#include "tessera/log/console.h"

namespace tessera {

// The ranks that load the same data.
struct LoadRanks {
  Communicator* world = nullptr;  // null: one rank
  bool is_first_of_node = true;
  Console* console = nullptr;  // for notes about the cache of the data; may be null
};

// The folder for caches of the training data. Empty if they are not cached. Rank 0 decides, because all ranks must do
// the same. Collective.
std::string cache_root(const Settings& settings, const LoadRanks& ranks);

// The rows of the files, from a cache below `root`. If the cache is missing or damaged, rank 0 makes it. Other nodes
// that do not see it make their own. An error of one rank reaches all ranks. Collective.
CachedRows cached_rows(const std::string& root, const std::vector<std::string>& files, const Settings& settings,
                       const ModelConfig& config, RowEncoder& encoder, const LoadRanks& ranks);

}  // namespace tessera
