#include "tessera/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tessera/data/bpe_trainer.h"
#include "tessera/session/evaluation.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A folder with the config.json and the tokenizer.json of a small model, and settings that draw its weights.
class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    std::string name = fs::temp_directory_path() / "tessera-session-XXXXXX";
    folder_ = mkdtemp(name.data());
    const std::vector<std::string_view> texts{"ab ab ab"};
    write_file_atomically(folder_ / "tokenizer.json", train_bpe_tokenizer(texts, {.vocab_size = 261}));
    write_file_atomically(folder_ / "config.json",
                          R"({"model_type": "bloom", "vocab_size": 264, "hidden_size": 8, "n_layer": 2, "n_head": 2,
                              "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})");
    settings_.model = folder_;
    settings_.init = Settings::Init::random;
    settings_.device = Settings::DeviceChoice::cpu;
    settings_.precision = Settings::Precision::fp32;
    settings_.threads = 1;
  }
  ~SessionTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
  Settings settings_;
  std::string notes_;
  Console console_{{}, {{}, [this](std::string_view text) { notes_ += text; }, {}}};
};

WorkBounds evaluation_of(int64_t num_tokens) {
  WorkBounds work;
  work.evaluation = {num_tokens, 1, num_tokens};
  return work;
}

TEST_F(SessionTest, StepsInOrderGiveAnEngineThatEvaluates) {
  Session session(settings_, nullptr, console_);
  session.read_model();
  EXPECT_EQ(session.config().hidden_size, 8);
  EXPECT_EQ(session.config().eos_token_id, 2);
  session.agree({{"data", "a"}});
  session.check_work([](const Settings&) { return evaluation_of(4); });
  EXPECT_EQ(session.worker().device().ledger().current(Category::parameters), 0);
  Engine& engine = session.make_engine();
  EXPECT_GT(session.worker().device().ledger().current(Category::parameters), 0);
  session.prepare();
  session.load_weights();
  Dataset data;
  data.samples = {{{4, 5, 6, 7}, {kNoTarget, 5, 6, 7}}};
  const auto loss = evaluate_loss(engine, session.world(), data, 1, console_);
  EXPECT_NEAR(loss->loss, std::log(264.0), 0.5);
  session.note_start();
  EXPECT_THAT(notes_, HasSubstr("Computing in fp32 on the CPU"));
}

// The check needs no memory itself, and comes before the engine.
TEST_F(SessionTest, RefusesWorkThatDoesNotFit) {
  settings_.model = "llama-3.1-70b";
  settings_.tokenizer = folder_;
  Session session(settings_, nullptr, console_);
  session.read_model();
  EXPECT_THROW(session.check_work([](const Settings&) { return evaluation_of(1000); }), OutOfMemoryError);
  EXPECT_EQ(session.worker().device().ledger().current_total(), 0);
}

TEST_F(SessionTest, AFailureOfMemoryKeepsItsReason) {
  Session session(settings_, nullptr, console_);
  session.read_model();
  session.check_work([](const Settings&) { return evaluation_of(4); });
  const auto fail = [] { throw OutOfMemoryError("device", "12 bytes are missing", ""); };
  const auto text_of = [&] {
    try {
      session.within_memory(fail);
    } catch (const OutOfMemoryError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_of(), HasSubstr("12 bytes are missing"));
}

}  // namespace
}  // namespace tessera
