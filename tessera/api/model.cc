#include <tessera/model.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/api/call.h"
#include "tessera/api/data_rows.h"
#include "tessera/api/options.h"
#include "tessera/api/own_loss.h"
#include "tessera/base/clock.h"
#include "tessera/base/counted.h"
#include "tessera/data/chat_history.h"
#include "tessera/data/text_stream.h"
#include "tessera/data/tokenizer.h"
#include "tessera/load/data_report.h"
#include "tessera/load/model_files.h"
#include "tessera/load/model_place.h"
#include "tessera/load/saved_model.h"
#include "tessera/session/evaluation.h"
#include "tessera/session/generation.h"
#include "tessera/session/session.h"
#include "tessera/settings/verb_groups.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/replaceable.h"
#include "tessera/train/auto_precision.h"
#include "tessera/train/export_model.h"

#include <fmt/format.h>

namespace tessera::v0 {

namespace {

// What a model takes when it is loaded, and what its calls may change. The rest decides what is in memory.
constexpr Groups kOfCalls = kText | kRows | kChat | kEvalData | kEvalBatch | kScoring | kGeneration | kSampling;
constexpr Groups kOfModels = kOfCalls | kAnyModel | kInitAdapter | kSharding | kSavedModel;

// The prompts of a model without other work: short ones fit without a new allocation.
constexpr int64_t kFirstPromptTokens = 1024;

BatchBounds larger(const BatchBounds& a, const BatchBounds& b) {
  return {std::max(a.num_tokens, b.num_tokens), std::max(a.num_sequences, b.num_sequences),
          std::max(a.num_targets, b.num_targets)};
}

WorkBounds larger(const WorkBounds& a, const WorkBounds& b) {
  WorkBounds work;
  work.evaluation = larger(a.evaluation, b.evaluation);
  work.generation = larger(a.generation, b.generation);
  work.max_new_tokens = std::max(a.max_new_tokens, b.max_new_tokens);
  return work;
}

bool holds(const WorkBounds& room, const WorkBounds& work) {
  const auto within = [](const BatchBounds& a, const BatchBounds& b) {
    return a.num_tokens <= b.num_tokens && a.num_sequences <= b.num_sequences && a.num_targets <= b.num_targets;
  };
  return within(work.evaluation, room.evaluation) && within(work.generation, room.generation) &&
         work.max_new_tokens <= room.max_new_tokens;
}

Options options_of(const GenerateOptions& given) {
  Options options;
  if (given.max_new_tokens) options.set("max_new_tokens", *given.max_new_tokens);
  if (given.do_sample) options.set("do_sample", *given.do_sample);
  if (given.temperature) options.set("temperature", *given.temperature);
  if (given.top_k) options.set("top_k", *given.top_k);
  if (given.top_p) options.set("top_p", *given.top_p);
  if (given.seed) options.set("seed", *given.seed);
  if (!given.stop.empty()) options.set("stop", given.stop);
  return options;
}

}  // namespace

struct Tokenizer::State {
  std::shared_ptr<const tessera::Tokenizer> tokenizer;
};

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer::Tokenizer(const std::string& place) {
  guarded([&] {
    Settings settings;
    settings.model = place;
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(place, ignored);
    const std::filesystem::path file = is_file ? std::filesystem::path(place) : tokenizer_file_of(settings);
    state_ = std::make_shared<State>(State{std::make_shared<const tessera::Tokenizer>(tessera::Tokenizer::load(file))});
  });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool special_tokens) const {
  return guarded(
      [&] { return special_tokens ? state_->tokenizer->encode_with_special(text) : state_->tokenizer->encode(text); });
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  return guarded([&] { return state_->tokenizer->decode(ids, skip_special); });
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return guarded([&] { return state_->tokenizer->id_of(token); });
}

std::int64_t Tokenizer::vocab_size() const {
  return state_->tokenizer->vocab_size();
}

struct Model::State {
  State(Options given, Log log)
      : options(std::move(given)),
        messages(std::move(log)),
        console(messages.console()),
        resolved(guarded(messages, [&] { return checked(options, "generate"); })),
        tokenizer(std::shared_ptr<const Tokenizer::State>()) {}

  ResolvedSettings checked(const Options& all, const std::string& verb) {
    return resolved_options(all, kOfModels, verb, {"model"}, console);
  }

