#include "tessera/sweep/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/closest_word.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/sweep/expression.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRuns = 10000;

// A run before its rules (values that are expressions) are evaluated.
struct Draft {
  const SweepRecipe* recipe;
  std::string where;  // for errors: the place of the run's [[run]]; without a [[run]], the sweep's path
  std::string name_template;
  // One value per setting: from a flag, otherwise from [matrix] or [[run]], otherwise from the sweep's [settings].
  std::vector<SweepValue> values;
  int64_t repeat = 0;
};

void put(std::vector<SweepValue>& values, const SweepValue& value) {
  const auto it = std::ranges::find(values, value.setting, &SweepValue::setting);
  if (it == values.end()) {
    values.push_back(value);
  } else {
    *it = value;
  }
}

const SweepValue* find_value(const std::vector<SweepValue>& values, const Setting* setting) {
  const auto it = std::ranges::find(values, setting, &SweepValue::setting);
  return it == values.end() ? nullptr : &*it;
}

// The value as a part of a name.
std::string name_text(const SettingValue& value) {
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  return texts ? joined(*texts, "+") : plain_text(value);
}

// Appends to `words` the flag that gives `setting` this value.
void add_flag(const Setting& setting, const SettingValue& value, std::vector<std::string>& words) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    words.push_back(*flag ? setting.flag() : "--no-" + dashed(setting.name));
    return;
  }
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& each : *texts) add_flag(setting, each, words);
    return;
  }
  const std::string text = plain_text(value);
  if (text.empty() || text.starts_with("-")) {
    words.push_back(setting.flag() + "=" + text);
  } else {
    words.push_back(setting.flag());
    words.push_back(text);
  }
}

std::vector<std::string> words_of(const std::string& recipe, const std::vector<SweepValue>& values) {
  std::vector<std::string> words;
  if (!recipe.empty()) words.push_back(recipe);
  for (const SweepValue& value : values) {
    if (!value.is_rule) add_flag(*value.setting, value.value, words);
  }
  return words;
}

// Keeps letters, digits and a few signs that need no quotes in a shell. Other characters become '-'.
std::string as_file_name(const std::string& text) {
  std::string name = text;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("_.,=+-").find(c) == std::string_view::npos)
      c = '-';
  }
  return name;
}

class Expansion {
 public:
  Expansion(const SweepFile& sweep, const RunFlags& flags, const TrainCommand& train) : sweep_(sweep), train_(train) {
    output_template_ = sweep.output_dir;
    for (const auto& [setting, text] : flags) {
      if (setting->name == "output_dir") {
        output_template_ = text;
        continue;
      }
      for (const SweepAxis& axis : sweep.axes) {
        if (axis.setting != setting) continue;
        throw UsageError(setting->flag(), "contradicts " + axis.where,
                         "Leave it out, or change the list in the sweep file");
      }
      const bool is_rule = setting->type == SettingType::integer && !std::all_of(text.begin(), text.end(), [](char c) {
                             return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-';
                           });
      const SettingValue value = is_rule ? SettingValue(text) : parse_value(*setting, text, setting->flag());
      const auto earlier = std::ranges::find(flags_, setting, &SweepValue::setting);
      if (setting->type == SettingType::list && earlier != flags_.end()) {  // one more word of the list
        std::vector<std::string> texts = texts_of(earlier->value);
        texts.push_back(text);
        earlier->value = checked_value(*setting, texts, setting->flag());
        continue;
      }
      flags_.push_back({setting, value, is_rule, setting->flag()});
    }
    if (!output_template_.empty() && output_template_.find('{') == std::string::npos) {
      output_template_ = (fs::path(output_template_) / "{name}").string();
    }
  }

  std::vector<SweepRun> all() {
    draft_runs();
    for (const Draft& draft : drafts_) finish_values(draft);
    find_differing();
    std::vector<SweepRun> runs;
    for (size_t i = 0; i < drafts_.size(); ++i) runs.push_back(complete(drafts_[i], values_[i]));
    refuse_shared_folders(runs);
    return runs;
  }

