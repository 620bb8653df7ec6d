#include "tessera/plan/start_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tessera/base/library.h"
#include "tessera/base/text.h"
#include "tessera/load/model_place.h"
#include "tessera/model/architecture.h"
#include "tessera/plan/fit.h"
#include "tessera/settings/setting.h"
#include "tessera/settings/setting_words.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/hub_cache.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& name, const Settings& settings) {
  return plain_text(find_setting(name)->get(settings));
}

// The name of a model, for the folder of a run: the part of --model that says which model it is.
std::string name_of_model(const Settings& settings) {
  const fs::path given = folder_of_model(settings);  // empty for a config.json of the working directory
  const fs::path folder = fs::absolute(given.empty() ? fs::path(".") : given).lexically_normal();
  if (const auto hub = name_of_snapshot(folder)) return fs::path(*hub).filename();
  fs::path named = folder.has_filename() ? folder : folder.parent_path();
  if (named.filename() == "model") named = named.parent_path();  // of a run
  const std::string name = named.filename();
  if (name.starts_with("checkpoint-")) return named.parent_path().filename().string() + "-" + name;
  return name.empty() ? "run" : name;
}

}  // namespace

std::vector<std::string> own_command() {
  if (is_library()) return {"…"};
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags,
                         const std::set<std::string>& dropped) {
  std::vector<std::string> arguments;
  // The setting of an argument that is left out; otherwise nullptr.
  const auto left_out = [&](const std::string& argument) -> const Setting* {
    if (!argument.starts_with("--")) return nullptr;
    const Setting* setting = find_setting(argument.substr(2, argument.find('=') - 2));
    if (!setting) return nullptr;
    const bool replaced = std::ranges::any_of(flags, [&](const auto& flag) { return flag.first == setting->flag(); });
    return replaced || dropped.contains(setting->name) ? setting : nullptr;
  };
  for (size_t i = 0; i < command.size(); ++i) {
    const Setting* setting = left_out(command[i]);
    if (!setting) {
      arguments.push_back(quoted_for_shell(command[i]));
      continue;
    }
    const bool is_bare = !setting->bare_value.empty() && (i + 1 == command.size() || command[i + 1].starts_with("--"));
    const bool has_value_next =
        command[i].find('=') == std::string::npos && setting->type != SettingType::boolean && !is_bare;
    if (has_value_next) ++i;
  }
  for (const auto& [flag, value] : flags) {
    arguments.push_back(flag);
    arguments.push_back(quoted_for_shell(value));
  }
  return joined(arguments, " ");
}

StartCommand start_command(const ResolvedSettings& resolved, const std::set<std::string>& fixed, const Settings& found,
                           const PlannedRank& rank) {
  const Settings& given = resolved.settings;
  StartCommand start;
  std::vector<std::pair<std::string, std::string>> flags;
  std::set<std::string> dropped{"fit",        "device_memory", "host_memory", "disk",  "machine",
                                "categories", "compare",       "svg",         "nodes", "json"};
  const auto placeholder = [&](const char* flag, const std::string& word, const std::string& meaning) {
    flags.emplace_back(flag, word);
    start.placeholders.push_back(word + ": " + meaning);
  };
  std::error_code ignored;
  if (!fs::exists(given.model, ignored)) {  // the name of a shape
    const bool is_drawn = has_free_sizes(given.model) || resolved.is_given("init") || !given.tokenizer.empty();
    if (is_drawn) {
      if (!resolved.is_given("init")) flags.emplace_back("--init", "random");
      if (given.tokenizer.empty()) placeholder("--tokenizer", "TOKENIZER", "a folder with a tokenizer.json");
    } else {
      placeholder("--model", "MODEL", "the folder of " + given.model);
    }
  }
  if (given.dataset.empty()) placeholder("--dataset", "DATA", "the training data");
  if (given.output_dir.empty()) {
    flags.emplace_back("--output-dir", free_name(fs::path("runs") / name_of_model(given)).string());
  }
  for (const std::string& name : searched_names()) {
    const bool is_unused = name == "batch_size" && found.batch_tokens > 0;
    const bool is_automatic = name == "offload"                    ? given.offload.has_automatic()
                              : name == "activation_checkpointing" ? given.activation_checkpointing.automatic
                                                                   : false;
    if ((!fixed.contains(name) || is_automatic) && !is_unused)
      flags.emplace_back(find_setting(name)->flag(), text_of(name, found));
  }
  if (found.offload_dir != given.offload_dir) flags.emplace_back("--offload-dir", found.offload_dir);
  std::vector<std::string> words = own_command();
  if (words.size() > 1) words[1] = "train";
  const bool several_nodes = rank.world_size > rank.ranks_per_node;
  if (several_nodes) {
    dropped.insert("nproc");
    words.insert(words.begin(), {"mpirun", "-n", fmt::format("{}", rank.world_size)});
  }
  start.text = command_with(words, flags, dropped);
  return start;
}

std::string fit_command(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  return command_with(own_command(),
                      {{"--fit", s.device_memory > 0 ? rounded_down_bytes_text(s.device_memory) : "auto"}},
                      {"device_memory"});
}

}  // namespace tessera
