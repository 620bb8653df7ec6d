// tessera nettest: measures the bandwidth between ranks, with the communicator that training uses.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/app/net_report.h"
#include "tessera/app/preflight.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/setting_words.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"

namespace tessera {
namespace {

NetCollective collective_of(const std::string& word) {
  for (const auto collective : {NetCollective::all_reduce, NetCollective::all_gather, NetCollective::reduce_scatter,
                                NetCollective::broadcast}) {
    if (word == name_of(collective)) return collective;
  }
  TESSERA_ASSERT(false);
  return NetCollective::all_reduce;
}

NetRanks describe_ranks(World& world, Device& device) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const bool on_gpus = device.kind() == DeviceKind::cuda;
  return {.hosts = world.communicator().all_gather_text(name, "host names"),
          .nodes = world.nodes(),
          .library = on_gpus ? "NCCL " + nccl_description() : world.messages(),
          .on_gpus = on_gpus};
}

class NetRun {
 public:
  NetRun(const Settings& settings, World& world)
      : settings_(settings),
        world_(world),
        worker_(settings, &world),
        console_(worker_.is_first() ? Console::of_process(settings.bars()) : Console::muted()),
        ranks_(describe_ranks(world, worker_.device())) {
    if (settings.device == Settings::DeviceChoice::automatic) {
      const std::string note = note_of_no_gpu(cuda_info(), [](const char* n) { return std::getenv(n); });
      if (!note.empty()) console_.note(note);
    }
    test_.dtype = settings.net_dtype.value_or(engine_options(settings).dtype);
    test_.warmup = settings.net_warmup;
    test_.iterations = settings.net_iterations;
    test_.seed = static_cast<uint64_t>(settings.seed);
    choose_sizes();
  }

  int run() {
    world_.enter_phase("nettest");
    record_ = {{"schema", 1},
               {"ranks", world_.size()},
               {"hosts", ranks_.hosts},
               {"library", ranks_.library},
               {"device", ranks_.on_gpus ? "cuda" : "cpu"},
               {"dtype", name_of(test_.dtype)},
               {"warmup", test_.warmup},
               {"results", Record::array()}};
    const NetVerdict verdict = settings_.pairs ? measure_pairs() : measure_all();
    record_["min_busbw"] = settings_.min_busbw;
    record_["passed"] = verdict.code == ExitCode::kDone;
    if (settings_.json) console_.print(to_json(record_));
    if (!settings_.output_dir.empty() && worker_.is_first()) {
      create_folders(settings_.output_dir);
      write_file_atomically(std::filesystem::path(settings_.output_dir) / "nettest.json",
                            to_pretty_json(record_) + "\n");
    }
    if (verdict.code == ExitCode::kDone) return 0;
    console_.note(fmt::format("error: nettest: {}. {}", verdict.error, verdict.remedy));
    if (!settings_.workshop_exit_codes) return static_cast<int>(verdict.code);
    return verdict.too_slow ? kWorkshopTooSlow : kWorkshopNoResult;
  }

 private:
  // Takes the message sizes from the settings. If the settings give no size, takes one that fits into the memory of
  // every rank. Allocates the buffer for the largest message.
  void choose_sizes() {
    const LeastMemory memory = least_memory(worker_);
    const int64_t preset = ranks_.on_gpus ? int64_t{4} << 30 : int64_t{64} << 20;
    const int64_t min = settings_.min_bytes > 0 ? settings_.min_bytes : settings_.max_bytes;
    const int64_t max = settings_.max_bytes > 0 ? settings_.max_bytes : settings_.min_bytes;
    sizes_ = settings_.sizes;
    if (sizes_.empty() && min > 0) sizes_ = stepped_sizes(min, max, settings_.step_factor);
    if (sizes_.empty()) {
      sizes_ = {fitting_size(preset, memory.bytes)};
      const char* why = ranks_.on_gpus ? "the usable GPU memory is too small" : "the ranks run on CPUs";
      if (sizes_[0] < int64_t{4} << 30) {
        console_.note(
            fmt::format("The messages have {} instead of 4 GiB, because {}. Give --sizes to choose other sizes",
                        format_bytes(sizes_[0]), why));
      }
    }
    int64_t most = 0;
    for (const std::string& word : settings_.collective) {
      for (const int64_t bytes : sizes_) {
        NetTest test = test_;
        test.collective = collective_of(word);
        test.bytes = bytes;
        most = std::max(most, net_buffer_bytes(test, world_.size()));
      }
    }
    if (most > memory.bytes) {
      throw OutOfMemoryError(
          option_place(settings_.sizes.empty() ? "max_bytes" : "sizes"),
          fmt::format("the buffer for the messages needs {}, but rank {} can use only {}", format_bytes(most),
                      memory.rank, format_bytes(memory.bytes)),
          fmt::format("Use messages of at most {}", bytes_text(fitting_size(int64_t{1} << 40, memory.bytes))));
    }
    buffer_ = worker_.device().allocate(most, Category::communication);
  }

