// The library as a program sees it: only the public headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <tessera/tessera.h>

namespace {

namespace fs = std::filesystem;
using tessera::Error;
using tessera::ErrorKind;
using tessera::Model;
using tessera::Options;
using tessera::Row;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const std::string kRecipes = std::string(TESSERA_TEST_DIR) + "/../recipes";
const std::string kQuickstart = kRecipes + "/quickstart/model";

class LibraryTest : public testing::Test {
 protected:
  LibraryTest() {
    std::string name = fs::temp_directory_path() / "tessera-library-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~LibraryTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Options of_model() const { return {{"model", kQuickstart}, {"device", "cpu"}, {"threads", 2}}; }
  Options of_run(const std::string& name = "run") const {
    Options options = of_model();
    return options.add({{"output-dir", (folder_ / name).string()},
                        {"max-steps", 3},
                        {"batch-size", 2},
                        {"eval-batch-size", 2},
                        {"max-length", 64},
                        {"learning-rate", 1e-3},
                        {"save-strategy", "no"}});
  }
  // Rows with different lengths.
  static std::vector<Row> rows() {
    std::vector<Row> rows;
    for (int i = 0; i < 8; ++i) {
      rows.push_back(Row::completion("Ada has " + std::string(static_cast<size_t>(i), 'x') + " and ", "a boat"));
    }
    return rows;
  }
  static tessera::Hooks with_rows() {
    tessera::Hooks hooks;
    hooks.rows = rows();
    return hooks;
  }

  fs::path folder_;
};

// The error that `call` throws.
template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorKind::run, "", ""};
}

std::string captured_output(const std::function<void()>& work) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  work();
  const std::string out = testing::internal::GetCapturedStdout();
  return out + testing::internal::GetCapturedStderr();
}

TEST(Version, IsTheOneOfTheHeaders) {
  EXPECT_STREQ(tessera::version(), TESSERA_VERSION_STRING);
  EXPECT_EQ(TESSERA_VERSION_NUMBER,
            10000 * TESSERA_VERSION_MAJOR + 100 * TESSERA_VERSION_MINOR + TESSERA_VERSION_PATCH);
}

TEST_F(LibraryTest, ErrorsHaveKindSubjectAndText) {
  const Error missing = error_of([&] { Model::load((folder_ / "nothing").string()); });
  EXPECT_EQ(missing.kind(), ErrorKind::input);
  EXPECT_THAT(missing.subject(), HasSubstr("nothing"));
  EXPECT_THAT(missing.text(), Not(IsEmpty()));
  EXPECT_EQ(missing.what(), missing.subject() + ": " + missing.text());

  const Error unknown = error_of([&] { tessera::train({{"model", kQuickstart}, {"learning-rat", 1e-3}}); });
  EXPECT_EQ(unknown.kind(), ErrorKind::usage);
  EXPECT_EQ(unknown.subject(), "learning-rat");
  EXPECT_THAT(unknown.text(), HasSubstr("unknown setting. Did you mean"));

  const Error range = error_of([&] { tessera::train({{"model", kQuickstart}, {"learning-rate", -1}}); });
  EXPECT_EQ(range.kind(), ErrorKind::usage);
  EXPECT_EQ(range.subject(), "learning-rate");
  EXPECT_THAT(range.text(), HasSubstr("-1"));

  const Error type = error_of([&] { tessera::train({{"model", kQuickstart}, {"max-steps", "many"}}); });
  EXPECT_EQ(type.subject(), "max-steps");

  const Error foreign = error_of([&] { tessera::train({{"model", kQuickstart}, {"html", "page.html"}}); });
  EXPECT_EQ(foreign.subject(), "html");
  EXPECT_THAT(foreign.text(), HasSubstr("is not a setting of train"));

  const Error absent = error_of([&] { tessera::train({{"model", kQuickstart}}); });
  EXPECT_EQ(absent.subject(), "dataset");
  EXPECT_EQ(absent.text(), "is required by train");

  const Error ranks = error_of([&] {
    Options options = of_run();
    tessera::train(options.set("nproc", 2), with_rows());
  });
  EXPECT_EQ(ranks.kind(), ErrorKind::usage);
  EXPECT_EQ(ranks.subject(), "nproc");
}

