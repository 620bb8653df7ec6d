#include "tessera/sweep/sweep_file.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/settings/config_file.h"
#include "tessera/settings/toml_library.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// In a folder of recipes, a file whose name ends with this text is not a recipe, but a
// file that recipes include.
constexpr const char* kSharedFile = "base.toml";

std::optional<SettingValue> scalar_of(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* text = node.as_string()) return text->get();
  return std::nullopt;
}

// The entries of a table, in the order of the file. Iteration over a toml::table sorts them by name.
std::vector<std::pair<const toml::key*, const toml::node*>> in_file_order(const toml::table& table) {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
  std::ranges::stable_sort(entries, [](const auto& a, const auto& b) {
    const auto at = [](const auto& entry) {
      const auto& begin = entry.first->source().begin;
      return std::pair(begin.line, begin.column);
    };
    return at(a) < at(b);
  });
  return entries;
}

// The deepest folder that contains all paths. The paths must be normalized (lexically_normal()).
fs::path shared_folder(const std::vector<std::string>& paths) {
  fs::path shared = fs::path(paths[0]).parent_path();
  const auto contains = [&](const std::string& path) {
    return shared.empty() || path.starts_with((shared / "").string());
  };
  while (!std::ranges::all_of(paths, contains)) shared = shared.parent_path();
  return shared;
}

// The recipes with these paths. Their names are the paths below `folder`, without ".toml".
std::vector<SweepRecipe> named_below(const fs::path& folder, const std::vector<std::string>& paths) {
  std::vector<SweepRecipe> recipes;
  for (const auto& path : paths) {
    const fs::path below = folder.empty() ? fs::path(path) : fs::path(path).lexically_relative(folder);
    recipes.push_back({path, (below.parent_path() / below.stem()).string()});
  }
  return recipes;
}

class SweepReader {
 public:
  SweepReader(const std::string& path, Groups groups) : path_(path), groups_(groups) {
    sweep_.path = path;
    sweep_.title = fs::path(path).stem().string();
  }

  SweepFile read(const toml::table& root) {
    for (const auto& [key, node] : in_file_order(root)) read_top(*key, *node);
    if (!base_.empty() && sweep_.lists_recipes) {
      throw UsageError(path_, "has both base and recipes", "Give only one of the two");
    }
    if (!base_.empty()) sweep_.recipes = {{base_, fs::path(base_).stem().string()}};
    if (sweep_.recipes.empty()) sweep_.recipes = {{"", ""}};
    if (sweep_.lists_recipes) {
      for (const SweepEntry& entry : sweep_.entries) {
        if (entry.recipe.path.empty()) {
          throw UsageError(entry.where, "names no recipe, and the sweep has no base", "Add recipe = \"FILE\"");
        }
      }
    }
    return std::move(sweep_);
  }

 private:
  std::string where(const toml::key& key, const std::string& table = "") const {
    return fmt::format("{}:{}: {}{}", path_, key.source().begin.line, table.empty() ? "" : table + ".", key.str());
  }

  void read_top(const toml::key& key, const toml::node& node) {
    const std::string name = underscored(key.str()), place = where(key);
    if (name == "base") {
      base_ = recipe_at(text_of(node, place), place);
    } else if (name == "recipes") {
      read_recipes(node, place);
    } else if (name == "name") {
      sweep_.name = text_of(node, place);
    } else if (name == "output_dir") {
      sweep_.output_dir = text_of(node, place);
    } else if (name == "repeats") {
      const auto value = scalar_of(node);
      const auto* number = value ? std::get_if<int64_t>(&*value) : nullptr;
      if (!number || *number < 1 || *number > 1000) throw UsageError(place, "must be a whole number from 1 to 1000");
      sweep_.repeats = *number;
    } else if (name == "settings") {
      sweep_.settings = values_of(table_of(node, place), name);
    } else if (name == "matrix") {
      read_matrix(table_of(node, place));
    } else if (name == "run") {
      for (const toml::table* table : tables_of(node, place, "[[run]]")) read_run(*table);
    } else if (name == "exclude") {
      for (const toml::table* table : tables_of(node, place, "[[exclude]]")) read_exclusion(*table);
    } else {
      unknown_key(key, place);
    }
  }

  [[noreturn]] void unknown_key(const toml::key& key, const std::string& place) const {
    const std::string name(key.str());
    if (find_setting(name)) {
      throw UsageError(place, "is a setting, and settings of a sweep belong below [settings] or [matrix]",
                       fmt::format("Write it there. To run {} as one run: tessera train {}", path_, path_));
    }
    const std::string remedy = did_you_mean(underscored(name), {"base", "recipes", "name", "output_dir", "repeats",
                                                                "settings", "matrix", "run", "exclude"});
    throw UsageError(place, "unknown key of a sweep",
                     remedy.empty() ? "Use one of: base, recipes, name, output_dir, repeats, [settings], [matrix], "
                                      "[[run]], [[exclude]]"
                                    : remedy);
  }

