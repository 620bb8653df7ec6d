#include "tessera/app/verbs.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera {

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs = {
      {.name = "config",
       .help = "Print the settings of a verb, with where each comes from",
       .groups = kAllGroups,
       .required = {},
       .run = run_config,
       .about_verb = true},
      {.name = "doctor",
       .help = "Show what this machine offers: cores, memory, BLAS, MPI, CUDA, versions",
       .groups = kOutputDir | kPresentation,
       .required = {},
       .run = run_doctor},
  };
  return verbs;
}

int run_config(const Invocation& invocation) {
  const ResolvedSettings& resolved = invocation.resolved;
  print(invocation.settings().json ? resolved_config_json(resolved).dump(2) + "\n" : resolved_config_text(resolved));
  return static_cast<int>(ExitCode::kDone);
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw RunError("standard output", std::strerror(errno));
  }
}

}  // namespace tessera