  void load() {
    if (resolved.settings.init_adapter.size() > 1) {
      throw UsageError(resolved.where("init_adapter"), "a model has one adapter at a time",
                       "Give the first one, and change it with use_adapter()");
    }
    session.emplace(resolved.settings, nullptr, console);
    session->read_model();
    tokenizer = Tokenizer(std::make_shared<Tokenizer::State>(Tokenizer::State{session->shared_tokenizer()}));
    session->agree(Record::object());
    room.generation = {.num_tokens = within_context(kFirstPromptTokens), .num_sequences = 1};
    room.max_new_tokens = within_context(resolved.settings.max_new_tokens);
    session->check_work([this](const Settings&) { return room; });
    session->make_engine();
    session->prepare();
    session->load_weights();
    session->note_start(session->worker().device().kind() == DeviceKind::cuda);
    is_prepared = true;
  }

  // The settings of a call: those of the model, and `more`.
  ResolvedSettings of_call(const Options& more, const std::string& verb) {
    for (const Options::Entry& entry : more.entries()) {
      const Setting* setting = find_flag(entry.name, kOfModels);
      const bool is_of_call = setting && ((setting->group & kOfCalls) != 0 || setting->name == "seed");
      if (!setting || is_of_call || !(setting->group & kOfModels)) continue;  // resolve() refuses unknown names
      throw UsageError(entry.name, "is an option of the model, which is already loaded",
                       "Give it when the model is loaded");
    }
    Options all = options;
    return checked(all.add(more), verb);
  }

  int64_t within_context(int64_t tokens) {
    const int64_t context = session->config().max_positions;
    return context > 0 ? std::min(tokens, context) : tokens;
  }

  // Prepares the engine for this work, in addition to all earlier work.
  void make_room(const WorkBounds& work) {
    if (is_prepared && holds(room, work)) return;
    WorkBounds exact = larger(room, work), rounded = exact;
    // Longer prompts are likely to follow, as in a chat.
    rounded.generation.num_tokens =
        std::max(exact.generation.num_tokens,
                 std::min(exact.generation.num_sequences * within_context(int64_t{1} << 40),
                          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(exact.generation.num_tokens)))));
    const WorkBounds before = room;
    try {
      room = rounded;
      session->check_work([this](const Settings&) { return room; });
    } catch (const OutOfMemoryError&) {
      room = exact;
      try {
        session->check_work([this](const Settings&) { return room; });
      } catch (...) {
        room = before;
        throw;
      }
    }
    is_prepared = false;  // until prepare() succeeds: it frees the earlier memory first
    try {
      session->prepare();
    } catch (...) {
      room = before;
      throw;
    }
    is_prepared = true;
  }

  Generation generate(const Example& example, const GenerateOptions& given, const OnText& on_text);
  std::vector<Generation> generate_several(const std::vector<std::string>& texts, const GenerateOptions& given);
  Evaluation evaluate(const Rows* rows, const Options& more, const Loss& loss);

  void run_check() const {
    if (check) call_back(check);
  }

  Options options;  // as given, with the adapter of now
  Messages messages;
  Console console;
  ResolvedSettings resolved;
  Tokenizer tokenizer;
  std::optional<Session> session;
  WorkBounds room;           // the work that check_work() has accepted
  bool is_prepared = false;  // the engine has memory for `room`
  std::function<void()> check;
};

Generation Model::State::generate(const Example& example, const GenerateOptions& given, const OnText& on_text) {
  const ResolvedSettings call = of_call(options_of(given), "generate");
  Settings settings = call.settings;
  const ModelConfig& config = session->config();
  // The answer of a conversation may fill the context. A longer prompt than the context is refused in both cases.
  const bool is_conversation = example.conversation() != nullptr;
  if (is_conversation) settings.max_new_tokens = 1;
  const EncodedPrompts prompts =
      encode_prompts({PromptRow{example, ""}}, settings, session->tokenizer(), config, session->pool());
  const std::vector<int32_t>& prompt = prompts.ids.front();
  GenerationOptions how = generation_options(call, config, generation_config_of(settings, config));
  if (is_conversation && config.max_positions > 0) {
    how.max_new_tokens = std::min(how.max_new_tokens, config.max_positions - std::ssize(prompt));
  }
  WorkBounds work;
  work.generation = {.num_tokens = std::ssize(prompt), .num_sequences = 1};
  work.max_new_tokens = how.max_new_tokens;
  make_room(work);

  Generation result;
  result.num_prompt_tokens = std::ssize(prompt);
  TextStream stream(session->tokenizer(), true, settings.stop);
  bool goes_on = true;
  const auto show = [&](const std::string& part) {
    result.text += part;
    if (!part.empty() && on_text && goes_on) goes_on = call_back(on_text, std::string_view(part));
  };
  how.on_token = [&](int64_t, int32_t id) {
    run_check();
    show(stream.add(id));
    return goes_on && !stream.has_stopped();
  };
  const double begin_s = steady_seconds();
  result.ids = std::move(session->engine().generate(prompts.ids, how)[0]);
  const bool is_cancelled = !goes_on;
  show(stream.finish());
  result.seconds = steady_seconds() - begin_s;
  const bool is_short = std::ssize(result.ids) < how.max_new_tokens;
  result.finish_reason = is_cancelled                       ? FinishReason::cancelled
                         : stream.has_stopped() || is_short ? FinishReason::stop
                                                            : FinishReason::length;
  return result;
}