 private:
  void draft_runs() {
    const bool has_product = !sweep_.axes.empty() || sweep_.lists_recipes || sweep_.entries.empty();
    for (const SweepRecipe& recipe : sweep_.recipes) {
      if (has_product) add_product(recipe);
    }
    for (size_t i = 0; i < sweep_.exclusions.size(); ++i) {
      if (fitting_.contains(i)) continue;
      throw UsageError(sweep_.exclusions[i].where, "matches no combination of the matrix",
                       "Use settings and values of [matrix]");
    }
    for (const SweepEntry& entry : sweep_.entries) {
      const SweepRecipe& recipe = entry.recipe.path.empty() ? sweep_.recipes[0] : entry.recipe;
      add(recipe, entry.where, entry.name, entry.values);
    }
    if (drafts_.empty()) {
      throw UsageError(sweep_.path, "exclude removes every run of the matrix",
                       "Remove a table of exclude, or add values to [matrix]");
    }
  }

  // Adds a run for each combination of the matrix that is not excluded. `digits` has one index for each setting of
  // [matrix]: the place of a value in the setting's list. The indices count up like the digits of a number: the last
  // one changes fastest.
  void add_product(const SweepRecipe& recipe) {
    std::vector<size_t> digits(sweep_.axes.size(), 0);
    for (;;) {
      std::vector<SweepValue> combination;
      for (size_t i = 0; i < digits.size(); ++i) combination.push_back(sweep_.axes[i].values[digits[i]]);
      if (!is_excluded(combination)) add(recipe, sweep_.path, "", combination);
      size_t i = digits.size();
      while (i > 0 && ++digits[i - 1] == sweep_.axes[i - 1].values.size()) digits[--i] = 0;
      if (i == 0) return;
    }
  }

  bool is_excluded(const std::vector<SweepValue>& combination) {
    bool excluded = false;
    for (size_t i = 0; i < sweep_.exclusions.size(); ++i) {
      const bool fits = std::ranges::all_of(sweep_.exclusions[i].values, [&](const SweepValue& value) {
        return std::ranges::find(combination, value) != combination.end();
      });
      if (fits) fitting_.insert(i);
      excluded |= fits;
    }
    return excluded;
  }

  void add(const SweepRecipe& recipe, const std::string& where, const std::string& name,
           const std::vector<SweepValue>& own) {
    Draft draft{&recipe, where, name.empty() ? sweep_.name : name, sweep_.settings};
    for (const SweepValue& value : own) put(draft.values, value);
    for (const SweepValue& value : flags_) put(draft.values, value);
    const bool sets_seed = std::ranges::any_of(own, [](const auto& value) { return value.setting->name == "seed"; });
    if (sweep_.repeats > 1 && sets_seed) {
      throw UsageError(where, "sets seed, but repeats also sets the seed of each run", "Remove seed or repeats");
    }
    for (draft.repeat = 0; draft.repeat < sweep_.repeats; ++draft.repeat) {
      if (drafts_.size() == kMostRuns) {
        throw UsageError(sweep_.path, fmt::format("has more than {} runs", kMostRuns), "Divide it into several files");
      }
      drafts_.push_back(draft);
    }
  }

  // Returns the result of `work`. If `work` throws a UsageError, adds the run's place to the error, unless the error
  // already begins with the path of the sweep or of the recipe.
  template <typename F>
  auto at(const Draft& draft, const F& work) const {
    try {
      return work();
    } catch (const UsageError& error) {
      const std::string_view text = error.what();
      const std::string& recipe = draft.recipe->path;
      if (text.starts_with(sweep_.path) || (!recipe.empty() && text.starts_with(recipe))) throw;
      throw UsageError(draft.where, error.what());
    }
  }

  // Evaluates the rules of a run. If the sweep repeats its runs, also sets the run's seed. Appends the values to
  // values_.
  void finish_values(const Draft& draft) {
    std::vector<SweepValue> values = draft.values;
    const ResolvedSettings resolved = at(draft, [&] { return train_.resolve(words_of(draft.recipe->path, values)); });
    std::set<const Setting*> open;  // the rules that are being evaluated
    const std::function<void(SweepValue&)> settle = [&](SweepValue& value) {
      if (!open.insert(value.setting).second) {
        throw UsageError(value.where, fmt::format("the rule {} depends on itself", quoted_value(value.value)));
      }
      const auto value_of = [&](const std::string& name) { return number(name, value, values, resolved, settle); };
      const int64_t result = evaluate(std::get<std::string>(value.value), value_of, value.where);
      const std::string shown = fmt::format("{}: {} = {}", value.where, quoted_value(value.value), result);
      value.value = checked_value(*value.setting, result, shown);
      value.is_rule = false;
      open.erase(value.setting);
    };
    for (SweepValue& value : values) {
      if (value.is_rule) settle(value);
    }
    if (sweep_.repeats > 1) {
      const Setting* seed = find_setting("seed");
      put(values, {seed, resolved.settings.seed + draft.repeat, false, sweep_.path + ": repeats"});
    }
    recipes_output_dir_.try_emplace(draft.recipe->path, resolved.settings.output_dir);
    ++runs_of_recipe_[draft.recipe->path];
    values_.push_back(std::move(values));
  }

