// The cache of the Hugging Face hub, where Python programs keep the models that they download:
//   <cache>/models--ORG--NAME/refs/main                  the commit that the name means
//   <cache>/models--ORG--NAME/snapshots/<commit>/...     the files of a commit
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// A model of the hub.
struct HubModel {
  std::string name;               // "org/name" or "name"
  std::string revision = "main";  // a branch, a tag or a commit

  bool operator==(const HubModel&) const = default;
};

// The model in a user's word: "org/name", "name", "org/name@revision", the folder name "models--org--name", or the web
// address of the model or of one of its files. nullopt if the word cannot be a name of the hub.
std::optional<HubModel> hub_model(std::string_view word);

// The cache that Python would use: HF_HUB_CACHE, $HF_HOME/hub, or the default of HF_HOME. Empty if no variable names
// it.
std::filesystem::path hub_cache();

// Whether a folder has the layout of a model in the cache.
bool is_hub_folder(const std::filesystem::path& folder);
// The snapshot of a model in the cache: the one that refs/REVISION names, or the commit REVISION or, without refs/main,
// the only one. Throws InputError if there is no such snapshot, or if there are several.
std::filesystem::path hub_snapshot(const std::filesystem::path& hub_folder, const std::string& revision = "main");

// The command that downloads a model, and the setting to give then.
std::string download_command(const HubModel& model);
// The name of the model that a snapshot belongs to. nullopt if the folder is not a snapshot in a cache.
std::optional<std::string> name_of_snapshot(const std::filesystem::path& snapshot);

// The snapshot of a model. nullopt if the cache does not have the model. Throws as hub_snapshot() does.
std::optional<std::filesystem::path> find_in_hub_cache(const HubModel& model);

}  // namespace tessera