  std::string text_of(const toml::node& node, const std::string& place) const {
    const auto* text = node.as_string();
    if (!text || text->get().empty()) throw UsageError(place, "must be a text in quotes, and not empty");
    return text->get();
  }

  const toml::table& table_of(const toml::node& node, const std::string& place) const {
    if (!node.is_table()) throw UsageError(place, "must be a table");
    return *node.as_table();
  }

  std::vector<const toml::table*> tables_of(const toml::node& node, const std::string& place,
                                            const std::string& heading) const {
    std::vector<const toml::table*> tables;
    const toml::array* array = node.as_array();
    for (size_t i = 0; array && i < array->size(); ++i) {
      if (const auto* table = array->get(i)->as_table()) tables.push_back(table);
    }
    if (!array || tables.size() != array->size()) {
      throw UsageError(place, "must be a list of tables", "Begin each table with the line " + heading);
    }
    return tables;
  }

  // Returns the path of a recipe, and checks that the file exists. `text` is the path relative to the folder of the
  // sweep file.
  std::string recipe_at(const std::string& text, const std::string& place) const {
    const fs::path recipe = (fs::path(path_).parent_path() / text).lexically_normal();
    std::error_code none;
    if (fs::is_regular_file(recipe, none)) return recipe.string();
    throw UsageError(place, fmt::format("the recipe {} does not exist", recipe.string()),
                     "Paths of recipes are relative to the folder of the sweep file");
  }