  // The value of the setting `name`, which the rule `asking` uses.
  static int64_t number(const std::string& name, const SweepValue& asking, std::vector<SweepValue>& values,
                        const ResolvedSettings& resolved, const std::function<void(SweepValue&)>& settle) {
    const Setting* setting = find_setting(name);
    if (!setting || !(setting->group & resolved.groups) || setting->type != SettingType::integer) {
      std::vector<std::string> names;
      for (const Setting* known : settings_of(resolved.groups)) {
        if (known->type == SettingType::integer) names.push_back(known->name);
      }
      const std::string what = setting ? "is not a whole number" : "is not a setting";
      std::string remedy = setting ? "" : did_you_mean(name, names);
      if (remedy.empty()) remedy = "A rule may use settings with whole numbers, such as nproc and batch_size";
      throw UsageError(asking.where, fmt::format("{}: {} {}", quoted_value(asking.value), quoted_value(name), what),
                       remedy);
    }
    for (SweepValue& value : values) {
      if (value.setting == setting && value.is_rule) settle(value);
    }
    const SweepValue* given = find_value(values, setting);
    const SettingValue found = given ? given->value : setting->get(resolved.settings);
    const auto* whole = std::get_if<int64_t>(&found);
    if (!whole) {
      throw UsageError(asking.where,
                       fmt::format("{}: {} is the fraction {}", quoted_value(asking.value), name, toml_text(found)),
                       "A rule may use settings with whole numbers, such as nproc and batch_size");
    }
    const int64_t result = *whole;
    return setting->name == "nproc" ? std::max<int64_t>(result, 1) : result;
  }

  // Finds the settings whose values differ between runs. Looks only at the settings of [matrix] and [[run]], and at the
  // seed if runs are repeated.
  void find_differing() {
    std::vector<const Setting*> candidates;
    const auto consider = [&](const Setting* setting) {
      if (std::ranges::find(candidates, setting) == candidates.end()) candidates.push_back(setting);
    };
    for (const SweepAxis& axis : sweep_.axes) consider(axis.setting);
    for (const SweepEntry& entry : sweep_.entries) {
      for (const SweepValue& value : entry.values) consider(value.setting);
    }
    if (sweep_.repeats > 1) consider(find_setting("seed"));
    for (const Setting* setting : candidates) {
      const auto same = [&](const std::vector<SweepValue>& values) {
        const SweepValue *one = find_value(values, setting), *first = find_value(values_[0], setting);
        return one && first && one->value == first->value;
      };
      if (!std::ranges::all_of(values_, same)) differing_.push_back(setting);
    }
    std::set<std::string> recipes;
    for (const Draft& draft : drafts_) recipes.insert(draft.recipe->path);
    recipes_differ_ = recipes.size() > 1;
  }

  std::string default_name(const Draft& draft, const std::vector<SweepValue>& values) const {
    std::string name = recipes_differ_ ? draft.recipe->name : "";
    for (const Setting* setting : differing_) {
      const SweepValue* value = find_value(values, setting);
      if (!value) continue;
      name += fmt::format("{}{}={}", name.empty() ? "" : ",", setting->name, as_file_name(name_text(value->value)));
    }
    if (name.empty()) name = draft.recipe->name.empty() ? sweep_.title : draft.recipe->name;
    return name;
  }