std::vector<Generation> Model::State::generate_several(const std::vector<std::string>& texts,
                                                       const GenerateOptions& given) {
  const ResolvedSettings call = of_call(options_of(given), "generate");
  const Settings& settings = call.settings;
  const ModelConfig& config = session->config();
  std::vector<PromptRow> rows;
  for (size_t i = 0; i < texts.size(); ++i) {
    rows.push_back({prompt_example(texts[i]), ""});
    rows.back().example.place = fmt::format("prompts[{}]", i);
  }
  const EncodedPrompts prompts =
      encode_prompts(std::move(rows), settings, session->tokenizer(), config, session->pool());
  GenerationOptions how = generation_options(call, config, generation_config_of(settings, config));
  WorkBounds work;
  work.generation = bounds_of(prompts.ids, settings.eval_batch_size);
  work.max_new_tokens = settings.max_new_tokens;
  make_room(work);

  std::vector<Generation> results(texts.size());
  std::vector<TextStream> streams;
  if (!settings.stop.empty()) {
    for (size_t i = 0; i < texts.size(); ++i) streams.emplace_back(session->tokenizer(), true, settings.stop);
  }
  if (check || !streams.empty()) {
    how.on_token = [&](int64_t prompt, int32_t id) {
      run_check();
      if (streams.empty()) return true;
      TextStream& stream = streams[static_cast<size_t>(prompt)];
      stream.add(id);
      return !stream.has_stopped();
    };
  }
  double begin_s = steady_seconds();
  const auto take = [&](int64_t first, const std::vector<std::vector<int32_t>>& ids) {
    const double seconds = steady_seconds() - std::exchange(begin_s, steady_seconds());
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = static_cast<size_t>(first) + i;
      const auto [text, has_stopped] =
          generated_text(ids[i], prompts.rows[at].example, session->tokenizer(), settings.stop);
      const bool is_short = std::ssize(ids[i]) < settings.max_new_tokens;
      results[at] = {.text = text,
                     .ids = ids[i],
                     .finish_reason = has_stopped || is_short ? FinishReason::stop : FinishReason::length,
                     .num_prompt_tokens = std::ssize(prompts.ids[at]),
                     .seconds = seconds};
    }
  };
  generate_all(session->engine(), session->world(), prompts.ids, settings.eval_batch_size, how, take);
  return results;
}

Evaluation Model::State::evaluate(const Rows* rows, const Options& more, const Loss& loss) {
  Options given = more;
  if (rows) given.set("eval_dataset", kGivenRows);
  const ResolvedSettings call = of_call(given, "eval");
  const Settings& settings = call.settings;
  if (settings.eval_dataset.empty()) {
    throw UsageError(call.where("eval_dataset"), "is required by evaluate()", "Give files, or rows");
  }
  std::optional<ExampleRows> examples;
  if (rows) examples = read_rows(*rows, "rows", settings);
  const Dataset dataset =
      load_eval_data(settings, session->tokenizer(), session->config(), session->pool(), std::move(examples));
  note_data(dataset.use, settings, console);
  note_long_no_answer(dataset.use, session->tokenizer(), settings, console);
  WorkBounds work;
  work.evaluation = bounds_of(dataset.samples, settings.eval_batch_size);
  if (settings.eval_generation) {
    work.generation = bounds_of(dataset.prompts, settings.eval_batch_size);
    work.max_new_tokens = settings.max_new_tokens;
  }
  make_room(work);
  const OwnLossScope own_loss(*session, loss);
  const auto never_stops = [&] {
    run_check();
    return false;
  };
  const LossEvaluation measured =
      *evaluate_loss(session->engine(), session->world(), dataset, settings.eval_batch_size, console, never_stops);
  Evaluation result;
  result.loss = measured.loss;
  result.perplexity = std::exp(measured.loss);
  result.num_samples = measured.num_samples;
  result.runtime_s = measured.runtime_s;
  if (!settings.eval_generation) return result;
  const AnswerEvaluation answers = *evaluate_answers(session->engine(), session->world(), dataset, session->tokenizer(),
                                                     settings, console, never_stops);
  result.answers = {answers.metrics.exact_match, answers.metrics.f1};
  return result;
}