  void read_recipes(const toml::node& node, const std::string& place) {
    std::vector<std::string> paths;
    const toml::array* array = node.as_array();
    if (!array || array->empty()) throw UsageError(place, "must be a list of files, with at least one");
    for (const auto& element : *array) {
      const std::string text = text_of(element, place);
      const std::string pattern = (fs::path(path_).parent_path() / text).lexically_normal().string();
      glob_t found{};
      const bool fits = glob(pattern.c_str(), 0, nullptr, &found) == 0;
      for (size_t i = 0; fits && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
      globfree(&found);
      if (!fits) {
        throw UsageError(place, fmt::format("no recipe matches {}", quoted_value(pattern)),
                         "Paths of recipes are relative to the folder of the sweep file");
      }
    }
    for (size_t i = 0; i < paths.size(); ++i) {
      if (std::find(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(i), paths[i]) !=
          paths.begin() + static_cast<std::ptrdiff_t>(i)) {
        throw UsageError(place, paths[i] + " is named twice", "Remove one of the names or patterns");
      }
    }
    sweep_.recipes = named_below(shared_folder(paths), paths);
    sweep_.lists_recipes = true;
  }

  const Setting& setting_of(const toml::key& key, const std::string& place) const {
    const Setting* setting = find_setting(key.str());
    if (!setting) {
      std::vector<std::string> names;
      for (const Setting* known : settings_of(groups_)) {
        names.push_back(known->name);
        names.insert(names.end(), known->aliases.begin(), known->aliases.end());
      }
      throw UsageError(place, "unknown setting", did_you_mean(underscored(key.str()), names));
    }
    if (!(setting->group & groups_)) throw UsageError(place, "is not a setting of train");
    if (setting->name == "output_dir") {
      throw UsageError(place, "is a template for all runs, so it belongs to the top level of the file",
                       "Write output_dir = \"runs/{name}\" there");
    }
    return *setting;
  }

  SweepValue value_of(const Setting& setting, const toml::node& node, const std::string& place) const {
    if (const auto texts = texts_in(node)) return {&setting, checked_value(setting, *texts, place), false, place};
    const auto scalar = scalar_of(node);
    if (!scalar) throw UsageError(place, "must be a text, a number or a boolean");
    if (setting.type == SettingType::integer && std::holds_alternative<std::string>(*scalar)) {
      return {&setting, *scalar, true, place};
    }
    return {&setting, checked_value(setting, *scalar, place), false, place};
  }

  std::vector<SweepValue> values_of(const toml::table& table, const std::string& name,
                                    const std::vector<std::string>& except = {}) const {
    std::vector<SweepValue> values;
    for (const auto& [key, node] : in_file_order(table)) {
      if (std::ranges::find(except, key->str()) != except.end()) continue;
      const std::string place = where(*key, name);
      const Setting& setting = setting_of(*key, place);
      refuse_second(values, setting, place);
      values.push_back(value_of(setting, *node, place));
    }
    return values;
  }

  // A table may contain a setting only once, under any of its names.
  template <typename T>
  static void refuse_second(const std::vector<T>& values, const Setting& setting, const std::string& place) {
    const auto first = std::ranges::find(values, &setting, &T::setting);
    if (first == values.end()) return;
    throw UsageError(place, "is given twice: the first place is " + first->where, "Remove one of the two");
  }

  void read_matrix(const toml::table& table) {
    if (table.empty()) {
      throw UsageError(fmt::format("{}:{}: [matrix]", path_, table.source().begin.line), "is empty",
                       "Add a list, as in nproc = [1, 2, 4], or remove [matrix]");
    }
    for (const auto& [key, node] : in_file_order(table)) {
      const std::string place = where(*key, "matrix");
      const Setting& setting = setting_of(*key, place);
      refuse_second(sweep_.axes, setting, place);
      const toml::array* array = node->as_array();
      if (!array) {
        throw UsageError(place, "must be a list of values", "A value for all runs belongs to [settings]");
      }
      if (array->empty()) throw UsageError(place, "is an empty list, so the sweep has no run", "Add a value");
      SweepAxis axis{&setting, place, {}};
      for (const auto& element : *array) {
        axis.values.push_back(value_of(setting, element, place));
        if (std::ranges::count(axis.values, axis.values.back()) > 1) {
          throw UsageError(place, fmt::format("has {} twice", toml_text(axis.values.back().value)));
        }
      }
      sweep_.axes.push_back(std::move(axis));
    }
  }

  void read_run(const toml::table& table) {
    SweepEntry entry{.where = fmt::format("{}:{}: [[run]]", path_, table.source().begin.line)};
    for (const auto& [key, node] : in_file_order(table)) {
      const std::string place = where(*key, "run");
      if (key->str() == "recipe") {
        entry.recipe.path = recipe_at(text_of(*node, place), place);
        entry.recipe.name = fs::path(entry.recipe.path).stem().string();
      }
      if (key->str() == "name") entry.name = text_of(*node, place);
    }
    entry.values = values_of(table, "run", {"recipe", "name"});
    sweep_.entries.push_back(std::move(entry));
  }

  void read_exclusion(const toml::table& table) {
    SweepExclusion exclusion{fmt::format("{}:{}: exclude", path_, table.source().begin.line),
                             values_of(table, "exclude")};
    if (exclusion.values.empty())
      throw UsageError(exclusion.where, "is an empty table",
                       "Give the values that the excluded runs have, or remove it");
    sweep_.exclusions.push_back(std::move(exclusion));
  }

  const std::string& path_;
  const Groups groups_;
  SweepFile sweep_{};
  std::string base_;
};

// Removes recipes that another recipe includes, because they are not separate runs.
void remove_included(std::vector<std::string>& recipes) {
  std::set<fs::path> included;
  for (const std::string& recipe : recipes) {
    for (const FileEntry& entry : read_config_file(recipe)) {
      if (entry.file != recipe) included.insert(fs::weakly_canonical(entry.file));
    }
  }
  std::erase_if(recipes, [&](const std::string& recipe) { return included.contains(fs::weakly_canonical(recipe)); });
}

SweepFile sweep_of_folder(const std::string& path) {
  std::vector<std::string> recipes;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && name.ends_with(".toml") && !name.ends_with(kSharedFile)) {
        recipes.push_back(entry.path().lexically_normal().string());
      }
    }
    remove_included(recipes);
  } catch (const fs::filesystem_error& error) {
    throw UsageError(path, fmt::format("cannot be read: {}", error.code().message()));
  }
  if (recipes.empty()) throw UsageError(path, "contains no recipe", "Name a folder with *.toml files");
  std::ranges::sort(recipes);
  const fs::path folder = fs::path(path).lexically_normal();
  const fs::path full = fs::absolute(folder / ".").lexically_normal().parent_path();  // without a slash at the end
  SweepFile sweep{.path = path, .title = full.filename().string(), .lists_recipes = true};
  sweep.recipes = named_below(folder, recipes);
  return sweep;
}

}  // namespace

SweepFile parse_sweep(const std::string& text, const std::string& path, Groups groups) {
  return SweepReader(path, groups).read(parse_toml(text, path));
}

SweepFile read_sweep(const std::string& path, Groups groups) {
  std::error_code none;
  if (fs::is_directory(path, none)) return sweep_of_folder(path);
  return parse_sweep(read_config_text(path, "Name a sweep file (TOML), or a folder of recipes"), path, groups);
}

}  // namespace tessera
