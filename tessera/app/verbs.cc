#include "tessera/app/verbs.h"

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

}  // namespace tessera