Model::Model(const Options& options, Log log) : state_(std::make_unique<State>(options, std::move(log))) {
  guarded(state_->messages, [&] { state_->load(); });
}

Model Model::load(const std::string& place, const Options& options, Log log) {
  Options all = options;
  return Model(all.set("model", place), std::move(log));
}

Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const Tokenizer& Model::tokenizer() const {
  return state_->tokenizer;
}

std::int64_t Model::num_parameters() const {
  return state_->session->engine().model().num_parameters();
}

std::int64_t Model::max_positions() const {
  return state_->session->config().max_positions;
}

Generation Model::generate(const std::string& prompt, const GenerateOptions& options, const OnText& on_text) {
  return guarded(state_->messages, [&] { return state_->generate(prompt_example(prompt), options, on_text); });
}

Generation Model::generate(const std::vector<Message>& messages, const GenerateOptions& options,
                           const OnText& on_text) {
  return guarded(state_->messages, [&] {
    if (messages.empty()) throw UsageError("messages", "there are none", "Give at least one message to answer");
    return state_->generate(conversation_example(messages), options, on_text);
  });
}

std::vector<Generation> Model::generate(const std::vector<std::string>& prompts, const GenerateOptions& options) {
  return guarded(state_->messages, [&] {
    return prompts.empty() ? std::vector<Generation>() : state_->generate_several(prompts, options);
  });
}

Evaluation Model::evaluate(const Options& options, const Loss& loss) {
  return guarded(state_->messages, [&] { return state_->evaluate(nullptr, options, loss); });
}

Evaluation Model::evaluate(const Rows& rows, const Options& options, const Loss& loss) {
  return guarded(state_->messages, [&] { return state_->evaluate(&rows, options, loss); });
}

void Model::save(const std::string& folder) {
  guarded(state_->messages, [&] {
    check_replaceable(folder, why_no_saved_model);
    Session& session = *state_->session;
    Engine& engine = session.engine();
    const tessera::Model& model = engine.model();
    const LoadedTypes loaded = loaded_types_of(model, session.settings(), session.world());
    const ModelWriter writer(model,
                             saved_model_options(session.settings(), session.config(), session.tokenizer(), loaded),
                             session.world(), session.pool());
    writer.write(folder, [&](const ModelWriter::Write& write) {
      engine.states().save_parameters(write, [&](StateKind kind, int64_t) { return writer.has(section_of(kind)); });
    });
  });
}

void Model::set_check(std::function<void()> check) {
  state_->check = std::move(check);
}

void Model::use_adapter(const std::string& folder) {
  guarded(state_->messages, [&] {
    state_->session->use_adapter(folder);
    state_->options.set("init_adapter", folder);
  });
}

struct Chat::State {
  Model::State& model;
  ChatHistory history;
};

Chat Model::chat(const std::string& system) {
  return Chat(std::make_unique<Chat::State>(Chat::State{*state_, ChatHistory(system)}));
}

Chat::Chat(std::unique_ptr<State> state) : state_(std::move(state)) {}
Chat::Chat(Chat&&) noexcept = default;
Chat& Chat::operator=(Chat&&) noexcept = default;
Chat::~Chat() = default;

Generation Chat::say(const std::string& message, const GenerateOptions& options, const OnText& on_text) {
  return guarded(state_->model.messages, [&] {
    ChatHistory history = state_->history;
    history.add_question(message);
    Example example;
    example.content = history.conversation();
    Generation answer = state_->model.generate(example, options, on_text);
    history.add_answer(answer.text);
    state_->history = std::move(history);
    return answer;
  });
}

std::vector<Message> Chat::messages() const {
  return guarded([&] {
    std::vector<Message> messages;
    for (const auto& message : state_->history.conversation().messages) {
      messages.push_back({message.at("role").get<std::string>(), message.at("content").get<std::string>()});
    }
    return messages;
  });
}

void Chat::set_system(const std::string& text) {
  guarded([&] { state_->history.set_system(text); });
}

void Chat::reset() {
  guarded([&] { state_->history.reset(); });
}

bool Chat::undo() {
  return guarded([&] { return state_->history.undo(); });
}

std::string export_model(const Options& options, const Log& log) {
  Messages messages(log);
  return guarded(messages, [&] {
    Console console = messages.console();
    const ResolvedSettings resolved = resolved_options(options, kExportVerb, "export", {"output_dir"}, console);
    return tessera::export_model(resolved.settings, console).path.string();
  });
}

}  // namespace tessera::v0
