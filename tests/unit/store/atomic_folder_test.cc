// Tests that files and folders appear completely or not at all.
#include "tessera/store/atomic_folder.h"

#include "kill_at_syscall.h"
#include "store_test_util.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/store/process.h"
#include "tessera/store/replaceable.h"
#include "tessera/store/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

int num_entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

const WhyKept none_stays = [](const fs::path&) { return ""; };

TEST(AtomicFolder, AppearsAtCommit) {
  TemporaryFolder parent;
  {
    AtomicFolder folder(parent / "deep/model/", none_stays);
    folder.write_text("config.json", "{}");
    EXPECT_FALSE(fs::exists(parent / "deep/model"));
    folder.commit();
  }
  EXPECT_EQ(contents(parent / "deep/model/config.json"), "{}");
  EXPECT_EQ(num_entries(parent / "deep"), 1);
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  TemporaryFolder parent;
  { AtomicFolder(parent / "model", none_stays).write_text("config.json", "{}"); }
  EXPECT_EQ(num_entries(parent.path()), 0);
}

TEST(AtomicFolder, ReplacesAnEarlierVersionCompletely) {
  TemporaryFolder parent;
  fs::create_directory(parent / "model");
  put(parent / "model/config.json", "old");
  put(parent / "model/vocab.json", "old");
  AtomicFolder folder(parent / "model", none_stays);
  folder.write_text("config.json", "new");
  EXPECT_EQ(contents(parent / "model/config.json"), "old");
  folder.commit();
  EXPECT_EQ(contents(parent / "model/config.json"), "new");
  EXPECT_FALSE(fs::exists(parent / "model/vocab.json"));
  EXPECT_EQ(num_entries(parent.path()), 1);
}

TEST(AtomicFolder, RefusesToReplaceOtherThings) {
  TemporaryFolder parent;
  const auto refusal = [&](const char* name) {
    return error_of<UsageError>([&] { AtomicFolder folder(parent / name, [](auto&) { return "is old"; }); });
  };
  put(parent / "file", "");
  EXPECT_THAT(refusal("file"), HasSubstr("is not a folder"));
  fs::create_directories(parent / "home/projects");
  EXPECT_THAT(refusal("home"), HasSubstr("home: exists and is old, so it is not replaced"));
  fs::create_directory(parent / "empty");
  EXPECT_EQ(refusal("empty"), "");
  EXPECT_EQ(num_entries(parent.path()), 3);
}

// A model folder and a checkpoint that Tessera wrote may be replaced, until they get a file of anybody else.
TEST(Replaceable, NothingThatTesseraDidNotWrite) {
  TemporaryFolder parent;
  const auto reset = [&](const char* writer) {
    fs::remove_all(parent / "model");
    fs::create_directories(parent / "model/additional_chat_templates");
    for (const char* name : {"config.json", "tokenizer.json", "merges.txt", "additional_chat_templates/tool.jinja"}) {
      put(parent / "model" / name, "{}");
    }
    SafetensorsWriter(parent / "model/model.safetensors", {}, {{"written_by", writer}}).finish();
  };
  reset("tessera");
  EXPECT_EQ(why_no_saved_model(parent / "model"), "");
  for (const char* name : {"notes.md", "README.md", "pytorch_model.bin", "eval.json", ".hidden", "optimizer.pt",
                           "additional_chat_templates/notes.md", "model.safetensors.bak"}) {
    put(parent / "model" / name, "");
    EXPECT_EQ(why_no_saved_model(parent / "model"),
              "contains \"" + std::string(name) + "\", which is not a file of a saved model");
    fs::remove(parent / "model" / name);
  }
  for (const char* name : {"projects", "vocab.json", "model-00001-of-00002.safetensors"}) {
    fs::create_directory(parent / "model" / name);
    EXPECT_THAT(why_no_saved_model(parent / "model"), HasSubstr(name));
    fs::remove(parent / "model" / name);
  }
  for (const char* name : {"manifest.json", "trainer_state.json"}) {
    put(parent / "model" / name, "");
    EXPECT_THAT(why_no_saved_model(parent / "model"), HasSubstr("is a checkpoint"));
    fs::remove(parent / "model" / name);
  }
  reset("transformers");
  EXPECT_THAT(why_no_saved_model(parent / "model"), HasSubstr("contains \"model.safetensors\""));
  put(parent / "model/model.safetensors", "cut short");
  EXPECT_THAT(why_no_saved_model(parent / "model"), HasSubstr("contains \"model.safetensors\""));
  fs::remove(parent / "model/model.safetensors");
  EXPECT_THAT(why_no_saved_model(parent / "model"), HasSubstr("has no weights"));  // a tokenizer's folder

  const auto world = make_self_communicator();
  write_checkpoint(parent.path(), 7, *world, [](CheckpointPart& part) { part.add_text("trainer_state.json", "{}"); });
  const fs::path checkpoint = checkpoint_folder(parent.path(), 7);
  EXPECT_EQ(why_no_own_checkpoint(checkpoint), "");
  put(checkpoint / "notes.md", "");
  EXPECT_THAT(why_no_own_checkpoint(checkpoint), HasSubstr("contains \"notes.md\""));
  put(checkpoint / "manifest.json", "{");  // damaged: the names of the files decide
  EXPECT_THAT(why_no_own_checkpoint(checkpoint), HasSubstr("contains \"notes.md\""));
  fs::remove(checkpoint / "notes.md");
  EXPECT_EQ(why_no_own_checkpoint(checkpoint), "");
}