  NetVerdict measure_all() {
    const bool prints = !settings_.json;
    if (prints) console_.print(net_header(ranks_, test_));
    std::vector<NetResult> results;
    int64_t wrong = 0;
    for (const std::string& word : settings_.collective) {
      if (prints && settings_.collective.size() > 1) console_.print("# " + word);
      for (const int64_t bytes : sizes_) {
        test_.collective = collective_of(word);
        test_.bytes = bytes;
        results.push_back(run_net_test(worker_.world(), worker_.device(), buffer_, test_));
        if (prints) console_.print(net_row(results.back(), test_.dtype));
        wrong += results.back().wrong;
        record_["results"].push_back(net_record(results.back()));
      }
    }
    const double busbw = average_busbw(results);
    if (prints) console_.print(net_footer(busbw, wrong));
    record_["avg_busbw"] = busbw;
    return verdict_of(busbw, wrong, settings_.min_busbw, "--min-busbw");
  }

  // Measures pairs of nodes, or pairs of ranks if all ranks are on one node. Of the collectives and sizes in the
  // settings, uses only the first collective and the largest size.
  NetVerdict measure_pairs() {
    const bool by_node = *std::max_element(ranks_.nodes.begin(), ranks_.nodes.end()) > 0;
    std::vector<int> units = ranks_.nodes;
    for (size_t r = 0; r < units.size() && !by_node; ++r) units[r] = static_cast<int>(r);
    test_.collective = collective_of(settings_.collective[0]);
    test_.bytes = *std::max_element(sizes_.begin(), sizes_.end());
    const auto pairs = run_pair_tests(worker_.world(), worker_.device(), buffer_, test_, units);
    const std::vector<std::string> names = unit_names(ranks_, by_node);
    std::vector<NetResult> results;
    int64_t wrong = 0;
    for (const NetPairResult& pair : pairs) {
      results.push_back(pair.result);
      wrong += pair.result.wrong;
      Record record{{"first", names[static_cast<size_t>(pair.first)]},
                    {"second", names[static_cast<size_t>(pair.second)]}};
      record.update(net_record(pair.result));
      record_["results"].push_back(record);
    }
    const NetPairResult& slowest = slowest_pair(pairs);
    const SlowUnit unit = slowest_unit(pairs);
    record_["avg_busbw"] = average_busbw(results);
    record_["slowest_pair"] = {names[static_cast<size_t>(slowest.first)], names[static_cast<size_t>(slowest.second)]};
    record_["slowest_unit"] = names[static_cast<size_t>(unit.unit)];
    if (!settings_.json) {
      console_.print(fmt::format("# {} of {} between pairs, {} on {}", settings_.collective[0],
                                 format_bytes(results[0].message.bytes), ranks_.library,
                                 ranks_.on_gpus ? "GPUs" : "CPUs"));
      console_.print(pair_table(pairs, names, console_.out_terminal()));
      console_.print(slowest_lines(pairs, names));
      console_.print(net_footer(average_busbw(results), wrong));
    }
    return verdict_of(slowest.result.busbw, wrong, settings_.min_busbw, "--min-busbw");
  }

  const Settings& settings_;
  World& world_;
  Worker worker_;
  Console console_;
  const NetRanks ranks_;
  NetTest test_;
  std::vector<int64_t> sizes_;
  Buffer buffer_;
  Record record_;
};

}  // namespace

int run_nettest(const Invocation& invocation) {
  if (!invocation.world || invocation.world->size() == 1) {
    throw UsageError("nettest", "needs at least two ranks, but the run has one",
                     "Add --nproc N, or start the ranks with mpirun, srun or torchrun");
  }
  return run_among_ranks(invocation, [&] { return NetRun(invocation.settings(), *invocation.world).run(); });
}

}  // namespace tessera
