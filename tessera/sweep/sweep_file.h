// Reads a sweep: a TOML file, or a folder of recipes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/settings/settings.h"

namespace tessera {

// A value of a setting in a sweep.
struct SweepValue {
  const Setting* setting = nullptr;
  SettingValue value;    // checked; for a rule, its text
  bool is_rule = false;  // an expression over the settings of the run (expression.h)
  std::string where;     // "sweep.toml:7: matrix.nproc"
  bool operator==(const SweepValue& other) const { return setting == other.setting && value == other.value; }
};

// A setting of [matrix] with its values.
struct SweepAxis {
  const Setting* setting = nullptr;
  std::string where;
  std::vector<SweepValue> values;  // at least one
};

// A recipe: a configuration file of `tessera train`.
struct SweepRecipe {
  std::string path;  // empty: none
  // The file's name without ".toml". If the sweep is a folder, the name includes the subfolders below that folder. If
  // the sweep lists `recipes`, the name includes the subfolders below the deepest folder that contains all recipes.
  std::string name;
};

// A table [[run]].
struct SweepEntry {
  std::string where;     // "sweep.toml:12: [[run]]"
  SweepRecipe recipe{};  // empty: the sweep's base
  std::string name{};    // a template, as SweepFile::name; empty: SweepFile::name applies
  std::vector<SweepValue> values{};
};

// A table [[exclude]].
struct SweepExclusion {
  std::string where;
  std::vector<SweepValue> values;  // a combination of the matrix with all these values is left out
};

struct SweepFile {
  std::string path;                    // as given
  std::string title;                   // the file's name without ".toml", or the folder's name
  std::vector<SweepRecipe> recipes{};  // at least one; an empty recipe if the sweep names none
  bool lists_recipes = false;          // the recipes are from a folder or from `recipes`, not from `base`
  std::string name{}, output_dir{};    // templates with {setting}, {recipe} and {name}; empty: the defaults of expand()
  int64_t repeats = 1;
  std::vector<SweepValue> settings{};  // [settings], for all runs
  std::vector<SweepAxis> axes{};       // [matrix], in the order of the file
  std::vector<SweepEntry> entries{};
  std::vector<SweepExclusion> exclusions{};
};

// Reads the file or folder `path`. `groups` are the settings that a run takes. A folder is a sweep of its *.toml files,
// including those in folders below it, except files that another recipe includes and files whose names end with
// "base.toml". Throws UsageError with file and line.
SweepFile read_sweep(const std::string& path, Groups groups);

// Parses the TOML text of the sweep file `path`. Paths of recipes are relative to the folder of `path`.
SweepFile parse_sweep(const std::string& text, const std::string& path, Groups groups);

}  // namespace tessera
