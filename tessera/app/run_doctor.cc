// tessera doctor: prints the hardware and the libraries of this machine. With several ranks, compares their nodes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/app/cluster_report.h"
#include "tessera/app/machine.h"
#include "tessera/app/verbs.h"
#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"
#include "tessera/plan/limits.h"
#include "tessera/plan/machines.h"
#include "tessera/plan/measure_machine.h"
#include "tessera/session/worker.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

std::string fact_text(const std::string& key, const Json& value) {
  if (key.ends_with("_bytes")) return fmt::format("{:.1f} GiB", value.get<double>() / (1 << 30));
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

// Adds one line per fact to `text`. The label of a fact is `prefix` and the fact's key. In an array, the key is the
// index. In labels, blanks replace underscores, except in keys with capital letters (names of environment variables).
void add_lines(const std::string& prefix, const Json& facts, std::string& text) {
  for (const auto& [key, value] : facts.items()) {
    std::string label = prefix.empty() ? key : prefix + " " + key;
    if (value.is_structured()) {
      if (value.empty()) text += fmt::format("  {:<28}  none\n", label);
      add_lines(label, value, text);
      continue;
    }
    for (char& c : label) {
      if (c == '_' && key.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos) c = ' ';
    }
    if (label.ends_with(" bytes")) label.resize(label.size() - 6);
    text += fmt::format("  {:<28}  {}\n", label, fact_text(key, value));
  }
}

// Measures the speeds of this machine and writes its file. Collective.
int measure(const Invocation& invocation) {
  Settings settings = invocation.settings();
  settings.offload.optimizer = Tier::host;  // a run pins host memory for offloaded arrays
  Worker worker(settings, invocation.world);
  Console console = worker.is_first() ? Console::of_process() : Console::muted();
  const PlannedRank rank = worker.planned_rank();
  const int ranks_of_node = std::min(rank.world_size, rank.ranks_per_node);
  const std::string name = name_of_device(rank.device, rank.num_threads);
  const std::string path = machine_file(name, ranks_of_node);
  if (path.empty()) {
    throw RunError("HOME", "is not set, and neither is XDG_CACHE_HOME, so that the measured machine has no file",
                   "Set XDG_CACHE_HOME to a folder that can be written");
  }
  const std::vector<CudaDeviceInfo> gpus = cuda_info().devices;
  const bool bf16 = rank.device == DeviceKind::cuda && has_bf16(gpus.front());
  console.note(fmt::format("Measuring {} ...", name));
  const double begin = steady_seconds();
  const Machine machine = measure_machine(worker.device(), worker.host(), worker.world(), rank.ranks_per_node, bf16,
                                          rank.device == DeviceKind::cuda ? gpus.front().num_multiprocessors : 0, name,
                                          offload_folder(settings));
  if (!worker.is_first()) return 0;
  save_machine(machine, path);
  if (settings.json) {
    console.print_part(machine_text(machine));
  } else {
    print_machine(machine, console);
    console.print(fmt::format("written to {} after {:.0f} s", path, steady_seconds() - begin));
  }
  return 0;
}

}  // namespace

int run_doctor(const Invocation& invocation) {
  if (invocation.settings().measure) return measure(invocation);
  if (invocation.world && invocation.world->size() > 1) return report_cluster(invocation);
  Json report = {{"build", build_facts()},       {"cpu", cpu_facts()},
                 {"memory", memory_facts()},     {"disk", disk_facts(invocation.settings().output_dir)},
                 {"libraries", library_facts()}, {"mpi", mpi_facts(invocation.environment)},
                 {"cuda", accelerator_facts()},  {"environment", environment_facts(invocation.environment)}};
  bool is_usable = true;
  if (const std::string& shared = invocation.settings().shared; !shared.empty()) {
    const SharedFolder folder = check_shared_folder(*make_self_communicator(), shared, {"this machine"});
    is_usable = folder.failures.empty();
    report["shared"] = {{"folder", folder.folder}, {"writable", is_usable}};
    if (!is_usable) report["shared"]["problem"] = folder.failures[0];
  }
  const auto code = static_cast<int>(is_usable ? ExitCode::kDone : ExitCode::kRunFailed);
  if (invocation.settings().json) {
    Console::of_process().print(report.dump(2, ' ', false, Json::error_handler_t::replace));
    return code;
  }
  std::string text;
  for (const auto& [section, facts] : report.items()) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section);
    add_lines("", facts, text);
    if (facts.empty()) text += "  no relevant variable is set\n";
  }
  text.pop_back();  // the last newline
  Console::of_process().print(text);
  return code;
}

}  // namespace tessera
