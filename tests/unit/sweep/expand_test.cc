#include "tessera/sweep/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Reads command-line words as `tessera train` does. A word is the path of a configuration file, a flag, or the value of
// the flag before it. Flags of boolean settings have no value.
ResolvedSettings resolve_words(const std::vector<std::string>& words) {
  SettingSources sources;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) {
      sources.file = read_config_file(words[i]);
      continue;
    }
    const std::string name = words[i].substr(2);
    const bool is_negated = name.starts_with("no-");
    const Setting* setting = find_setting(is_negated ? name.substr(3) : name);
    if (!setting) throw UsageError(words[i], "unknown flag");
    const bool is_flag = setting->type == SettingType::boolean;
    sources.flags.emplace_back(setting, is_flag ? (is_negated ? "false" : "true") : words[++i]);
  }
  return resolve(sources, kAllGroups, "train", {"train"});
}

class Sweep : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sweep-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    previous_ = fs::current_path();
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(previous_);
    fs::remove_all(folder_);
  }

  static void write(const fs::path& path, const std::string& text) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  static std::vector<SweepRun> expanded(const std::string& text, const RunFlags& flags = {}) {
    const TrainCommand train{.resolve = resolve_words, .check = check_consistent};
    return expand(parse_sweep(text, "s.toml", kAllGroups & ~kSweep), flags, train);
  }

  static std::string error_of(const std::string& text, const RunFlags& flags = {}) {
    try {
      return "no error, " + std::to_string(expanded(text, flags).size()) + " runs";
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  static std::vector<std::string> names(const std::vector<SweepRun>& runs) {
    std::vector<std::string> result;
    for (const SweepRun& run : runs) result.push_back(run.name);
    return result;
  }

  fs::path folder_, previous_;
};

TEST_F(Sweep, ProductInTheOrderOfTheFile) {
  write("base.toml", "model = \"m\"\noutput_dir = \"runs/b\"\n");
  const auto runs =
      expanded("base = \"base.toml\"\n[matrix]\nstrategy = [\"no_shard\", \"full_shard\"]\nnproc = [2, 4]\n");
  EXPECT_THAT(names(runs), ElementsAre("strategy=no_shard,nproc=2", "strategy=no_shard,nproc=4",
                                       "strategy=full_shard,nproc=2", "strategy=full_shard,nproc=4"));
  EXPECT_THAT(runs[2].arguments, ElementsAre("train", "base.toml", "--strategy", "full_shard", "--nproc", "2",
                                             "--output-dir", "runs/b/strategy=full_shard,nproc=2"));
  EXPECT_EQ(runs[2].resolved.settings.nproc, 2);
  EXPECT_EQ(runs[2].resolved.settings.output_dir, "runs/b/strategy=full_shard,nproc=2");
}

TEST_F(Sweep, OneRunOfARecipeKeepsItsFolder) {
  write("a.toml", "output_dir = \"runs/mine\"\n");
  const auto runs = expanded("base = \"a.toml\"\n[settings]\nlr = 1e-3\nshuffle = false\n");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_THAT(runs[0].arguments, ElementsAre("train", "a.toml", "--lr", "0.001", "--no-shuffle"));
  EXPECT_EQ(runs[0].output_dir, "runs/mine");
  EXPECT_EQ(runs[0].name, "a");
}

TEST_F(Sweep, RulesUseTheSettingsOfTheRun) {
  write("a.toml", "batch_size = 6\n");
  const std::string rules =
      "base = \"a.toml\"\n[settings]\ntrain-size = \"500 * nproc\"\nnum_layers = \"3 * nproc / 2\"\n"
      "grad_accum = \"num_layers + batch_size\"\n[matrix]\nnproc = [2, 4]\n";
  const auto runs = expanded(rules);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_THAT(names(runs), ElementsAre("nproc=2", "nproc=4"));
  EXPECT_EQ(runs[1].resolved.settings.train_size, 2000);
  EXPECT_EQ(runs[1].resolved.settings.num_layers, 6);
  EXPECT_EQ(runs[1].resolved.settings.grad_accum, 12);
  const auto small = expanded(rules, {{find_setting("train_size"), "32"}, {find_setting("batch_size"), "nproc * 2"}});
  EXPECT_EQ(small[1].resolved.settings.train_size, 32);
  EXPECT_EQ(small[1].resolved.settings.batch_size, 8);
  EXPECT_EQ(small[1].resolved.settings.grad_accum, 14);
  // By default, nproc is 1.
  EXPECT_EQ(expanded("[settings]\ntrain_size = \"7 * nproc\"\n")[0].resolved.settings.train_size, 7);
}

TEST_F(Sweep, ErrorsOfRules) {
  EXPECT_THAT(error_of("[settings]\ntrain_size = \"500 * nprocs\"\n"),
              HasSubstr("s.toml:2: settings.train_size: \"500 * nprocs\": \"nprocs\" is not a setting. Did you mean "
                        "\"nproc\"?"));
  EXPECT_THAT(error_of("[settings]\ntrain_size = \"lr * 2\"\n"), HasSubstr("\"lr\" is not a whole number"));
  EXPECT_THAT(error_of("[settings]\ntrain_size = \"eval_size\"\neval_size = \"train_size + 1\"\n"),
              HasSubstr("depends on itself"));
  EXPECT_THAT(error_of("[settings]\ngrad_accum = \"0 - 1\"\n"), HasSubstr("\"0 - 1\" = -1: must be at least 1"));
  EXPECT_THAT(error_of("[settings]\nbatch_size = \"9 / 2\"\n"), HasSubstr("9 / 2 is not a whole number"));
}

TEST_F(Sweep, EntriesAndExclusions) {
  write("a.toml", "");
  write("b.toml", "");
  const auto runs = expanded(
      "base = \"a.toml\"\nexclude = [{nproc = 1, strategy = \"full_shard\"}]\n"
      "[matrix]\nnproc = [1, 2]\nstrategy = [\"no_shard\", \"full_shard\"]\n"
      "[[run]]\nname = \"large\"\nbatch_size = 16\n[[run]]\nrecipe = \"b.toml\"\nname = \"other-{seed}\"\n");
  EXPECT_THAT(names(runs), ElementsAre("a,nproc=1,strategy=no_shard", "a,nproc=2,strategy=no_shard",
                                       "a,nproc=2,strategy=full_shard", "large", "other-42"));
  EXPECT_EQ(runs[3].output_dir, "runs/s/large");
  EXPECT_THAT(error_of("exclude = [{nproc = 3}]\n[matrix]\nnproc = [1, 2]\n"),
              HasSubstr("s.toml:1: exclude: matches no combination of the matrix"));
  EXPECT_THAT(error_of("exclude = [{nproc = 1}]\n[matrix]\nnproc = [1]\n"), HasSubstr("exclude removes every run"));
}

TEST_F(Sweep, NamesFoldersAndRepeats) {
  const auto runs = expanded(
      "repeats = 2\nname = \"{strategy}/{nproc}\"\noutput-dir = \"out/{lr}/{name}\"\n"
      "[settings]\nseed = 5\n[matrix]\nnproc = [1, 2]\n");
  EXPECT_THAT(names(runs),
              ElementsAre("no_shard/1,seed=5", "no_shard/1,seed=6", "no_shard/2,seed=5", "no_shard/2,seed=6"));
  EXPECT_EQ(runs[1].output_dir, "out/5e-05/no_shard/1,seed=6");
  EXPECT_EQ(runs[1].resolved.settings.seed, 6);
  const RunFlags folder = {{find_setting("output_dir"), "elsewhere"}};
  EXPECT_EQ(expanded("[matrix]\nlr = [1, 2]\n", folder)[0].output_dir, "elsewhere/lr=1.0");
  EXPECT_EQ(expanded("[matrix]\ndataset = [\"a/b c.json\", \"d\"]\n")[0].name, "dataset=a-b-c.json");
  EXPECT_THAT(error_of("repeats = 2\n[matrix]\nseed = [1, 2]\n"), HasSubstr("repeats also sets the seed of each run"));
  EXPECT_THAT(error_of("name = \"{nproc\"\n"), HasSubstr("unmatched brace"));
  EXPECT_THAT(error_of("name = \"{ranks}\"\n"), HasSubstr("{ranks} is not a setting"));
  EXPECT_THAT(error_of("name = \"../x\"\n"), HasSubstr("the name of a run is"));
  EXPECT_THAT(error_of("name = \"same\"\n[matrix]\nnproc = [1, 2]\n"),
              HasSubstr("s.toml: the runs same and same have the same folder, runs/s/same. Put settings"));
}

TEST_F(Sweep, FolderOfRecipes) {
  write("all/x/one.toml", "include = \"../shared/part.toml\"\nseed = 1\n");
  write("all/shared/part.toml", "include = \"common.toml\"\nseed = 3\n");
  write("all/shared/common.toml", "seed = 4\n");
  write("all/x/two.toml", "seed = 2\noutput_dir = \"runs/own\"\n");
  write("all/base.toml", "seed = 3\n");
  write("all/x/small_base.toml", "seed = 3\n");
  write("all/README.md", "");
  const TrainCommand train{.resolve = resolve_words, .check = check_consistent};
  for (const char* path : {"all", "all/", "./all/."}) {
    const auto runs = expand(read_sweep(path, kAllGroups), {}, train);
    EXPECT_THAT(names(runs), ElementsAre("x/one", "x/two")) << path;
    EXPECT_EQ(runs[0].output_dir, "runs/all/x/one");
    EXPECT_EQ(runs[1].output_dir, "runs/own");
    EXPECT_EQ(runs[0].arguments[1], "all/x/one.toml");
  }
  const auto globbed = expanded("recipes = [\"all/x/t*.toml\", \"all/base.toml\"]\n");
  EXPECT_THAT(names(globbed), ElementsAre("x/two", "base"));
}

TEST_F(Sweep, ErrorsOfTheFile) {
  write("a.toml", "leraning_rate = 1\n");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[matrix]\nleraning_rate = [1]\n",
       "s.toml:2: matrix.leraning_rate: unknown setting. Did you mean \"learning_rate\"?"},
      {"[settings]\nlearning_rat = 1\n", "s.toml:2: settings.learning_rat: unknown setting. Did you mean"},
      {"[matrix]\nstrategy = [\"fulshard\"]\n", "s.toml:2: matrix.strategy: unknown value"},
      {"[matrix]\n", "s.toml:1: [matrix]: is empty"},
      {"[matrix]\nnproc = []\n", "s.toml:2: matrix.nproc: is an empty list"},
      {"[matrix]\nnproc = 2\n", "must be a list of values. A value for all runs belongs to [settings]"},
      {"[matrix]\nnproc = [2, 2]\n", "matrix.nproc: has 2 twice"},
      {"[matrix]\nlr = [1]\nlearning_rate = [2]\n", "is given twice"},
      {"[matrix]\nlr = [[1]]\n", "must be a text, a number or a boolean"},
      {"lr = 1\n", "s.toml:1: lr: is a setting, and settings of a sweep belong below [settings] or [matrix]"},
      {"matirx = 1\n", "s.toml:1: matirx: unknown key of a sweep. Did you mean \"matrix\"?"},
      {"base = \"none.toml\"\n", "s.toml:1: base: the recipe none.toml does not exist. Paths"},
      {"base = 1\n", "must be a text"},
      {"recipes = [\"n*.toml\"]\n", "s.toml:1: recipes: no recipe matches \"n*.toml\""},
      {"recipes = [\"a.toml\", \"*.toml\"]\n", "a.toml is named twice"},
      {"base = \"a.toml\"\nrecipes = [\"a.toml\"]\n", "has both base and recipes"},
      {"base = \"a.toml\"\n", "a.toml:1: leraning_rate: unknown setting"},
      {"recipes = [\"a.toml\"]\n[[run]]\nlr = 1\n", "s.toml:2: [[run]]: names no recipe"},
      {"[[run]]\nrecipe = \"b.toml\"\n", "s.toml:2: run.recipe: the recipe b.toml does not exist"},
      {"run = [1]\n", "must be a list of tables"},
      {"repeats = 0\n", "repeats: must be a whole number from 1 to 1000"},
      {"[settings]\noutput_dir = \"x\"\n", "belongs to the top level"},
      {"[settings]\neval_steps = 2\n", "eval_dataset"},
      {"name = [\n", "is not TOML"}};
  for (const auto& [text, message] : cases) EXPECT_THAT(error_of(text), HasSubstr(message)) << text;
  EXPECT_THAT(error_of("[matrix]\nnproc = [1, 2]\n", {{find_setting("nproc"), "3"}}),
              HasSubstr("--nproc: contradicts s.toml:2: matrix.nproc"));
}

