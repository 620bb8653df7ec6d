#include "tessera/log/trackers/tags.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera {
namespace {

bool is_finite(const Record& value) {
  return value.is_number() && std::isfinite(value.get<double>());
}

void add(Record& tags, const std::string& tag, const Record& value) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) add(tags, tag + "." + key, inner);
  } else if (value.is_number()) {
    tags[tag] = is_finite(value) ? value : Record();
  } else if (value.is_null()) {
    tags[tag] = Record();
  }
}

// Returns the tag for one key of a record. `kind` is the record's kind. The tags eval/… and train/… follow
// rewrite_logs() of the Hugging Face Trainer.
std::string tag_of(const std::string& kind, const std::string& key) {
  if (key.find('/') != key.npos) return key;  // the key is a tag already
  if (key.starts_with("eval_")) return "eval/" + key.substr(5);
  return (kind == "eval" ? "eval/" : kind == "skipped" ? "skipped/" : "train/") + key;
}

}  // namespace

Record tags_of(const Record& line) {
  const std::string kind = line.value("kind", "");
  Record tags = Record::object();
  add(tags, kEpochTag, line.value("epoch", Record(0.0)));
  const bool has_targets = line.value("num_targets", int64_t{1}) != 0;
  for (const auto& [key, value] : line.items()) {
    if (!has_targets && (key == "loss" || key == "grad_norm") && !is_finite(value)) continue;
    if (key == "schema" || key == "kind" || key == "step" || key == "epoch" || key == "timing") continue;
    add(tags, tag_of(kind, key), value);
  }
  if (!line.contains("timing")) return tags;
  for (const auto& [key, value] : line.at("timing").items()) {
    if (key != "runtime_s") add(tags, tag_of(kind, key), value);
  }
  return tags;
}

}  // namespace tessera