  SweepRun complete(const Draft& draft, std::vector<SweepValue> values) const {
    std::vector<std::string> words = words_of(draft.recipe->path, values);
    const ResolvedSettings before = at(draft, [&] { return train_.resolve(words); });
    std::string name;
    const auto value_of = [&](const std::string& word) -> std::string {
      if (word == "name" && !name.empty()) return name;
      if (word == "recipe") return draft.recipe->name;
      const Setting* setting = find_setting(word);
      if (setting && setting->group & before.groups) {
        return as_file_name(name_text(setting->get(before.settings)));
      }
      throw UsageError(draft.where, fmt::format("{{{}}} is not a setting", word),
                       name.empty() ? "A name may have {recipe} and settings, such as {nproc}"
                                    : "A folder may have {name}, {recipe} and settings, such as {nproc}");
    };
    std::string named = draft.name_template.empty() ? default_name(draft, values)
                                                    : filled_template(draft.name_template, value_of, draft.where);
    const bool adds_seed =
        sweep_.repeats > 1 && !draft.name_template.empty() && draft.name_template.find("{seed}") == std::string::npos;
    if (adds_seed) named += fmt::format(",seed={}", before.settings.seed);
    name = named;
    check_name(name, draft.where);
    SweepRun run{.name = name};
    run.output_dir = folder_of(draft, name, value_of);
    if (run.output_dir != before.settings.output_dir) {
      add_flag(*find_setting("output_dir"), run.output_dir, words);
    }
    run.resolved = at(draft, [&] {
      ResolvedSettings resolved = train_.resolve(words);
      try {
        train_.check(resolved);
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}: run {}", sweep_.path, name), error.what());
      }
      return resolved;
    });
    run.arguments = std::move(words);
    run.arguments.insert(run.arguments.begin(), "train");
    return run;
  }

  std::string folder_of(const Draft& draft, const std::string& name,
                        const std::function<std::string(const std::string&)>& value_of) const {
    if (!output_template_.empty()) return filled_template(output_template_, value_of, draft.where);
    std::string own = recipes_output_dir_.at(draft.recipe->path);
    if (!own.empty() && runs_of_recipe_.at(draft.recipe->path) == 1) return own;
    return (fs::path(own.empty() ? "runs/" + sweep_.title : own) / name).string();
  }

  static void check_name(const std::string& name, const std::string& where) {
    const fs::path path(name);
    const bool leaves = std::ranges::any_of(path, [](const fs::path& part) { return part == ".." || part == "."; });
    if (!name.empty() && !path.is_absolute() && !leaves) return;
    throw UsageError(where, fmt::format("the name of a run is {}", quoted_value(name)),
                     "A name is not empty, does not begin with /, and has no part . or ..");
  }

  void refuse_shared_folders(const std::vector<SweepRun>& runs) const {
    std::map<std::string, size_t> users;
    for (size_t i = 0; i < runs.size(); ++i) {
      std::error_code none;
      const fs::path folder = fs::weakly_canonical(fs::absolute(runs[i].output_dir), none);
      const auto [first, is_new] = users.insert({(folder / "").lexically_normal().string(), i});
      if (is_new) continue;
      throw UsageError(drafts_[i].where,
                       fmt::format("the runs {} and {} have the same folder, {}", runs[first->second].name,
                                   runs[i].name, runs[i].output_dir),
                       "Put settings that differ into name or output_dir, as in \"runs/{recipe}-{nproc}\"");
    }
  }

  const SweepFile& sweep_;
  const TrainCommand& train_;
  std::string output_template_;
  std::vector<SweepValue> flags_;
  std::set<size_t> fitting_;  // the indices of the exclusions that match a combination
  std::vector<Draft> drafts_;
  std::vector<std::vector<SweepValue>> values_;  // the values of each draft, after the evaluation of rules
  std::map<std::string, std::string> recipes_output_dir_;
  std::map<std::string, int> runs_of_recipe_;
  std::vector<const Setting*> differing_;
  bool recipes_differ_ = false;
};

}  // namespace

std::string filled_template(const std::string& text, const std::function<std::string(const std::string&)>& value_of,
                            const std::string& where) {
  std::string filled;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text[i] == '{' ? text.find('}', i) : i;
    if (end == std::string::npos || text[i] == '}') {
      throw UsageError(where, fmt::format("{} has an unmatched brace", quoted_value(text)));
    }
    filled += text[i] == '{' ? value_of(text.substr(i + 1, end - i - 1)) : text.substr(i, 1);
    i = end + 1;
  }
  return filled;
}

std::vector<SweepRun> expand(const SweepFile& sweep, const RunFlags& flags, const TrainCommand& train) {
  return Expansion(sweep, flags, train).all();
}

}  // namespace tessera
