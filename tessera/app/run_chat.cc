// tessera chat: a conversation with a model. Each line of standard input is a message or a command, or a JSON object.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/base/clock.h"
#include "tessera/base/counted.h"
#include "tessera/base/text.h"
#include "tessera/data/chat_history.h"
#include "tessera/data/prompts.h"
#include "tessera/data/row_reader.h"
#include "tessera/data/text_stream.h"
#include "tessera/launch/interrupt.h"
#include "tessera/load/chat.h"
#include "tessera/load/model_files.h"
#include "tessera/session/generation.h"
#include "tessera/session/session.h"

namespace tessera {

namespace {

struct Answer {
  std::string text;
  const char* finish_reason = "length";
  int64_t num_prompt_tokens = 0, num_tokens = 0;
  double runtime_s = 0;
};

// Answers the last message of a conversation. Memory grows with the longest conversation so far.
class Answerer {
 public:
  using Print = std::function<void(const std::string& part)>;

  Answerer(const Invocation& invocation, Session& session)
      : settings_(invocation.settings()),
        session_(session),
        config_(session.config()),
        chat_template_(chat_template_of(settings_, session.tokenizer(), config_, TemplateDate::today)),
        encode_(encoder_of(session.tokenizer(), config_)),
        file_(generation_config_of(settings_, config_)),
        options_(generation_options(invocation.resolved, config_, file_)),
        room_(within_context(kFirstRoom)) {
    prompt_options_.max_length = kAnyPromptLength;
    prompt_options_.chat = chat_options_of(settings_, chat_template_, session.tokenizer(), config_);
    check_room();
  }

  void load(Console& console) {
    session_.make_engine();
    session_.prepare();
    session_.load_weights();
    session_.note_start(session_.worker().device().kind() == DeviceKind::cuda);
    note_sampling(options_, file_, settings_, console);
  }

  // `print` gets the answer in parts, as soon as no later token can change them. Throws InputError if the template
  // refuses the conversation, or if the conversation is too long for the model.
  Answer answer(const Conversation& conversation, const Print& print) {
    Example example;
    example.content = conversation;
    const std::vector<int32_t> ids = encode_prompt(example, encode_, prompt_options_);
    if (ids.empty()) throw InputError(chat_template_.where(), "writes an empty text for the conversation");
    const int64_t num_prompt = std::ssize(ids);
    make_room(num_prompt);
    options_.max_new_tokens = settings_.max_new_tokens;
    if (config_.max_positions > 0) {
      options_.max_new_tokens = std::min(options_.max_new_tokens, config_.max_positions - num_prompt);
    }
    Answer result;
    result.num_prompt_tokens = num_prompt;
    const auto show = [&](const std::string& part) {
      result.text += part;
      if (!part.empty()) print(part);
    };
    TextStream stream(session_.tokenizer(), true, settings_.stop);
    const InterruptScope interrupt;
    options_.on_token = [&](int64_t, int32_t id) {
      show(stream.add(id));
      return !stream.has_stopped() && !interrupt.is_interrupted();
    };
    const double begin_s = steady_seconds();
    result.num_tokens = std::ssize(session_.engine().generate({&ids, 1}, options_)[0]);
    result.runtime_s = steady_seconds() - begin_s;
    ++options_.first_number;  // each answer gets its own random numbers
    show(stream.finish());
    if (stream.has_stopped() || result.num_tokens < options_.max_new_tokens) result.finish_reason = "stop";
    if (!stream.has_stopped() && interrupt.is_interrupted()) result.finish_reason = "interrupted";
    return result;
  }

 private:
  static constexpr int64_t kFirstRoom = 1024;

  int64_t within_context(int64_t tokens) const {
    return config_.max_positions > 0 ? std::min(tokens, config_.max_positions) : tokens;
  }

  void check_room() {
    session_.check_work([this](const Settings& settings) {
      WorkBounds work;
      work.generation = {.num_tokens = room_, .num_sequences = 1};
      work.max_new_tokens = within_context(settings.max_new_tokens);
      return work;
    });
  }

  // Prepares the engine for a prompt of this length.
  void make_room(int64_t num_tokens) {
    if (config_.max_positions > 0 && num_tokens >= config_.max_positions) {
      throw InputError("the conversation",
                       fmt::format("it has {} with the last message, but the model's context has only {}, and the "
                                   "answer needs some of them",
                                   counted(num_tokens, "token"), counted(config_.max_positions, "token")),
                       settings_.json ? "Send {\"messages\": [...]} with fewer messages"
                                      : "Forget the conversation with /reset, or its last turns with /undo");
    }
    if (num_tokens <= room_) return;
    const int64_t before = std::exchange(room_, within_context(std::max(2 * room_, num_tokens)));
    try {
      check_room();
    } catch (const Error&) {
      room_ = before;
      throw;
    }
    session_.prepare();
  }

