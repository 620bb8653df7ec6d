// Declarations for trackers of a run: TensorBoard and W&B.
#include <fmt/format.h>

#include "tessera/base/closest_word.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera {

TrackerChoice parse_trackers(std::string_view text, const std::string& where) {
  TrackerChoice choice;
  const std::string words = lower(text);
  bool has_none = false, has_any = false;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    std::string word = words.substr(begin, end - begin);
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    begin = end + 1;
    if (word == "none") {
      has_none = true;
      continue;
    }
    if (word != "tensorboard" && word != "wandb" && word != "all") {
      std::string remedy = did_you_mean(word, {"none", "tensorboard", "wandb", "all"});
      if (!remedy.empty()) remedy += " ";
      throw UsageError(where, "unknown tracker " + quoted_value(word),
                       remedy + "Use none, or a comma-separated list of: tensorboard, wandb");
    }
    has_any = true;
    choice.tensorboard = choice.tensorboard || word != "wandb";
    choice.wandb = choice.wandb || word != "tensorboard";
  }
  if (has_none && has_any)
    throw UsageError(where, "\"none\" contradicts the other trackers", "Write only none, or only the trackers");
  return choice;
}

std::string tracker_text(const TrackerChoice& choice) {
  if (choice.tensorboard && choice.wandb) return "tensorboard,wandb";
  return choice.tensorboard ? "tensorboard" : choice.wandb ? "wandb" : "none";
}

namespace declaring {

std::vector<Setting> tracker_settings() {
  return {
      parsed("tracker", &S::tracker, kOptimization, "WHAT,...",
             "Also write the measurements for trackers: none, or a list of tensorboard, wandb; all: both. W&B runs are "
             "offline, and wandb sync uploads them (docs/trackers.md)",
             parse_trackers, tracker_text),
      text("tracker_dir", &S::tracker_dir, kOptimization, "PATH",
           "Folder where --tracker creates the folders tensorboard and wandb. Each run needs its own folder; empty: "
           "--output-dir. For W&B, the variable WANDB_DIR takes precedence",
           {"logging_dir"})};
}

}  // namespace declaring

}  // namespace tessera
