#include "tessera/session/session.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/host_resources.h"
#include "tessera/load/adapter_files.h"
#include "tessera/load/data_report.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/model_files.h"
#include "tessera/plan/fit.h"
#include "tessera/session/fingerprint.h"
#include "tessera/settings/engine_options.h"

namespace tessera {

Session::Session(const Settings& settings, World* world, Console& console, Weights weights)
    : settings_(&settings), console_(console) {
  if (has_search(settings)) {
    own_settings_ = std::make_unique<Settings>(settings);
    settings_ = own_settings_.get();
  }
  if (weights == Weights::read_ahead) read_ahead_ = read_weights_ahead(settings, world);
  worker_.emplace(settings, world);
}

Session::Session(const Settings& settings, Console& console)
    : settings_(&settings), console_(console), pool_(std::make_unique<ThreadPool>(threads_to_use(settings.threads))) {}

void Session::choose(const Settings& chosen) {
  TESSERA_ASSERT(own_settings_);
  *own_settings_ = chosen;
}

void Session::read_model() {
  read_config();
  read_tokenizer();
}

void Session::read_config() {
  if (settings_->init_adapter.size() > 1) {
    for (const std::string& folder : settings_->init_adapter) {
      Settings& alone = of_adapters_.emplace_back(*settings_);
      alone.init_adapter = {folder};
    }
    for (const Settings& alone : of_adapters_) {
      const ModelConfig config = model_config_of(alone);
      check_adapter_file(alone, config);
      adapter_options_.push_back(config.adapter);
    }
    settings_ = &of_adapters_.front();
  }
  config_ = model_config_of(*settings_);
}

std::vector<std::string> Session::adapters() const {
  std::vector<std::string> folders;
  for (const Settings& alone : of_adapters_) folders.push_back(alone.init_adapter.front());
  if (folders.empty()) folders.push_back(settings_->init_adapter.empty() ? "" : settings_->init_adapter.front());
  return folders;
}

void Session::select_adapter(size_t number) {
  if (of_adapters_.empty()) return;
  settings_ = &of_adapters_[number];
  config_.adapter = adapter_options_[number];
}

void Session::change_adapter(size_t number) {
  select_adapter(number);
  if (are_interchangeable(*engine_->model().config().adapter, *config_.adapter)) {
    load_adapter(*engine_, *settings_, world(), pool());
    return;
  }
  read_again();
}

void Session::read_again() {
  engine_.reset();
  // GPU memory that other ranks have mapped is free only after they have unmapped it.
  world().barrier("the end of the model before");
  make_engine();
  prepare();
  load_or_initialize(*engine_, *settings_, world(), pool());  // load_weights() has printed the notes about the base
}

void Session::use_adapter(const std::string& folder) {
  TESSERA_ASSERT(of_adapters_.empty());
  auto chosen = std::make_unique<Settings>(*settings_);
  chosen->init_adapter.clear();
  if (!folder.empty()) chosen->init_adapter.push_back(folder);
  const ModelConfig read = model_config_of(*chosen);
  if (!folder.empty()) check_adapter_file(*chosen, read);
  ModelConfig config = config_;  // with the special tokens that read_tokenizer() has settled
  config.adapter = read.adapter;
  config.quantization = read.quantization;
  const auto& before = engine_->model().config().adapter;
  const bool keeps_base = before && config.adapter && are_interchangeable(*before, *config.adapter);
  std::unique_ptr<const Settings> held = std::exchange(with_adapter_, std::move(chosen));
  const Settings* const settings_before = std::exchange(settings_, with_adapter_.get());
  std::swap(config, config_);
  try {
    if (keeps_base) return load_adapter(*engine_, *settings_, world(), pool());
    check_memory();
    read_again();
  } catch (...) {
    settings_ = settings_before;
    with_adapter_ = std::move(held);
    config_ = std::move(config);
    read_again();
    throw;
  }
}

void Session::read_tokenizer() {
  tokenizer_ = std::make_shared<const Tokenizer>(tokenizer_of(*settings_, config_));
}

void Session::agree(const Record& facts) {
  for (size_t i = adapters().size(); i-- > 0;) {  // ends with the first one
    select_adapter(i);
    Record fingerprint = model_fingerprint(config_);
    fingerprint["num_adapters"] = adapters().size();
    fingerprint.update(facts);
    check_ranks_agree(world(), fingerprint);
  }
}

void Session::check_memory() {
  tessera::check_memory(config_, *settings_, work_of_, worker_->planned_rank(), worker_->local_ranks(),
                        usable_gpu_bytes(worker_->device()));
}

void Session::check_work(WorkOf work_of) {
  work_of_ = std::move(work_of);
  for (size_t i = adapters().size(); i-- > 0;) {  // ends with the first one
    select_adapter(i);
    check_memory();
    check_disk(config_, *settings_, work_of_, worker_->planned_rank(), worker_->local_ranks());
  }
}

std::string Session::advice_after_failure() {
  if (!work_of_) return "";
  check_memory();
  return advice_for_less(config_, *settings_, work_of_, worker_->planned_rank(), worker_->local_ranks(),
                         usable_gpu_bytes(worker_->device()));
}

Engine& Session::make_engine() {
  within_memory([&] { engine_ = std::make_unique<Engine>(worker_->place(), config_, engine_options(*settings_)); });
  return *engine_;
}

void Session::prepare(const WorkBounds& work) {
  within_memory([&] { engine_->prepare(work); });
}

void Session::load_weights() {
  for (const std::string& note : load_or_initialize(*engine_, *settings_, world(), pool())) console_.note(note);
  read_ahead_ = {};
}

void Session::note_start(bool with_precision) {
  if (with_precision) worker_->note_precision(*settings_, console_);
  worker_->note_device(*settings_, console_);
  worker_->note_unpinned(console_);
  note_model();
}

void Session::note_model() {
  tessera::note_model(config_, console_);
  if (tokenizer_) note_unused_keys(tokenizer_->unused_keys(), console_);
}

}  // namespace tessera