  const Settings& settings_;
  Session& session_;
  const ModelConfig& config_;
  const ChatTemplate chat_template_;
  const EncodeFn encode_;
  const GenerationConfig file_;
  PromptOptions prompt_options_;
  GenerationOptions options_;
  int64_t room_;  // tokens of the longest prompt that the engine is prepared for
};

// Reads the lines of a chat and answers them.
class Chat {
 public:
  Chat(const Settings& settings, Answerer& answerer, Console& console)
      : json_(settings.json),
        is_dialog_(!json_ && console.out_terminal().interactive && isatty(STDIN_FILENO) != 0),
        answerer_(answerer),
        console_(console),
        history_(settings.system) {}

  // Returns the exit code: at a terminal 0, otherwise the code of the first line that was refused.
  int run() {
    if (is_dialog_) console_.note("Ctrl-C ends an answer, /exit ends the chat, and /help shows all commands.");
    int code = static_cast<int>(ExitCode::kDone);
    for (std::string line; read(line);) {
      const ChatHistory before = history_;
      try {
        if (json_ ? take_json(line) : take_line(line)) continue;
        break;
      } catch (const Error& error) {
        if (error.code() != ExitCode::kBadInput && error.code() != ExitCode::kUsage) throw;
        history_ = before;
        if (code == 0 && !is_dialog_) code = static_cast<int>(error.code());
        if (json_) console_.print(to_json({{"error", error.what()}}));
        if (!json_) console_.note(std::string("error: ") + error.what());
      }
    }
    return code;
  }

 private:
  static constexpr const char* kInput = "standard input";

  bool read(std::string& line) {
    if (is_dialog_) console_.print_part("> ");
    ++line_number_;
    if (std::getline(std::cin, line)) return true;
    if (is_dialog_) console_.print("");
    return false;
  }

  // Both return false at the end of the chat.
  bool take_json(const std::string& line) {
    if (is_blank(line)) return true;
    history_.add_json(line, kInput, line_number_);
    const Answer answer = answerer_.answer(history_.conversation(), [&](const std::string& part) {
      console_.print(to_json({{"piece", part}}));
    });
    history_.add_answer(answer.text);
    console_.print(to_json({{"content", answer.text},
                            {"finish_reason", answer.finish_reason},
                            {"num_prompt_tokens", answer.num_prompt_tokens},
                            {"num_answer_tokens", answer.num_tokens},
                            {"runtime_s", answer.runtime_s},
                            {"tokens_per_second", static_cast<double>(answer.num_tokens) / answer.runtime_s}}));
    return true;
  }

  bool take_line(const std::string& line) {
    if (const ByteFault fault = byte_fault_of(line, line_number_); !fault.what.empty()) {
      throw InputError(fmt::format("{}:{}:{}", kInput, fault.line, fault.column), fault.what, "Write UTF-8");
    }
    const ChatLine read = chat_line_of(line);
    switch (read.kind) {
      case ChatLine::Kind::blank:
        return true;
      case ChatLine::Kind::exit:
        return false;
      case ChatLine::Kind::help:
        console_.note(kChatCommands);
        return true;
      case ChatLine::Kind::reset:
        history_.reset();
        console_.note("The conversation is forgotten.");
        return true;
      case ChatLine::Kind::undo:
        console_.note(history_.undo() ? "The last message and its answer are forgotten." : "There is no message yet.");
        return true;
      case ChatLine::Kind::system:
        history_.set_system(read.text);
        console_.note(read.text.empty() ? "There is no system message now." : "The system message is replaced.");
        return true;
      case ChatLine::Kind::unknown:
        throw UsageError(fmt::format("{}:{}", kInput, line_number_),
                         fmt::format("unknown command \"{}\"", printable(read.text)),
                         "/help shows the commands. Write a space before a message that begins with \"/\"");
      case ChatLine::Kind::message:
        break;
    }
    history_.add_question(read.text);
    const Answer answer =
        answerer_.answer(history_.conversation(), [&](const std::string& part) { console_.print_part(part); });
    console_.print("");
    history_.add_answer(answer.text);
    return true;
  }

  const bool json_, is_dialog_;
  Answerer& answerer_;
  Console& console_;
  ChatHistory history_;
  int64_t line_number_ = 0;
};

}  // namespace

int run_chat(const Invocation& invocation) {
  if (invocation.world && invocation.world->size() > 1) {
    throw UsageError("chat", fmt::format("runs in one process, but there are {} ranks", invocation.world->size()),
                     "Start it without mpirun and without srun");
  }
  const Settings& settings = invocation.settings();
  Console console = console_of(invocation);
  Session session(settings, invocation.world, console);
  session.read_model();
  Answerer answerer(invocation, session);
  answerer.load(console);
  return Chat(settings, answerer, console).run();
}

}  // namespace tessera