TEST_F(LibraryTest, RunsThatDoNotFitAreRefused) {
  const Error error = error_of([&] {
    Options options = of_run();
    tessera::train(options.set("model", "bloom-176b").set("init", "random").set("tokenizer", kQuickstart), with_rows());
  });
  EXPECT_EQ(error.kind(), ErrorKind::memory) << error.what();
  EXPECT_THAT(error.text(), Not(IsEmpty()));
  EXPECT_TRUE(tessera::train(of_run(), with_rows()).finished);  // the library still works
}

TEST_F(LibraryTest, BadRowsAreErrorsOrWarnings) {
  tessera::Hooks hooks;
  std::vector<Row> rows = LibraryTest::rows();
  rows.push_back(Row::tokens({1, 2, 100000}));
  rows.push_back(Row::completion("\xff", "bytes"));
  rows.push_back(Row::json("{\"answer\": "));
  rows.push_back(Row::tokens({1, 2, 3}, {true}));
  hooks.rows = rows;
  Options options = of_run();
  options.set("bad-rows", "stop");
  const Error error = error_of([&] { tessera::train(options, hooks); });
  EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
  EXPECT_EQ(error.subject(), "rows[9]");
  hooks.rows = std::vector<Row>{LibraryTest::rows()[0], rows[8]};
  const Error id = error_of([&] { tessera::train(options, hooks); });
  EXPECT_EQ(id.subject(), "rows[1]");
  EXPECT_THAT(id.text(), HasSubstr("the id 100000 is not in the vocabulary"));

  std::string warnings;
  hooks.rows = rows;
  hooks.log = [&](tessera::LogLevel level, std::string_view text) {
    if (level == tessera::LogLevel::warning) warnings += text;
  };
  Options skipping = of_run();
  skipping.set("bad-rows", "skip").set("max-bad-rows", 0.5);
  const tessera::TrainResult result = tessera::train(skipping, hooks);
  EXPECT_TRUE(result.finished);
  EXPECT_THAT(warnings, HasSubstr("skipped 4 bad rows"));
}

TEST_F(LibraryTest, PrintsNothingUnlessAsked) {
  const std::string output = captured_output([&] {
    tessera::Hooks hooks = with_rows();
    hooks.eval_rows = rows();
    tessera::train(of_run(), hooks);
    Model model(of_model());
    model.generate("Ada", {.max_new_tokens = 3});
    model.evaluate(rows());
    tessera::plan({{"model", kQuickstart}});
    EXPECT_THROW(Model::load("nothing"), Error);
  });
  EXPECT_EQ(output, "");

  std::multiset<tessera::LogLevel> levels;
  tessera::Hooks hooks = with_rows();
  const std::thread::id thread = std::this_thread::get_id();
  hooks.log = [&](tessera::LogLevel level, std::string_view text) {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    EXPECT_FALSE(text.ends_with('\n'));
    levels.insert(level);
  };
  const std::string with_log = captured_output([&] { tessera::train(of_run("with-log"), hooks); });
  EXPECT_EQ(with_log, "");
  EXPECT_GT(levels.count(tessera::LogLevel::note), 0u);
  EXPECT_GT(levels.count(tessera::LogLevel::result), 0u);

  std::string warnings;
  Model model(of_model(), [&](tessera::LogLevel level, std::string_view text) {
    if (level == tessera::LogLevel::warning) warnings += text;
  });
  std::vector<Row> with_fault = rows();
  with_fault.push_back(Row::json("{}"));
  model.evaluate(with_fault, {{"bad-rows", "skip"}, {"max-bad-rows", 0.5}});
  EXPECT_THAT(warnings, HasSubstr("skipped 1 bad row"));
}

