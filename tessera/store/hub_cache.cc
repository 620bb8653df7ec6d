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

// Whether `part` can be the name of an organization or a model.
bool is_hub_word(std::string_view part) {
  constexpr size_t kLongest = 96;
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  return !part.empty() && part.size() <= kLongest && part[0] != '.' && part[0] != '-' &&
         std::ranges::all_of(part, is_allowed);
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

std::string download_command(const std::string& name) {
  const std::string folder = "models/" + name.substr(name.find('/') + 1);
  return fmt::format("hf download {0} --local-dir {1}, and give {2} {1}", name, folder, option("model"));
}

std::optional<std::string> name_of_snapshot(const fs::path& snapshot) {
  const fs::path snapshots = without_slash(snapshot).parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots" && is_hub_folder(snapshots.parent_path());
  return is_snapshot ? std::optional(name_of_folder(snapshots.parent_path())) : std::nullopt;
}

std::optional<std::string> hub_name(std::string_view word) {
  for (const std::string_view start : {"https://huggingface.co/", "https://hf.co/", "hf://"}) {
    if (!word.starts_with(start)) continue;
    word.remove_prefix(start.size());
    if (const size_t second = word.find('/', word.find('/') + 1); word.find('/') != word.npos) {
      word = word.substr(0, second);  // without "/tree/main"
    }
    break;
  }
  const size_t slash = word.find('/');
  if (!is_hub_word(word.substr(0, slash))) return std::nullopt;
  if (slash != word.npos && !is_hub_word(word.substr(slash + 1))) return std::nullopt;
  return std::string(word);
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

fs::path hub_snapshot(const fs::path& folder) {
  const std::string name = name_of_folder(without_slash(folder));
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
                     "Download it again: " + download_command(name));
  }
  std::error_code ignored;
  const fs::path ref = folder / "refs" / "main";
  if (!fs::exists(ref, ignored)) {
    if (snapshots.size() == 1) return folder / "snapshots" / snapshots[0];
    throw InputError(folder, fmt::format("has {} snapshots, and no refs/main that names one of them", snapshots.size()),
                     "Give one of them: " + listed());
  }
  std::string commit = read_file(ref, {.longest_bytes = 1 << 10});
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) commit.pop_back();
  if (std::ranges::find(snapshots, commit) != snapshots.end()) return folder / "snapshots" / commit;
  throw InputError(ref, fmt::format("names the snapshot {}, which does not exist", printable(commit)),
                   fmt::format("Download it: {}. Or give another snapshot: {}", download_command(name), listed()));
}

std::optional<fs::path> find_in_hub_cache(const std::string& name) {
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  const fs::path path = hub_cache() / folder;
  std::error_code ignored;  // an unreadable cache has no model
  return fs::is_directory(path, ignored) ? std::optional(hub_snapshot(path)) : std::nullopt;
}

}  // namespace tessera
