// Tests how models are found in the cache of the Hugging Face hub.
#include "tessera/store/hub_cache.h"

#include <cstdlib>

#include "store_test_util.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Sets the variables of the hub during a test. A null value removes the variable.
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
    setenv("HOME", "/home/me", 1);
  }
  void TearDown() override { SetUp(); }

  // Makes a model in the cache, with these snapshots. Returns its folder.
  fs::path make(const std::string& name, const std::vector<std::string>& snapshots, const std::string& main) {
    const fs::path folder = cache / name;
    fs::create_directories(folder / "snapshots");
    for (const std::string& snapshot : snapshots) fs::create_directories(folder / "snapshots" / snapshot);
    if (!main.empty()) {
      fs::create_directories(folder / "refs");
      put(folder / "refs" / "main", main);
    }
    return folder;
  }
  TemporaryFolder cache;
};

TEST_F(HubCache, ReadsNamesOfTheHub) {
  const HubModel model{"org/model"}, branch{"org/model", "v1.0"};
  for (const auto& [word, expected] : std::initializer_list<std::pair<const char*, HubModel>>{
           {"org/model-1.5_b", {"org/model-1.5_b"}},
           {"gpt2", {"gpt2"}},
           {"gpt2@v1.0", {"gpt2", "v1.0"}},
           {"org/model@main", model},
           {"org/model@", model},
           {"org/model@v1.0", branch},
           {"models--org--model", model},
           {"org/model@refs/pr/1", {"org/model", "refs/pr/1"}},
           {"https://huggingface.co/org/model", model},
           {"https://huggingface.co/org/model/", model},
           {"huggingface.co/org/model?library=transformers", model},
           {"https://huggingface.co/org/model/tree/main", model},
           {"https://huggingface.co/org/model/tree/v1.0", branch},
           {"https://huggingface.co/org/model/tree/refs/pr/1", {"org/model", "refs/pr/1"}},
           {"https://huggingface.co/org/model/blob/v1.0/config.json", branch},
           {"http://hf.co/org/model/resolve/v1.0/config.json", branch},
           {"https://huggingface.co/gpt2", {"gpt2"}},
           {"hf://org/model@v1.0", branch}}) {
    EXPECT_EQ(hub_model(word), expected) << word;
  }
  for (const char* word : {"", "/org/model", "./model", "../model", "a/b/c", "org/", "org/a b", "org/\n", "~/model",
                           "@v1", "org/model@../x", "org/model@a b", "org/model@-x", "org/model@/x", "org@x/model@y",
                           "org/config.json", "https://example.com/org/model"}) {
    EXPECT_EQ(hub_model(word), std::nullopt) << word;
  }
  EXPECT_EQ(download_command(model), "hf download org/model --local-dir models/model, and give model models/model");
  EXPECT_EQ(download_command({"gpt2", "v1.0"}),
            "hf download gpt2 --revision v1.0 --local-dir models/gpt2, and give model models/gpt2");
}

TEST_F(HubCache, FollowsTheVariablesOfTheHub) {
  EXPECT_EQ(hub_cache(), "/home/me/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hub_cache(), "/x/huggingface/hub");
  setenv("HF_HOME", "/h", 1);
  EXPECT_EQ(hub_cache(), "/h/hub");
  setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(hub_cache(), "/c");
}

TEST_F(HubCache, TakesTheSnapshotOfMain) {
  setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const fs::path folder = make("models--org--model", {"aa", "bb"}, "bb\n");
  EXPECT_TRUE(is_hub_folder(folder));
  EXPECT_TRUE(is_hub_folder(folder / ""));
  EXPECT_EQ(hub_snapshot(folder), folder / "snapshots/bb");
  EXPECT_EQ(find_in_hub_cache({"org/model"}), folder / "snapshots/bb");
  EXPECT_EQ(find_in_hub_cache({"org/model", "aa"}), folder / "snapshots/aa");
  EXPECT_EQ(find_in_hub_cache({"org/other"}), std::nullopt);
  fs::create_directories(folder / "refs/pr");
  put(folder / "refs/pr/1", "aa");
  EXPECT_EQ(find_in_hub_cache({"org/model", "pr/1"}), folder / "snapshots/aa");
  EXPECT_EQ(name_of_snapshot(folder / "snapshots/bb"), "org/model");
  EXPECT_EQ(name_of_snapshot(cache.path()), std::nullopt);
  EXPECT_EQ(hub_snapshot(make("models--one", {"aa"}, "")), cache / "models--one" / "snapshots/aa");
}

TEST_F(HubCache, AmbiguousAndIncompleteModelsAreErrors) {
  const auto refusal = [&](const fs::path& folder) { return error_of<InputError>([&] { hub_snapshot(folder); }); };
  EXPECT_THAT(refusal(make("models--org--two", {"bb", "aa"}, "")),
              AllOf(HasSubstr("has 2 snapshots"), HasSubstr("two/snapshots/aa, "), HasSubstr("two/snapshots/bb")));
  EXPECT_THAT(refusal(make("models--org--none", {}, "aa")),
              AllOf(HasSubstr("has no snapshot"), HasSubstr("hf download org/none --local-dir models/none")));
  EXPECT_THAT(error_of<InputError>([&] { hub_snapshot(make("models--org--one", {"aa"}, "aa"), "v2"); }),
              AllOf(HasSubstr("has no snapshot of the revision v2"),
                    HasSubstr("hf download org/one --revision v2 --local-dir models/one"), HasSubstr("snapshots/aa")));
  EXPECT_THAT(refusal(make("models--org--lost", {"aa"}, "bb")),
              AllOf(HasSubstr("refs/main: names the snapshot bb, which does not exist"), HasSubstr("snapshots/aa")));
}

}  // namespace
}  // namespace tessera
