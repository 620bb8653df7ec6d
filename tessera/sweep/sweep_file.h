// Reads a sweep: a TOML file, or a folder of recipes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/settings/setting.h"

namespace tessera {

// A value of a setting in a sweep.
struct SweepValue {
  const Setting* setting = nullptr;
  SettingValue value;    // checked; if is_rule, the text of the rule
  bool is_rule = false;  // the value is a rule: an expression over the settings of the run (expression.h)
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
  std::string path;  // empty: no recipe
  // The file's name without ".toml". For the files of a folder, the name includes the subfolders below this folder. For
  // the files of the list `recipes`, it includes the subfolders below the deepest folder that contains all these files.
  std::string name;
};

// A table [[run]].
struct SweepEntry {
  std::string where;     // "sweep.toml:12: [[run]]"
  SweepRecipe recipe{};  // empty: the sweep's base
  std::string name{};    // a template, like SweepFile::name; empty: SweepFile::name applies
  std::vector<SweepValue> values{};
};

// A table [[exclude]].
struct SweepExclusion {
  std::string where;
  std::vector<SweepValue> values;  // the sweep leaves out each combination of the matrix that has all these values
};

struct SweepFile {
  std::string path;                    // of the sweep file or the folder, as given
  std::string title;                   // the file's name without ".toml", or the folder's name
  std::vector<SweepRecipe> recipes{};  // at least one; an empty recipe if the sweep names none
  bool lists_recipes = false;          // the recipes come from a folder or from the list `recipes`, not from `base`
  // Templates with {recipe} and settings such as {nproc}. output_dir may also contain {name}. Empty: the defaults of
  // expand().
  std::string name{}, output_dir{};
  int64_t repeats = 1;
  std::vector<SweepValue> settings{};  // [settings], for all runs
  std::vector<SweepAxis> axes{};       // [matrix], in the order of the file
  std::vector<SweepEntry> entries{};
  std::vector<SweepExclusion> exclusions{};
};

// Reads the file or folder `path`. `groups`: the groups of settings that a run accepts. The recipes of a folder are the
// *.toml files in this folder and in all folders below it. Files that another recipe includes, and files whose names
// end with "base.toml", are no recipes. Throws UsageError, which names the place in the file.
SweepFile read_sweep(const std::string& path, Groups groups);

// Parses the TOML text of the sweep file `path`. Paths of recipes are relative to the folder of `path`.
SweepFile parse_sweep(const std::string& text, const std::string& path, Groups groups);

}  // namespace tessera