TEST(AtomicFolder, UnwritableParentIsAnError) {
  TemporaryFolder parent;
  put(parent / "file", "");
  EXPECT_THAT(error_of<RunError>([&] { AtomicFolder folder(parent / "file/model", none_stays); }),
              HasSubstr("cannot write"));
}

TEST(AtomicFile, ReplacesTheText) {
  TemporaryFolder parent;
  write_file_atomically(parent / "summary.json", "1");
  write_file_atomically(parent / "summary.json", "2");
  EXPECT_EQ(contents(parent / "summary.json"), "2");
  EXPECT_EQ(num_entries(parent.path()), 1);
  EXPECT_THAT(error_of<RunError>([&] { write_file_atomically(parent / "none/summary.json", ""); }), HasSubstr("none"));
}

// Returns the text of the ProcessIdentity of a process that ran on this host and has already ended.
std::string name_of_dead_process() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    const std::string name = ProcessIdentity::self().to_string();
    _exit(write(ends[1], name.data(), name.size()) < 0);
  }
  waitpid(child, nullptr, 0);
  char text[512];
  const ssize_t bytes = read(ends[0], text, sizeof text);
  close(ends[0]);
  close(ends[1]);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(0, bytes)));
}

TEST(StaleTemporaries, OnlyFilesOfDeadProcessesAreRemoved) {
  TemporaryFolder parent;
  const std::string dead = name_of_dead_process();
  ASSERT_TRUE(ProcessIdentity::parse(dead).has_value()) << dead;
  auto other_host = *ProcessIdentity::parse(dead);
  other_host.host += "-2";
  fs::create_directory(parent / ("model.tmp-" + dead));
  put(parent / ("model.tmp-" + dead) / "half", "");
  put(parent / ("summary.json.tmp-" + dead), "");
  put(parent / ("summary.json.tmp-" + other_host.to_string()), "");
  put(parent / ("summary.json.tmp-" + ProcessIdentity::self().to_string()), "");
  put(parent / "notes.tmp-old", "");
  remove_stale_temporaries(parent.path());
  EXPECT_EQ(num_entries(parent.path()), 3);
  EXPECT_FALSE(fs::exists(parent / ("model.tmp-" + dead)));
  EXPECT_FALSE(fs::exists(parent / ("summary.json.tmp-" + dead)));
  remove_stale_temporaries(parent / "none");
}

TEST(StaleTemporaries, AFolderWhoseReplacementFailedIsRestored) {
  TemporaryFolder parent;
  const std::string dead = name_of_dead_process();
  fs::create_directory(parent / ("model.old-" + dead));
  put(parent / ("model.old-" + dead) / "config.json", "old");
  remove_stale_temporaries(parent.path());
  EXPECT_EQ(contents(parent / "model/config.json"), "old");

  fs::create_directory(parent / ("model.old-" + dead));  // the process died after `model` had been replaced
  remove_stale_temporaries(parent.path());
  EXPECT_EQ(num_entries(parent.path()), 1);
}

TEST(MovingAside, SurvivesDeathAtAnySystemCall) {
  for (int n = 0;; ++n) {
    TemporaryFolder parent(memory_folder());
    fs::create_directory(parent / "old");
    put(parent / "old/which", "old");
    fs::create_directory(parent / "new");
    put(parent / "new/which", "new");
    const auto outcome = kill_at_syscall(n, [&] { replace_by_moving_aside(parent / "new", parent / "old"); });
    if (outcome == KillOutcome::not_permitted) GTEST_SKIP() << "this process cannot trace a child";
    remove_stale_temporaries(parent.path());
    const std::string which = contents(parent / "old/which");
    EXPECT_TRUE(which == "old" || which == "new") << n << " " << which;
    if (outcome == KillOutcome::finished) {
      EXPECT_EQ(which, "new");
      EXPECT_GE(n, 2);
      break;
    }
  }
}

}  // namespace
}  // namespace tessera
