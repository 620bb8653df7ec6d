#include "tessera/store/replaceable.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/store/file.h"
#include "tessera/store/manifest.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/safetensors.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kWeightFiles[] = {"model.safetensors", "model-*-of-*.safetensors", "adapter_model.safetensors"};
constexpr const char* kStateFiles[] = {kManifestName, "trainer_state.json", "rank-*-of-*.safetensors"};
constexpr const char* kOtherFiles[] = {"config.json", "generation_config.json", "tokenizer.json",
                                       "model.safetensors.index.json", "adapter_config.json"};

bool matches(const std::string& name, const auto& patterns) {
  return std::ranges::any_of(patterns, [&](const char* pattern) { return fnmatch(pattern, name.c_str(), 0) == 0; });
}

// Whether ModelWriter::write_texts() or ModelShards may write the file.
bool is_beside_weights(const std::string& name) {
  const std::string templates = fs::path(kChatTemplates) / "*.jinja";
  return matches(name, kOtherFiles) || matches(name, kTokenizerFiles) ||
         fnmatch(templates.c_str(), name.c_str(), 0) == 0;
}

// The files of a folder and of its subfolder kChatTemplates, sorted. Other subfolders are in the list, too.
std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in_folder(folder)) {
    if (name != kChatTemplates || !is_folder(folder / name)) {
      names.push_back(name);
      continue;
    }
    for (const std::string& inner : names_in_folder(folder / name)) names.push_back(fs::path(name) / inner);
  }
  std::ranges::sort(names);
  return names;
}

std::string contains(const std::string& name, const char* what) {
  return fmt::format("contains \"{}\", {}", printable(name), what);
}

bool is_written_here(const fs::path& weights) {
  try {
    const SafetensorsFile file(weights);
    const auto writer = file.metadata().find(std::string(kWriterKey));
    return writer != file.metadata().end() && writer->second == kWriter;
  } catch (const Error&) {  // not a file that Tessera wrote, or not any more
    return false;
  }
}

}  // namespace

std::string why_no_saved_model(const fs::path& folder) {
  const std::vector<std::string> names = files_of(folder);
  for (const char* name : {kManifestName, "trainer_state.json"}) {
    if (std::ranges::find(names, name) != names.end()) return fmt::format("is a checkpoint (it has {})", name);
  }
  bool has_weights = false;
  for (const std::string& name : names) {
    const bool is_weights = matches(name, kWeightFiles);
    const bool is_known = is_weights || is_beside_weights(name);
    if (!is_known || !fs::is_regular_file(folder / name)) return contains(name, "which is not a file of a saved model");
    if (is_weights && !is_written_here(folder / name)) return contains(name, "which Tessera did not write");
    has_weights = has_weights || is_weights;
  }
  return has_weights ? "" : "has no weights that Tessera wrote";
}

std::string why_no_own_checkpoint(const fs::path& folder) {
  std::optional<std::set<std::string>> listed;
  try {
    const Manifest manifest = read_manifest(folder / kManifestName);
    listed = std::set<std::string>{kManifestName};
    for (const ManifestFile& file : manifest.files) listed->insert(file.name);
  } catch (const Error&) {  // the checkpoint is damaged or incomplete
  }
  for (const std::string& name : files_of(folder)) {
    if (listed && !listed->contains(name)) return contains(name, "which its manifest.json does not list");
    if (!listed && !matches(name, kStateFiles) && !is_beside_weights(name)) {
      return contains(name, "which is not a file of a checkpoint");
    }
  }
  return "";
}

}  // namespace tessera