TEST_F(LibraryTest, ChangesNoSignalHandler) {
  const auto action_of = [](int signal) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  std::signal(SIGINT, SIG_IGN);
  tessera::train(of_run(), with_rows());
  EXPECT_EQ(action_of(SIGINT), SIG_IGN);
  EXPECT_EQ(action_of(SIGTERM), SIG_DFL);
  EXPECT_EQ(action_of(SIGPIPE), SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

TEST_F(LibraryTest, TrainsOnRowsAndReportsSteps) {
  tessera::Hooks hooks = with_rows();
  hooks.eval_rows = rows();
  std::vector<tessera::StepMetrics> steps;
  std::vector<tessera::Evaluation> evaluations;
  hooks.on_step = [&](const tessera::StepMetrics& step) {
    steps.push_back(step);
    return tessera::Next::proceed;
  };
  hooks.on_evaluation = [&](const tessera::Evaluation& evaluation) { evaluations.push_back(evaluation); };
  Options options = of_run();
  const tessera::TrainResult result = tessera::train(options.set("save-dtype", "fp32"), hooks);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[0].num_steps, 3);
  EXPECT_EQ(steps[0].num_samples, 2);
  EXPECT_TRUE(steps[0].loss && steps[0].gradient_norm && steps[0].updated);
  EXPECT_GT(*steps[0].loss, *steps[2].loss);
  ASSERT_EQ(evaluations.size(), 1u);
  EXPECT_EQ(evaluations[0].num_samples, 8);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.evaluations.size(), 1u);
  EXPECT_EQ(result.evaluations[0].loss, evaluations[0].loss);
  EXPECT_THAT(result.summary_json, HasSubstr("\"train_loss\""));

  // The saved model has the loss that the run measured.
  Model model = Model::load(result.model, {{"device", "cpu"}, {"max-length", 64}, {"eval-batch-size", 2}});
  EXPECT_NEAR(model.evaluate(rows()).loss, evaluations[0].loss, 1e-5);
}

TEST_F(LibraryTest, TheSameRowsInAFileGiveTheSameBits) {
  std::ofstream file(folder_ / "rows.jsonl");
  for (const Row& row : rows()) {
    const auto& content = std::get<Row::Completion>(row.content());
    file << R"({"prompt": ")" << content.prompt << R"(", "completion": ")" << content.completion << "\"}\n";
  }
  file.close();
  const auto losses_of = [&](Options options, tessera::Hooks hooks) {
    std::vector<double> losses;
    hooks.on_step = [&](const tessera::StepMetrics& step) {
      losses.push_back(*step.loss);
      return tessera::Next::proceed;
    };
    tessera::train(options, hooks);
    return losses;
  };
  const auto of_rows = losses_of(of_run("rows"), with_rows());
  Options from_file = of_run("file");
  EXPECT_EQ(losses_of(from_file.set("dataset", (folder_ / "rows.jsonl").string()), {}), of_rows);

  // The cross-entropy as a loss of the program: as a call for all rows, and for one row after the other.
  tessera::Hooks own = with_rows();
  std::set<std::int64_t> seen;
  own.loss = [&](const tessera::LossChunk& chunk) {
    seen.insert(chunk.rows.begin(), chunk.rows.end());
    return chunk.cross_entropy();
  };
  EXPECT_EQ(losses_of(of_run("own"), own), of_rows);
  EXPECT_EQ(seen.size(), 6u);  // 3 steps of 2 samples
  own.loss = [](const tessera::LossChunk& chunk) {
    double sum = 0;
    for (std::int64_t i = 0; i < chunk.num_rows; ++i) sum += chunk.cross_entropy(i, 1);
    return sum;
  };
  EXPECT_EQ(losses_of(of_run("by-row"), own), of_rows);
  // In bf16, the losses are those of the same computation, too.
  own.loss = [](const tessera::LossChunk& chunk) { return chunk.cross_entropy(); };
  Options bf16 = of_run("bf16"), own_bf16 = of_run("own-bf16");
  EXPECT_EQ(losses_of(own_bf16.set("precision", "bf16"), own), losses_of(bf16.set("precision", "bf16"), with_rows()));
}

