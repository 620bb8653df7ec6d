#include "tessera/app/cluster_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/app/help.h"
#include "tessera/app/machine.h"
#include "tessera/app/net_report.h"
#include "tessera/base/counted.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/comm/communication_variables.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/log/table.h"
#include "tessera/store/checksum.h"

namespace tessera {
namespace {

constexpr double kLargestClockSkew_s = 1;

std::string text_or(const Record& facts, const char* key, const char* otherwise) {
  return facts.contains(key) && facts[key].is_string() ? facts[key].get<std::string>() : otherwise;
}

// The different values, each with the ranks that have it. The value of rank 0 comes first. Empty if all ranks have the
// same value.
std::vector<std::pair<std::string, std::vector<int>>> groups_by(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    auto it = std::ranges::find_if(groups, [&](const auto& group) { return group.first == values[rank]; });
    if (it == groups.end()) it = groups.insert(groups.end(), {values[rank], {}});
    it->second.push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1) groups.clear();
  return groups;
}

// For example "580.1 on node1 (ranks 0-3); 570.2 on node2 (ranks 4-7)". Empty if all ranks have the same value.
std::string difference(const std::vector<std::string>& values, const std::vector<Record>& ranks) {
  std::string text;
  for (const auto& [value, members] : groups_by(values)) {
    std::string hosts;
    for (const int rank : members) {
      const auto host = ranks[static_cast<size_t>(rank)]["host"].get<std::string>();
      if (hosts.find(host) == std::string::npos) hosts += (hosts.empty() ? "" : ", ") + host;
    }
    text += fmt::format("{}{} on {} ({})", text.empty() ? "" : "; ", value.empty() ? "unset" : value, hosts,
                        rank_list(members));
  }
  return text;
}

std::vector<std::string> values_of(const std::vector<Record>& ranks, const std::string& section,
                                   const std::string& key) {
  std::vector<std::string> values;
  for (const Record& rank : ranks) values.push_back(text_or(rank[section], key.c_str(), ""));
  return values;
}

// A version (or the kind of processor) that should be the same on all ranks, and the consequence if it is not.
struct VersionRow {
  const char* key;
  const char* name;
  bool is_problem;  // a difference is a problem (doctor fails), not only a warning
  const char* meaning;
};
constexpr VersionRow kVersions[] = {
    {"program", "the program", true, "Other commands refuse different builds. Start the same build on every node"},
    {"program_checksum", "the program's file", true,
     "Other commands refuse different builds. Start the same build on every node"},
    {"mpi", "the MPI library", false, "Ranks may not find each other. Load the same MPI on every node"},
    {"nccl", "NCCL", false, "NCCL needs the same version on all ranks"},
    {"driver", "the GPU driver", false, "Performance and results may differ between the nodes"},
    {"cuda", "the driver's CUDA", false, "Performance and results may differ between the nodes"},
    {"cpu", "the kind of processor", false, "Results repeat bit for bit only on the same kind of processor"},
};

void compare_versions(const std::vector<Record>& ranks, Record& warnings, Record& problems) {
  for (const VersionRow& row : kVersions) {
    const std::string text = difference(values_of(ranks, "versions", row.key), ranks);
    if (!text.empty()) {
      (row.is_problem ? problems : warnings).push_back(fmt::format("{} differs: {}. {}", row.name, text, row.meaning));
    }
  }
}

void compare_variables(const std::vector<Record>& ranks, Record& warnings) {
  std::map<std::string, int> names;
  for (const Record& rank : ranks) {
    for (const auto& [name, value] : rank["environment"].items()) ++names[name];
  }
  for (const auto& [name, count] : names) {
    const std::string text = difference(values_of(ranks, "environment", name), ranks);
    if (!text.empty()) warnings.push_back(fmt::format("{} differs: {}", name, text));
  }
}

// Adds the GPUs of a rank (`gpus`) to the GPUs of its host (`all`). Several ranks may see the same GPU. `all` contains
// each GPU once, because the PCI address of a GPU identifies it. If the address of a GPU in `gpus` is unknown, `all`
// becomes the longer one of the two lists.
void add_gpus(const Record& gpus, Record& all) {
  const bool have_addresses = std::ranges::all_of(gpus, [](const Record& gpu) { return gpu.contains("pci_address"); });
  if (!have_addresses) {
    if (gpus.size() > all.size()) all = gpus;
    return;
  }
  for (const Record& gpu : gpus) {
    const auto is_same = [&](const Record& other) { return other.value("pci_address", "") == gpu["pci_address"]; };
    if (std::ranges::none_of(all, is_same)) all.push_back(gpu);
  }
}

// The list "hosts" of the summary: one entry per node. The values in an entry are those of the node's lowest rank,
// except the ranks and the GPUs, which come from all ranks of the node.
Record hosts_of(const std::vector<Record>& ranks, const std::vector<ClockOffset>& clocks) {
  Record hosts = Record::array();
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto node = ranks[r]["node"].get<size_t>();
    if (node >= hosts.size()) {
      hosts.push_back({{"host", ranks[r]["host"]},
                       {"ranks", Record::array()},
                       {"cores_allowed", ranks[r]["cores_allowed"]},
                       {"memory_bytes", ranks[r]["memory_bytes"]},
                       {"gpus", Record::array()},
                       {"clock_offset_s", clocks[r].seconds},
                       {"clock_uncertainty_s", clocks[r].uncertainty}});
    }
    Record& host = hosts[node];
    host["ranks"].push_back(r);
    add_gpus(ranks[r]["gpus"], host["gpus"]);
  }
  return hosts;
}

