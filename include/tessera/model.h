/// @file
/// A model in memory: tokenize, generate, chat, evaluate, save.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/export.h>
#include <tessera/log.h>
#include <tessera/loss.h>
#include <tessera/metrics.h>
#include <tessera/options.h>
#include <tessera/rows.h>

TESSERA_BEGIN_NAMESPACE

/// The tokenizer of a model. Copies share it. Several threads may use it at the same time.
class TESSERA_API Tokenizer {
 public:
  /// Reads the tokenizer of a model folder or a tokenizer.json, without the model.
  explicit Tokenizer(const std::string& place);

  /// The ids of a text. With `special_tokens`, the tokens that the tokenizer puts before and after a text (such as
  /// BOS) are included.
  std::vector<std::int32_t> encode(std::string_view text, bool special_tokens = true) const;
  /// The text of ids. With `skip_special`, special tokens are left out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;
  /// The id of a token as tokenizer.json writes it. Nothing if there is none.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The largest id plus one.
  std::int64_t vocab_size() const;

 private:
  friend class Model;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// Why a text ended.
enum class FinishReason {
  stop,       ///< the model produced a token that ends a text, or a string of the option "stop"
  length,     ///< the text has "max-new-tokens" tokens, or fills the context of the model
  cancelled,  ///< the callback returned false
};

/// A text that a model has generated.
struct Generation {
  std::string text;
  std::vector<std::int32_t> ids;
  FinishReason finish_reason = FinishReason::length;
  std::int64_t num_prompt_tokens = 0;
  double seconds = 0;
};

/// Receives a text in parts, as soon as later tokens cannot change them. Returns whether to continue. Runs on the
/// thread of the call.
using OnText = std::function<bool(std::string_view part)>;

/// How to generate: what is not set has the value of the model's options. The members are options of the same names.
struct GenerateOptions {
  std::optional<std::int64_t> max_new_tokens{};
  std::optional<bool> do_sample{};
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<std::int64_t> seed{};
  std::vector<std::string> stop{};
};

class Chat;

/// A model on a device. A model and its chats belong to one thread at a time. Several models may work at the same
/// time, also on several threads.
class TESSERA_API Model {
 public:
  /// Loads a model. The options are those of `tessera eval`, `generate` and `chat` together; only "model" is
  /// required: a folder of Hugging Face, the folder or a checkpoint of a run, or a name in the hub's cache. "adapter"
  /// names the folder of an adapter.
  explicit Model(const Options& options, Log log = {});
  /// Loads the model at `place`: the same as the option "model".
  static Model load(const std::string& place, const Options& options = {}, Log log = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const Tokenizer& tokenizer() const;
  std::int64_t num_parameters() const;
  /// The longest sequence in tokens; 0: no limit.
  std::int64_t max_positions() const;

  /// Continues a text. `on_text` may be empty.
  Generation generate(const std::string& prompt, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// Answers the last message of a conversation, with the chat template of the model.
  Generation generate(const std::vector<Message>& messages, const GenerateOptions& options = {},
                      const OnText& on_text = {});
  /// Continues texts together: "eval-batch-size" at a time.
  std::vector<Generation> generate(const std::vector<std::string>& prompts, const GenerateOptions& options = {});
  /// Begins a conversation. The model must outlive it. An empty `system` means no system message.
  Chat chat(const std::string& system = "");

  /// The loss of the model on the files of the option "eval-dataset", and with "eval-generation" the scores of its
  /// answers. `options` override the options of the model for this call.
  Evaluation evaluate(const Options& options = {}, const Loss& loss = {});
  /// The same for rows of the program.
  Evaluation evaluate(const Rows& rows, const Options& options = {}, const Loss& loss = {});

  /// Saves the model as a folder of Hugging Face. A model with an adapter saves the adapter, as a folder of PEFT.
  void save(const std::string& folder);

  /// `check` runs during generate(), evaluate() and Chat::say(): after each new token, before each batch, and on the
  /// thread of the call. If it throws, the call ends and throws this exception, so a program can interrupt its own
  /// calls. An empty function removes it.
  void set_check(std::function<void()> check);

  /// Replaces the adapter by the one in `folder`; an empty text removes the adapter. The base stays in memory if both
  /// adapters have the same options. Otherwise, it is read again.
  void use_adapter(const std::string& folder);

 private:
  friend class Chat;
  struct State;
  std::unique_ptr<State> state_;
};

/// A conversation with a model.
class TESSERA_API Chat {
 public:
  Chat(Chat&&) noexcept;
  Chat& operator=(Chat&&) noexcept;
  ~Chat();

  /// Adds a message of the user, and the answer of the model. If the call fails, the conversation is as before it.
  Generation say(const std::string& message, const GenerateOptions& options = {}, const OnText& on_text = {});
  std::vector<Message> messages() const;
  /// Replaces the system message; an empty text removes it.
  void set_system(const std::string& text);
  /// Forgets everything except the system message.
  void reset();
  /// Forgets the last message of the user and its answer. False if there is none.
  bool undo();

 private:
  friend class Model;
  struct State;
  explicit Chat(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Writes a model folder from a checkpoint ("checkpoint" or "model"), or from a model and an adapter ("model",
/// "adapter" and "merge"). The options are those of `tessera export`; "output-dir" is required, and "gguf" makes a GGUF
/// file. Returns the path of the folder or file.
TESSERA_API std::string export_model(const Options& options, const Log& log = {});

TESSERA_END_NAMESPACE