TEST_F(LibraryTest, ZeroWeightsLearnNothing) {
  tessera::Hooks hooks = with_rows();
  hooks.loss = [](const tessera::LossChunk& chunk) {
    double sum = 0;
    for (std::int64_t i = 0; i < chunk.num_rows; ++i) sum += chunk.cross_entropy(i, 0);
    return sum;
  };
  hooks.on_step = [](const tessera::StepMetrics& step) {
    EXPECT_EQ(*step.loss, 0);
    EXPECT_EQ(*step.gradient_norm, 0);
    return tessera::Next::proceed;
  };
  tessera::train(of_run(), hooks);
}

TEST_F(LibraryTest, CallbacksStopAndFinishRuns) {
  Options options = of_run();
  options.set("save-strategy", "steps").set("save-steps", 100);
  tessera::Hooks hooks = with_rows();
  hooks.on_step = [](const tessera::StepMetrics& step) {
    return step.step == 1 ? tessera::Next::stop : tessera::Next::proceed;
  };
  const tessera::TrainResult stopped = tessera::train(options, hooks);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.steps, 1);
  EXPECT_EQ(stopped.model, "");

  // The same options continue the run. Then it finishes early.
  hooks.rows = rows();
  std::int64_t first = 0;
  hooks.on_step = [&](const tessera::StepMetrics& step) {
    if (first == 0) first = step.step;
    return tessera::Next::finish;
  };
  const tessera::TrainResult finished = tessera::train(options, hooks);
  EXPECT_EQ(first, 2);
  EXPECT_TRUE(finished.finished);
  EXPECT_EQ(finished.steps, 2);
  EXPECT_TRUE(fs::exists(fs::path(finished.model) / "config.json"));

  std::stop_source source;
  tessera::Hooks from_thread = with_rows();
  from_thread.stop = source.get_token();
  std::atomic<bool> has_begun = false;
  std::jthread other([&] {
    while (!has_begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    source.request_stop();
  });
  Options endless = of_run("endless");
  endless.set("max-steps", 1000000).set("stop-on-divergence", false);
  from_thread.on_step = [&](const tessera::StepMetrics&) {
    has_begun = true;
    return tessera::Next::proceed;
  };
  EXPECT_FALSE(tessera::train(endless, from_thread).finished);
}

TEST_F(LibraryTest, ExceptionsOfCallbacksLeaveTheCall) {
  struct OwnFailure {
    int value;
  };
  tessera::Hooks hooks = with_rows();
  hooks.on_step = [](const tessera::StepMetrics&) -> tessera::Next { throw OwnFailure{7}; };
  try {
    tessera::train(of_run(), hooks);
    FAIL();
  } catch (const OwnFailure& failure) {
    EXPECT_EQ(failure.value, 7);
  }
  hooks = with_rows();
  hooks.loss = [](const tessera::LossChunk&) -> double { throw std::runtime_error("of the loss"); };
  EXPECT_THROW(tessera::train(of_run(), hooks), std::runtime_error);
  hooks = with_rows();
  hooks.rows = tessera::Rows([]() -> std::optional<Row> { throw OwnFailure{8}; });
  EXPECT_THROW(tessera::train(of_run(), hooks), OwnFailure);
  EXPECT_TRUE(tessera::train(of_run(), with_rows()).finished);

  Model model(of_model());
  EXPECT_THROW(model.generate("Ada", {.max_new_tokens = 3}, [](std::string_view) -> bool { throw OwnFailure{9}; }),
               OwnFailure);
  EXPECT_EQ(model.generate("Ada", {.max_new_tokens = 3}).ids.size(), 3u);
}