std::vector<std::string> gpu_names(const Record& host) {
  std::vector<std::string> names;
  for (const Record& gpu : host["gpus"]) names.push_back(text_or(gpu, "name", "GPU"));
  return names;
}

void check_gpus(const Record& hosts, Record& warnings) {
  for (const Record& host : hosts) {
    const auto name = host["host"].get<std::string>();
    const size_t num_gpus = host["gpus"].size(), num_ranks = host["ranks"].size();
    if (num_gpus > 0 && num_gpus < num_ranks) {
      warnings.push_back(
          fmt::format("{} has {}, but they see {}. Start at most one rank per GPU, or train with --device cpu", name,
                      counted(num_ranks, "rank"), counted(num_gpus, "GPU")));
    }
    for (const Record& gpu : host["gpus"]) {
      const auto warn = [&](const std::string& what) {
        warnings.push_back(
            fmt::format("{}: {} {}: {}", name, text_or(gpu, "name", "GPU"), text_or(gpu, "pci_address", ""), what));
      };
      if (gpu.contains("problem")) warn(text_or(gpu, "problem", ""));
      if (gpu.contains("slowed_by")) {
        warn(fmt::format("the clocks are reduced because of {}", text_or(gpu, "slowed_by", "")));
      }
      if (const auto errors = gpu.value("uncorrected_errors", int64_t{0}); errors > 0) {
        warn(fmt::format("{} uncorrected memory errors (ECC) since the driver was loaded", errors));
      }
    }
    if (gpu_names(host) != gpu_names(hosts[0])) {
      const auto described = [](const Record& one) {
        const auto names = gpu_names(one);
        return names.empty() ? std::string("no GPU") : joined(names, ", ");
      };
      warnings.push_back(
          fmt::format("GPUs differ: {} has {}, but {} has {}. A run waits for the slowest GPU, and it uses "
                      "GPUs on all ranks or on none",
                      hosts[0]["host"].get<std::string>(), described(hosts[0]), name, described(host)));
    }
  }
}

}  // namespace

Record rank_facts(const Environment& environment, const std::string& host, int node) {
  const Record cuda = accelerator_facts(), cpu = cpu_facts(), memory = memory_facts();
  const std::string program = read_file("/proc/self/exe", {});
  Record facts{{"host", host},
               {"node", node},
               {"cores_allowed", cpu.value("cores_allowed", 0)},
               {"memory_bytes", memory.value("total_bytes", int64_t{0})},
               {"versions",
                {{"program", version_text()},
                 {"program_checksum", checksum_text(checksum_of(program.data(), program.size()))},
                 {"mpi", mpi_flavour().text},
                 {"nccl", cuda["nccl"]},
                 {"driver", cuda["driver"]},
                 {"cuda", cuda["cuda"]},
                 {"cpu", text_or(cpu, "model", "")}}},
               {"gpus", cuda["gpus"]},
               {"environment", Record::object()}};
  for (const auto& [name, value] : communication_variables(environment)) facts["environment"][name] = value;
  return facts;
}

