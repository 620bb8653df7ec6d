#include "tessera/report/differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "tessera/base/counted.h"
#include "tessera/base/text.h"

namespace tessera {

namespace {

// Settings that change no result. They decide the name, the folder or the start of a run, or what it prints and logs.
constexpr std::array<std::string_view, 10> kNotCompared{"output_dir", "experiment",   "resume",   "overwrite",
                                                        "json",       "log_format",   "progress", "memory_log",
                                                        "tracker",    "owner_timeout"};

bool is_compared(std::string_view setting) {
  return std::find(kNotCompared.begin(), kNotCompared.end(), setting) == kNotCompared.end();
}

std::string base_name(const std::string& path) {
  const std::filesystem::path file(path);
  return file.filename().empty() ? file.parent_path().filename().string() : file.filename().string();
}

// The names of files, from their paths with ", " between them.
std::string base_names(const std::string& paths) {
  std::string names;
  for (size_t begin = 0; begin < paths.size();) {
    const size_t end = std::min(paths.find(", ", begin), paths.size());
    names += (names.empty() ? "" : ", ") + base_name(paths.substr(begin, end - begin));
    begin = end + 2;
  }
  return names;
}

std::string count_text(const RunFolder& run, const char* key) {
  const auto value = find_number(run.summary, key);
  return value ? shown(*value, FigureUnit::count) : "";
}

}  // namespace

std::vector<std::string> settings_that_differ(const std::vector<const RunFolder*>& runs) {
  std::set<std::string> names;
  for (const RunFolder* run : runs) {
    for (const auto& [name, value] : run->settings) names.insert(name);
  }
  std::vector<std::string> differing;
  for (const std::string& name : names) {
    if (!is_compared(name)) continue;
    std::set<std::string> values;
    for (const RunFolder* run : runs) {
      if (run->settings.empty()) continue;
      const auto it = run->settings.find(name);
      values.insert(it == run->settings.end() ? std::string(1, '\0') : it->second);
    }
    if (values.size() > 1) differing.push_back(name);
  }
  return differing;
}

Identity identity_of(const RunFolder& run) {
  Identity identity;
  const std::string model = text_of_key(run, "model"), parameters = count_text(run, "num_parameters");
  // If the settings of the run are not known, text_of_key() takes "model" from summary.json. This value is the folder
  // of the saved model, which is different for every run.
  identity.model = run.settings.empty() ? "" : base_name(model);
  if (!parameters.empty()) identity.model += (identity.model.empty() ? "" : ", ") + parameters + " parameters";
  identity.data = base_names(text_of_key(run, "dataset"));
  if (const auto n = find_number(run.summary, "train_data.samples")) {
    identity.data += fmt::format("{}{} {}", identity.data.empty() ? "" : ", ", shown(*n, FigureUnit::count),
                                 noun_for(static_cast<int64_t>(*n), "sample"));
  }
  if (const std::string eval = base_names(text_of_key(run, "eval_dataset")); !eval.empty()) {
    identity.data += ", evaluated on " + eval;
    if (const auto n = find_number(run.summary, "eval_data.samples")) {
      identity.data +=
          fmt::format(", {} {}", shown(*n, FigureUnit::count), noun_for(static_cast<int64_t>(*n), "sample"));
    }
  }
  const std::string gpus = find_texts(run.summary, "machine.gpus"), cpus = find_texts(run.summary, "machine.cpus");
  identity.machine = gpus.empty() ? cpus : gpus;
  const std::string device = find_text(run.summary, "device");
  if (!device.empty() && gpus.empty()) identity.machine += identity.machine.empty() ? device : " (" + device + ")";
  identity.version = find_text(run.summary, "version");
  return identity;
}

std::vector<std::string> unlike(const RunFolder& run, const RunFolder& other, const std::string& name_of_other) {
  const Identity mine = identity_of(run), theirs = identity_of(other);
  std::vector<std::string> texts;
  const auto compare = [&](const char* kind, const std::string& a, const std::string& b) {
    if (a == b) return;
    texts.push_back(fmt::format("The {} differs from {}: here {}; there {}", kind, name_of_other,
                                a.empty() ? "not recorded" : a, b.empty() ? "not recorded" : b));
  };
  compare("model", mine.model, theirs.model);
  compare("data", mine.data, theirs.data);
  compare("machine", mine.machine, theirs.machine);
  compare("version of Tessera", mine.version, theirs.version);
  return texts;
}

std::vector<RunGroup> groups_of(const std::vector<const RunFolder*>& runs) {
  const auto same = [](const RunFolder& a, const RunFolder& b) {
    if (a.settings.empty() || b.settings.empty() || a.experiment != b.experiment) return false;
    if (find_number(a.summary, "world_size") != find_number(b.summary, "world_size")) return false;
    if (!(identity_of(a) == identity_of(b))) return false;
    const std::vector<std::string> differing = settings_that_differ({&a, &b});
    return std::all_of(differing.begin(), differing.end(), [](const std::string& name) { return name == "seed"; });
  };
  std::vector<RunGroup> groups;
  for (const RunFolder* run : runs) {
    const auto it =
        std::find_if(groups.begin(), groups.end(), [&](const RunGroup& group) { return same(*group.runs[0], *run); });
    if (it != groups.end()) {
      it->runs.push_back(run);
    } else {
      groups.push_back({{run}});
    }
  }
  return groups;
}

std::string label_value(const RunFolder& run, const std::string& key) {
  std::string value = text_of_key(run, key);
  if (value.empty()) return "-";
  // nproc is 0 if it was not given, for example because mpirun or srun started the ranks. The number of ranks is
  // then taken from summary.json.
  if (key == "nproc" && value == "0") return text_of_key(run, "world_size");
  if (value.find('/') != value.npos && key != "experiment" && key != "run") return base_name(value);
  return value;
}

std::string label_of(const RunFolder& run, const std::vector<std::string>& keys) {
  std::string label;
  for (const std::string& key : keys) label += (label.empty() ? "" : ", ") + key + "=" + label_value(run, key);
  return label;
}

}  // namespace tessera
