#include "tessera/log/trackers/wandb_variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr size_t kLongestRunId = 128;

void check_run_id(const std::string& id) {
  const bool is_plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  if (is_plain && id.size() <= kLongestRunId && !id.starts_with('.')) return;
  throw UsageError(
      "WANDB_RUN_ID", fmt::format("\"{}\" is not a valid run id", printable(id)),
      fmt::format("Use at most {} characters: letters, digits, \"-\", \"_\" and \".\". The first one must not be \".\"",
                  kLongestRunId));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    if (!word.empty()) words.push_back(word);
    begin = end + 1;
  }
  return words;
}

}  // namespace

WandbVariables wandb_variables(const Environment& environment) {
  const auto value_of = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  WandbVariables variables;
  const std::string mode = value_of("WANDB_MODE"), known = lower(mode);
  if (!known.empty() && known != "offline" && known != "online" && known != "disabled" && known != "dryrun" &&
      known != "run" && known != "shared") {
    throw UsageError("WANDB_MODE", fmt::format("unknown value \"{}\"", printable(mode)),
                     "Use one of: offline, online, disabled, dryrun, run, shared");
  }
  const std::string off = lower(value_of("WANDB_DISABLED"));
  variables.is_disabled = known == "disabled" || off == "true" || off == "1" || off == "yes" || off == "on";
  variables.asks_online = known == "online" || known == "run" || known == "shared";
  if (const std::string project = value_of("WANDB_PROJECT"); !project.empty()) variables.project = project;
  variables.entity = value_of("WANDB_ENTITY");
  variables.name = value_of("WANDB_NAME");
  variables.run_id = value_of("WANDB_RUN_ID");
  variables.group = value_of("WANDB_RUN_GROUP");
  variables.job_type = value_of("WANDB_JOB_TYPE");
  variables.notes = value_of("WANDB_NOTES");
  variables.dir = value_of("WANDB_DIR");
  variables.tags = words_of(value_of("WANDB_TAGS"));
  check_run_id(variables.run_id);
  return variables;
}

}  // namespace tessera
