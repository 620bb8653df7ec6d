#include "tessera/load/cached_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/host_resources.h"
#include "tessera/base/text.h"
#include "tessera/data/mixture.h"
#include "tessera/data/row_windows.h"
#include "tessera/store/all_ranks.h"

namespace tessera {
namespace {

std::vector<std::string> on_ranks(const LoadRanks& ranks, const char* what, const std::function<std::string()>& work) {
  return ranks.world ? on_all_ranks(*ranks.world, what, work) : std::vector{work()};
}

constexpr const char* kSubject = "the cache of the data";

// Whether all ranks are done. A rank that tokenizes calls this every few seconds and is not done, because the other
// ranks wait at most --comm-timeout for each call. Collective.
bool all_done(const LoadRanks& ranks, bool is_done) {
  return !ranks.world || ranks.world->all(is_done, kSubject);
}

using Tick = std::function<void()>;

// Reads and encodes all rows of the files. Calls tick() every few seconds.
void encode_all(const std::vector<std::string>& files, const Settings& settings, RowEncoder& encoder,
                CachedRows& cached, const std::function<void(const Sample&)>& store, const Tick& tick) {
  constexpr size_t kAtOnce = 1 << 15;  // rows
  for (const std::string& file : files) {
    const auto before = std::ssize(cached.encoded.rows);
    read_row_windows(file, row_options(settings), [&](ExampleRows rows) {
      for (std::span rest(rows.examples); !rest.empty(); rest = rest.subspan(std::min(kAtOnce, rest.size()))) {
        encoder.add(rest.first(std::min(kAtOnce, rest.size())), cached.encoded, store);
        tick();
      }
      std::ranges::move(rows.bad, std::back_inserter(cached.malformed));
    });
    cached.sizes.push_back(std::ssize(cached.encoded.rows) - before);
  }
}

// Opens the cache. If it is missing or damaged, makes it if this rank `makes` it, and otherwise returns nullopt. Calls
// tick() every few seconds.
std::optional<CachedRows> open_or_make(const std::string& root, const std::vector<std::string>& files, bool makes,
                                       const Settings& settings, const ModelConfig& config, RowEncoder& encoder,
                                       Console* console, const Tick& tick) {
  const Record key = cache_key(files, settings, config);
  const DataCache cache(root, key);
  std::string damage;
  std::optional<CachedRows> cached = cache.open(damage);
  if (cached || !makes) return cached;
  const auto note = [&](const std::string& text) {
    if (console) console->note(text);
  };
  if (!damage.empty()) note("warning: the cache of the data is damaged and is made again: " + damage);
  note(fmt::format("Tokenizing the data once, into {} (--data-cache)", cache.folder().string()));
  const double begin_s = steady_seconds();
  cache.make([&](CachedRows& rows, const std::function<void(const Sample&)>& store) {
    encode_all(files, settings, encoder, rows, store, tick);
    if (cache_key(files, settings, config) != key) {
      throw InputError(data_name(files), "changed while it was read", "Start again when no program writes to it");
    }
  });
  cached = cache.open(damage);
  if (!cached) throw RunError(cache.folder().string(), "cannot be read: " + damage, "Check the disk, and start again");
  double bytes = 0;
  for (const Record& file : key.at("files")) bytes += file.at("size").get<double>();
  const double seconds = steady_seconds() - begin_s;
  note(fmt::format("Tokenized {} rows as {} tokens in {:.1f} s ({:.1f} MB/s)",
                   format_count(std::ssize(cached->encoded.rows)), format_count(cached->encoded.index->starts.back()),
                   seconds, bytes / 1e6 / seconds));
  return cached;
}

}  // namespace

std::string cache_root(const Settings& settings, const LoadRanks& ranks) {
  constexpr uint64_t kLarge = 1 << 30;  // bytes
  if (settings.data_cache == "off" || settings.eval_fraction > 0) return "";
  if (settings.data_cache != "auto") return settings.data_cache;
  const auto found = on_ranks(ranks, "the size of the data", [&]() -> std::string {
    if (ranks.world && ranks.world->rank() != 0) return "";
    uint64_t bytes = 0;
    for (const std::string& file : paths_of(data_files_of(settings.dataset, "dataset"))) {
      std::error_code error;  // reported when the file is read
      const uintmax_t size = std::filesystem::file_size(file, error);
      if (!error) bytes += size;
    }
    return bytes >= kLarge ? cache_folder("data").string() : "";
  });
  return found[0];
}

CachedRows cached_rows(const std::string& root, const std::vector<std::string>& files, const Settings& settings,
                       const ModelConfig& config, RowEncoder& encoder, const LoadRanks& ranks) {
  std::optional<CachedRows> cached;
  const auto open = [&](bool makes, const Tick& tick) {
    if (!cached) cached = open_or_make(root, files, makes, settings, config, encoder, ranks.console, tick);
  };
  // First, rank 0 makes the cache. Then, the first rank of each node that does not see it makes one for its node.
  for (const bool makes : {!ranks.world || ranks.world->rank() == 0, ranks.is_first_of_node}) {
    std::exception_ptr error;
    try {
      if (makes) open(true, [&] { all_done(ranks, false); });
    } catch (const Error&) {
      error = std::current_exception();
    }
    while (!all_done(ranks, true)) {
    }
    on_ranks(ranks, kSubject, [&]() -> std::string {
      if (error) std::rethrow_exception(error);
      return "";
    });
  }
  on_ranks(ranks, kSubject, [&]() -> std::string {
    open(false, [] {});
    if (cached) return "";
    throw RunError(root, "has no cache of the data that this rank can use",
                   "Give a --data-cache that all ranks of a node see");
  });
  return std::move(*cached);
}

}  // namespace tessera
