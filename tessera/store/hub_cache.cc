#include "tessera/store/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

bool is_hub_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// Whether `part` can be the name of an organization or a model.
bool is_hub_word(std::string_view part) {
  constexpr size_t kLongest = 96;
  return !part.empty() && part.size() <= kLongest && part[0] != '.' && part[0] != '-' &&
         std::ranges::all_of(part, is_hub_letter);
}

// Whether `text` can be the name of a branch, a tag or a commit, such as "refs/pr/1".
bool is_revision(std::string_view text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (!is_hub_word(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// Cuts `text` at the first `separator`, and returns the part after it. Empty if there is no separator.
std::string_view cut_at(std::string_view& text, std::string_view separator) {
  const size_t at = std::min(text.find(separator), text.size());
  const std::string_view rest = text.substr(std::min(at + separator.size(), text.size()));
  text = text.substr(0, at);
  return rest;
}

// Reduces an address of the hub, without "https://huggingface.co/", to the name of the model. Returns its revision,
// which is empty if the address has none.
std::string_view reduce_address(std::string_view& word) {
  cut_at(word, "?");
  cut_at(word, "#");
  while (word.ends_with('/')) word.remove_suffix(1);
  for (const char* const place : {"/tree/", "/blob/", "/resolve/"}) {
    std::string_view revision = cut_at(word, place);
    if (revision.empty()) continue;
    if (place != std::string_view("/tree/")) cut_at(revision, "/");  // the path of a file follows
    return revision;
  }
  return "";
}

// The name of the model that a folder of the cache belongs to: "models--org--name" gives "org/name".
std::string name_of_folder(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with("models--")) return name;
  name.erase(0, std::string_view("models--").size());
  if (const size_t at = name.find("--"); at != name.npos) name.replace(at, 2, "/");
  return name;
}

fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

}  // namespace

std::string download_command(const HubModel& model) {
  const std::string folder = "models/" + model.name.substr(model.name.find('/') + 1);
  const std::string revision = model.revision == "main" ? "" : " --revision " + model.revision;
  return fmt::format("hf download {0}{2} --local-dir {1}, and give {3} {1}", model.name, folder, revision,
                     option("model"));
}

std::optional<std::string> name_of_snapshot(const fs::path& snapshot) {
  const fs::path snapshots = without_slash(snapshot).parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots" && is_hub_folder(snapshots.parent_path());
  return is_snapshot ? std::optional(name_of_folder(snapshots.parent_path())) : std::nullopt;
}

std::optional<HubModel> hub_model(std::string_view word) {
  std::string_view revision;
  for (const std::string_view start : {"https://", "http://"}) {
    if (word.starts_with(start)) word.remove_prefix(start.size());
  }
  for (const std::string_view start : {"huggingface.co/", "www.huggingface.co/", "hf.co/", "hf://"}) {
    if (!word.starts_with(start)) continue;
    word.remove_prefix(start.size());
    revision = reduce_address(word);
    break;
  }
  if (const std::string_view after = cut_at(word, "@"); !after.empty()) revision = after;
  HubModel model{word.find('/') == word.npos ? name_of_folder(word) : std::string(word)};
  if (!revision.empty()) model.revision = revision;
  std::string_view name = model.name;
  for (const char* const ending : {".json", ".safetensors", ".gguf"}) {
    if (name.ends_with(ending)) return std::nullopt;  // the name of a file
  }
  const bool has_two = name.find('/') != name.npos;
  const std::string_view second = cut_at(name, "/");
  if (!is_hub_word(name) || (has_two && !is_hub_word(second)) || !is_revision(model.revision)) return std::nullopt;
  return model;
}

fs::path hub_cache() {
  const std::pair<const char*, const char*> kPlaces[] = {{"HF_HUB_CACHE", ""},
                                                         {"HUGGINGFACE_HUB_CACHE", ""},
                                                         {"HF_HOME", "hub"},
                                                         {"XDG_CACHE_HOME", "huggingface/hub"},
                                                         {"HOME", ".cache/huggingface/hub"}};
  for (const auto& [variable, inner] : kPlaces) {
    const char* const value = std::getenv(variable);
    if (value && *value) return *inner ? fs::path(value) / inner : fs::path(value);
  }
  return {};
}

bool is_hub_folder(const fs::path& folder) {
  std::error_code ignored;  // an unreadable folder is reported when it is used
  return fs::is_directory(folder / "snapshots", ignored) &&
         (fs::is_directory(folder / "refs", ignored) ||
          without_slash(folder).filename().string().starts_with("models--"));
}

fs::path hub_snapshot(const fs::path& folder, const std::string& revision) {
  const HubModel model{name_of_folder(without_slash(folder)), revision};
  std::vector<std::string> snapshots;
  for (const std::string& entry : names_in_folder(folder / "snapshots")) {
    if (is_folder(folder / "snapshots" / entry)) snapshots.push_back(entry);
  }
  std::ranges::sort(snapshots);
  const auto listed = [&] {
    std::string text;
    for (const std::string& snapshot : snapshots) {
      text += (text.empty() ? "" : ", ") + (folder / "snapshots" / printable(snapshot)).string();
    }
    return text;
  };
  if (snapshots.empty()) {
    throw InputError(folder, "has no snapshot of the model: its download did not finish",
                     "Download it again: " + download_command(model));
  }
  std::error_code ignored;
  const fs::path ref = folder / "refs" / revision;
  if (!fs::exists(ref, ignored)) {
    if (std::ranges::find(snapshots, revision) != snapshots.end()) return folder / "snapshots" / revision;
    if (revision != "main") {
      throw InputError(folder, fmt::format("has no snapshot of the revision {}", revision),
                       fmt::format("Download it: {}. Or give another snapshot: {}", download_command(model), listed()));
    }
    if (snapshots.size() == 1) return folder / "snapshots" / snapshots[0];
    throw InputError(folder, fmt::format("has {} snapshots, and no refs/main that names one of them", snapshots.size()),
                     "Give one of them: " + listed());
  }
  std::string commit = read_file(ref, {.longest_bytes = 1 << 10});
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) commit.pop_back();
  if (std::ranges::find(snapshots, commit) != snapshots.end()) return folder / "snapshots" / commit;
  throw InputError(ref, fmt::format("names the snapshot {}, which does not exist", printable(commit)),
                   fmt::format("Download it: {}. Or give another snapshot: {}", download_command(model), listed()));
}

std::optional<fs::path> find_in_hub_cache(const HubModel& model) {
  std::string folder = "models--" + model.name;
  if (const size_t slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  const fs::path path = hub_cache() / folder;
  std::error_code ignored;  // an unreadable cache has no model
  return fs::is_directory(path, ignored) ? std::optional(hub_snapshot(path, model.revision)) : std::nullopt;
}

}  // namespace tessera