Record cluster_summary(const std::vector<Record>& ranks, const std::vector<ClockOffset>& clocks,
                       const std::vector<SharedFolder>& folders) {
  Record warnings = Record::array(), problems = Record::array(), checked = Record::array();
  const Record hosts = hosts_of(ranks, clocks);
  compare_versions(ranks, warnings, problems);
  compare_variables(ranks, warnings);
  check_gpus(hosts, warnings);
  for (const Record& host : hosts) {
    const ClockOffset clock{host["clock_offset_s"], host["clock_uncertainty_s"]};
    if (!clock.exceeds(kLargestClockSkew_s)) continue;
    warnings.push_back(
        fmt::format("the clock of {} is {:.1f} s {} the clock of {}. Synchronize the clocks (chrony, ntpd): "
                    "a run uses file times to find out whether another run is alive",
                    host["host"].get<std::string>(), std::abs(clock.seconds), clock.seconds > 0 ? "ahead of" : "behind",
                    hosts[0]["host"].get<std::string>()));
  }
  for (const SharedFolder& folder : folders) {
    checked.push_back({{"folder", folder.folder}, {"tested", folder.tested}, {"shared", folder.failures.empty()}});
    for (const std::string& failure : folder.failures) {
      problems.push_back(fmt::format("{} is not shared by all ranks: {}", folder.folder, failure));
    }
  }
  return {{"ranks", ranks.size()},
          {"hosts", hosts},
          {"versions", ranks[0]["versions"]},
          {"environment", ranks[0]["environment"]},
          {"folders", checked},
          {"warnings", warnings},
          {"problems", problems}};
}

std::string cluster_text(const Record& summary, const Terminal& terminal) {
  std::string text = fmt::format("{} on {}\n", counted(summary["ranks"].get<size_t>(), "rank"),
                                 counted(summary["hosts"].size(), "host"));
  Table table({{"host"},
               {"ranks"},
               {"cores", Align::kRight},
               {"memory", Align::kRight},
               {"GPUs"},
               {"clock (s)", Align::kRight}});
  for (const Record& host : summary["hosts"]) {
    const auto names = gpu_names(host);
    table.row({host["host"].get<std::string>(), rank_list(host["ranks"].get<std::vector<int>>()),
               fmt::format("{}", host["cores_allowed"].get<int>()), format_bytes(host["memory_bytes"].get<int64_t>()),
               names.empty() ? "none" : fmt::format("{} x {}", names.size(), names[0]),
               fmt::format("{:+.3f}", host["clock_offset_s"].get<double>())});
  }
  text += table.render(terminal) + "\n\nversions of rank 0\n";
  for (const auto& [key, value] : summary["versions"].items()) {
    text += fmt::format("  {:<18}  {}\n", key == "program_checksum" ? "checksum" : key, value.get<std::string>());
  }
  text += "\nvariables for communication\n";
  for (const auto& [key, value] : summary["environment"].items()) {
    text += fmt::format("  {:<34}  {}\n", key, value.get<std::string>());
  }
  if (summary["environment"].empty()) text += "  none is set\n";
  if (!summary["folders"].empty()) text += "\nfolders\n";
  for (const Record& folder : summary["folders"]) {
    text += fmt::format("  {}: {}\n", folder["folder"].get<std::string>(),
                        folder["shared"].get<bool>()
                            ? "every rank can write there, and rank 0 and the other ranks see each other's files"
                            : "NOT shared");
  }
  for (const auto& [key, title] : {std::pair{"warnings", "warning"}, std::pair{"problems", "problem"}}) {
    if (!summary[key].empty()) text += "\n";
    for (const Record& line : summary[key]) text += fmt::format("{}: {}\n", title, line.get<std::string>());
  }
  if (summary["warnings"].empty() && summary["problems"].empty()) text += "\nno differences between the ranks\n";
  text.pop_back();
  return text;
}

int report_cluster(const Invocation& invocation) {
  World& world = *invocation.world;
  Communicator& all = world.communicator();
  const Settings& settings = invocation.settings();
  world.enter_phase("doctor");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const Record mine = rank_facts(invocation.environment, host, world.nodes()[static_cast<size_t>(world.rank())]);
  std::vector<Record> ranks;
  std::vector<std::string> names;
  for (const std::string& text : all.all_gather_text(to_json(mine), "facts about the ranks")) {
    ranks.push_back(record_from_json(text, "facts about another rank"));
    names.push_back(fmt::format("rank {} on {}", names.size(), ranks.back()["host"].get<std::string>()));
  }
  const auto clocks = clock_offsets(all);
  std::vector<SharedFolder> folders;
  // Ranks may have different settings, but each check of a folder needs all ranks. Therefore rank 0 alone decides which
  // folders are checked.
  for (const std::string& folder : {settings.output_dir, settings.shared}) {
    const std::string asked = all.all_gather_text(folder, "folders to check")[0];
    if (!asked.empty()) folders.push_back(check_shared_folder(all, asked, names));
  }
  const Record summary = cluster_summary(ranks, clocks, folders);
  if (world.rank() == 0) {
    Console console = Console::of_process();
    console.print(settings.json ? to_pretty_json(summary) : cluster_text(summary, console.out_terminal()));
  }
  return static_cast<int>(summary["problems"].empty() ? ExitCode::kDone : ExitCode::kRunFailed);
}

}  // namespace tessera
