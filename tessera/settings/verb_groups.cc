#include "tessera/settings/verb_groups.h"

namespace tessera {

std::vector<std::string> names_of_verbs() {
  return {"train",  "eval",     "generate",        "chat",   "plan",   "memory", "slurm",   "sweep",
          "report", "tokenize", "tokenizer train", "export", "config", "doctor", "nettest", "completions",
          "man"};
}

}  // namespace tessera