TEST_F(LibraryTest, GeneratesInParts) {
  Model model(of_model());
  const tessera::Generation text = model.generate("Where does Ada live?", {.max_new_tokens = 8});
  EXPECT_EQ(text.ids.size() == 8, text.finish_reason == tessera::FinishReason::length);
  std::string parts;
  const auto add = [&](std::string_view part) {
    parts += part;
    return true;
  };
  EXPECT_EQ(model.generate("Where does Ada live?", {.max_new_tokens = 8}, add).text, text.text);
  EXPECT_EQ(parts, text.text);
  EXPECT_EQ(model.tokenizer().decode(text.ids), text.text);
  const tessera::Generation ended =
      model.generate("Where does Ada live?", {.max_new_tokens = 8}, [](std::string_view) { return false; });
  EXPECT_EQ(ended.finish_reason, tessera::FinishReason::cancelled);
  EXPECT_LT(ended.ids.size(), text.ids.size());

  // Long prompts after short ones, and many at once.
  std::string longer;
  for (int i = 0; i < 700; ++i) longer += "Ada lives in Oslo. ";
  EXPECT_EQ(model.generate(longer, {.max_new_tokens = 2}).ids.size(), 2u);
  const auto several = model.generate(std::vector<std::string>{"Where does Ada live?", "Oslo"}, {.max_new_tokens = 8});
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0].text, text.text);

  const auto drawn = [&](std::int64_t seed) {
    return model.generate("Ada", {.max_new_tokens = 8, .temperature = 5.0, .seed = seed}).ids;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
  EXPECT_EQ(error_of([&] { model.evaluate({{"eval-dataset", "nothing.json"}}); }).subject(), "nothing.json");
  const Error error = error_of([&] { model.generate("Ada", {.temperature = -1.0}); });
  EXPECT_EQ(error.subject(), "temperature");
  EXPECT_EQ(error_of([&] { model.evaluate(rows(), {{"precision", "bf16"}}); }).subject(), "precision");
}

TEST_F(LibraryTest, ChecksInterruptCallsOfModels) {
  struct Interrupted {};
  Model model(of_model());
  int left = 0;
  model.set_check([&left] {
    if (--left < 0) throw Interrupted();
  });
  const auto is_interrupted = [&](int checks, const auto& call) {
    left = checks;
    try {
      call();
      return false;
    } catch (const Interrupted&) {
      return true;
    }
  };
  const auto one = [&] { model.generate("Ada lives", {.max_new_tokens = 4}); };
  const auto several = [&] { model.generate(std::vector<std::string>{"Ada", "Oslo"}, {.max_new_tokens = 4}); };
  const auto evaluation = [&] { model.evaluate(rows(), {{"eval-batch-size", 2}}); };
  EXPECT_TRUE(is_interrupted(0, one));
  EXPECT_TRUE(is_interrupted(3, one) || model.generate("Ada lives", {.max_new_tokens = 4}).ids.size() < 4);
  EXPECT_TRUE(is_interrupted(1, several));
  EXPECT_TRUE(is_interrupted(3, evaluation));
  EXPECT_FALSE(is_interrupted(4, evaluation));
  model.set_check({});
  EXPECT_FALSE(is_interrupted(0, evaluation));
}

TEST_F(LibraryTest, Chats) {
  Model model = Model::load(kRecipes + "/chat/model",
                            {{"chat-template", kRecipes + "/chat/chat_template.jinja"}, {"device", "cpu"}});
  tessera::Chat chat = model.chat("Answer briefly.");
  const tessera::Generation answer = chat.say("Who are you?", {.max_new_tokens = 5});
  ASSERT_EQ(chat.messages().size(), 3u);
  EXPECT_EQ(chat.messages()[2].content, answer.text);
  const tessera::Generation direct = model.generate(
      std::vector<tessera::Message>{{"system", "Answer briefly."}, {"user", "Who are you?"}}, {.max_new_tokens = 5});
  EXPECT_EQ(direct.ids, answer.ids);
  chat.say("And I?", {.max_new_tokens = 5});
  EXPECT_TRUE(chat.undo());
  EXPECT_EQ(chat.messages().size(), 3u);
  EXPECT_THROW(chat.say("", {.temperature = -1.0}), Error);
  EXPECT_EQ(chat.messages().size(), 3u);
}