// Expands matrices of random settings. Checks that the runs are all combinations of the values, each combination once,
// and that each run has the values that its name contains.
TEST_F(Sweep, RandomMatrices) {
  std::mt19937 source(3);
  const std::vector<std::string> settings{"seed", "train_size", "max_steps", "batch_size", "nproc"};
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> keys(settings);
    std::ranges::shuffle(keys, source);
    keys.resize(1 + source() % 3);
    std::string text = "[matrix]\n";
    size_t expected = 1;
    for (const auto& key : keys) {
      const size_t count = 2 + source() % 3;
      expected *= count;
      text += key + " = [";
      for (size_t i = 0; i < count; ++i) text += std::to_string(1 + i) + ", ";
      text += "]\n";
    }
    const auto runs = expanded(text);
    EXPECT_EQ(runs.size(), expected) << text;
    std::set<std::string> different;
    for (const SweepRun& run : runs) {
      different.insert(run.output_dir);
      std::string name;
      for (const auto& key : keys) {
        name += (name.empty() ? "" : ",") + key + "=" + toml_text(find_setting(key)->get(run.resolved.settings));
      }
      EXPECT_EQ(run.name, name);
    }
    EXPECT_EQ(different.size(), expected);
  }
}

}  // namespace
}  // namespace tessera
