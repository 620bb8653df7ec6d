// What a verb needs to compute with a model: the ranks and their devices, the model's configuration and tokenizer, a
// check that the work fits, the engine, and the weights. A Session makes them in the one order that all ranks share:
//
//   constructor      begins to read the weights; threads, devices and ranks
//   read_model()     configuration and tokenizer. The verb then reads its data
//   agree()          all ranks have the same model and data
//   check_work()     memory and disk suffice; nothing is allocated before
//   make_engine()    parameters. The verb creates its output before or after
//   prepare()        activations, gradients, optimizer states
//   load_weights()   from the files of --model, or at random
//   change_adapter() if --adapter names several adapters: to each of the others, after the work with the previous one
//
// Steps that communicate are collective. A verb may leave out later steps: `export` needs no engine, and `plan` not
// even a device.
#pragma once

#include <memory>
#include <optional>

#include "tessera/base/record.h"
#include "tessera/data/tokenizer.h"
#include "tessera/log/console.h"
#include "tessera/plan/memory_check.h"
#include "tessera/session/worker.h"
#include "tessera/store/read_ahead.h"

namespace tessera {

class Session {
 public:
  enum class Weights { read_ahead, not_yet };

  // `settings` must outlive the session. `world` may be null: a single rank. The first rank prints to `console`. With
  // Weights::read_ahead, the files of --model are read into the page cache from now on. Throws UsageError and
  // CommunicationError. Collective.
  Session(const Settings& settings, World* world, Console& console, Weights weights = Weights::read_ahead);

  // A session of one rank that only reads and plans: without a device, it has no worker() and no engine().
  Session(const Settings& settings, Console& console);

  // Completes the settings of a session whose settings leave something to a search (plan/fit.h). Call it before
  // agree().
  void choose(const Settings& chosen);
  // Throws UsageError or InputError. Also checks the adapters that are used later.
  void read_model();
  void read_config();     // the first part of read_model()
  void read_tokenizer();  // the second part
  // Throws UsageError if the ranks have different models, or different `facts` about their data. Collective.
  void agree(const Record& facts);
  // Throws OutOfMemoryError or RunError (disk) if the work does not fit. `work_of` also serves the advice of later
  // errors. It and what it refers to must live as long as the session.
  void check_work(WorkOf work_of);
  // Throws OutOfMemoryError. Collective.
  Engine& make_engine();
  // Allocates what the checked work needs, or what `work` needs. Throws OutOfMemoryError. Collective.
  void prepare() { prepare(work_of_(*settings_)); }
  void prepare(const WorkBounds& work);
  // Prints what users should know about the weights. Throws InputError and UsageError. Collective.
  void load_weights();
  // The adapters of --adapter, or one empty text. read_model() chooses the first one.
  std::vector<std::string> adapters() const;
  // Replaces the adapter of the model by adapters()[number]. The base stays in memory if the adapters have equal
  // options. Otherwise, this makes a new engine, and reads the base again. Throws what the earlier steps throw.
  // Collective.
  void change_adapter(size_t number);
  // Replaces the adapter of the model by the one in `folder`, or removes it if `folder` is empty. Otherwise like
  // change_adapter(). If it throws, the model is as before. Only for a session without several adapters. Collective.
  void use_adapter(const std::string& folder);
  // Runs `work`, which fits according to its plan. If it runs out of memory, the error says what to change.
  template <typename Work>
  auto within_memory(const Work& work) -> decltype(work()) {
    return tessera::within_memory([this] { return advice_after_failure(); }, work);
  }

  // Prints what users should know about the device, the memory, the model and the tokenizer before the work begins.
  void note_start(bool with_precision = true);
  void note_model();  // only about the model and the tokenizer

  const Settings& settings() const { return *settings_; }
  Console& console() { return console_; }
  Worker& worker() { return *worker_; }
  Communicator& world() { return worker_->world(); }
  ThreadPool& pool() { return worker_ ? worker_->pool() : *pool_; }
  ModelConfig& config() { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::shared_ptr<const Tokenizer> shared_tokenizer() const { return tokenizer_; }
  Engine& engine() { return *engine_; }

 private:
  void check_memory();
  // Makes the engine of the current settings again, with its weights.
  void read_again();
  // Plans and reads the model with this adapter from now on.
  void select_adapter(size_t number);
  std::string advice_after_failure();

  const Settings* settings_;                      // the verb's, own_settings_, or an element of of_adapters_
  std::unique_ptr<Settings> own_settings_;        // those that choose() completes
  std::vector<Settings> of_adapters_;             // if --adapter names several: the settings with each one alone
  std::unique_ptr<const Settings> with_adapter_;  // after use_adapter(): the settings with this adapter
  std::vector<std::optional<AdapterOptions>> adapter_options_;  // of these adapters
  Console& console_;
  ReadAhead read_ahead_;
  std::optional<Worker> worker_;
  std::unique_ptr<ThreadPool> pool_;  // only without a worker
  ModelConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  WorkOf work_of_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tessera