TEST_F(LibraryTest, TwoModelsWorkAtTheSameTime) {
  Model one(of_model()), other(of_model());
  const std::vector<std::int32_t> expected = one.generate("Ada lives", {.max_new_tokens = 16}).ids;
  std::vector<std::int32_t> of_thread;
  std::jthread thread([&] {
    for (int i = 0; i < 3; ++i) of_thread = other.generate("Ada lives", {.max_new_tokens = 16}).ids;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.generate("Ada lives", {.max_new_tokens = 16}).ids, expected);
  thread.join();
  EXPECT_EQ(of_thread, expected);
}

TEST_F(LibraryTest, SavesModelsAndAdapters) {
  Model model(of_model());
  const std::string copy = (folder_ / "copy").string();
  model.save(copy);
  const std::vector<std::int32_t> ids = model.generate("Ada", {.max_new_tokens = 8}).ids;
  EXPECT_EQ(Model::load(copy, {{"device", "cpu"}}).generate("Ada", {.max_new_tokens = 8}).ids, ids);

  Options options = of_run();
  options.set("adapter", "lora").set("learning-rate", 0.05);
  const tessera::TrainResult run = tessera::train(options, with_rows());
  model.use_adapter(run.model);
  const double adapted = model.evaluate(rows()).loss;
  const std::vector<std::int32_t> of_adapter = model.generate("Ada has xx and ", {.max_new_tokens = 4}).ids;
  const std::string adapter = (folder_ / "adapter").string();
  model.save(adapter);
  EXPECT_TRUE(fs::exists(fs::path(adapter) / "adapter_config.json"));
  EXPECT_THROW(model.use_adapter((folder_ / "nothing").string()), Error);
  EXPECT_EQ(model.evaluate(rows()).loss, adapted);
  model.use_adapter("");
  EXPECT_GT(model.evaluate(rows()).loss, adapted);
  EXPECT_EQ(model.generate("Ada", {.max_new_tokens = 8}).ids, ids);

  const std::string merged = (folder_ / "merged").string();
  EXPECT_EQ(
      tessera::export_model({{"model", kQuickstart}, {"adapter", run.model}, {"merge", true}, {"output-dir", merged}}),
      merged);
  EXPECT_EQ(Model::load(merged, {{"device", "cpu"}}).generate("Ada has xx and ", {.max_new_tokens = 4}).ids,
            of_adapter);
}

TEST_F(LibraryTest, PlansWithoutADevice) {
  const tessera::Plan plan = tessera::plan({{"model", "bloom-560m"}, {"batch-size", 2}, {"device", "cpu"}});
  EXPECT_GT(plan.peak_bytes, std::int64_t{8} << 30);
  EXPECT_THAT(plan.text, HasSubstr("parameters"));
  EXPECT_THAT(plan.json, StartsWith("{\"schema\""));
  std::int64_t parameters = 0;
  for (const tessera::PlannedBytes& bytes : plan.bytes) {
    if (bytes.phase == "step" && bytes.category == "parameters") parameters = bytes.device_bytes;
  }
  EXPECT_EQ(parameters, 4 * plan.num_parameters);
  const tessera::Plan fit = tessera::plan({{"model", "bloom-7b1"}, {"device", "cuda"}, {"fit", "80GiB"}});
  EXPECT_EQ(fit.fits, true);
  EXPECT_GT(fit.estimated_step_s, 0);
  EXPECT_FALSE(fit.settings.entries().empty());
}

TEST_F(LibraryTest, ReadsConfigurationFiles) {
  std::ofstream(folder_ / "run.toml") << "model = \"bloom-560m\"\nbatch_size = 2\n[plan]\nmax_length = 128\n";
  Options options;
  const tessera::Plan plan = tessera::plan(options.config_file((folder_ / "run.toml").string()));
  const tessera::Plan same = tessera::plan({{"model", "bloom-560m"}, {"batch-size", 2}, {"max-length", 128}});
  EXPECT_EQ(plan.peak_bytes, same.peak_bytes);
  std::ofstream(folder_ / "bad.toml") << "batch_size = 0\n";
  options.config_file((folder_ / "bad.toml").string());
  EXPECT_THAT(error_of([&] { tessera::plan(options); }).subject(), HasSubstr("bad.toml:1"));
}

TEST(TokenizerOfTheLibrary, EncodesAndDecodes) {
  const tessera::Tokenizer tokenizer(kQuickstart);
  const std::vector<std::int32_t> ids = tokenizer.encode("Ada lives in Oslo.");
  EXPECT_EQ(tokenizer.decode(ids), "Ada lives in Oslo.");
  EXPECT_GT(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_THROW(tessera::Tokenizer("nothing"), Error);
}

}  // namespace
