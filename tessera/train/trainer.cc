#include "tessera/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/counted.h"
#include "tessera/base/instruction_sets.h"
#include "tessera/base/library.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/data_report.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/model_files.h"
#include "tessera/plan/memory_check.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/train/chosen_settings.h"
#include "tessera/train/continuation.h"
#include "tessera/train/training_work.h"

namespace tessera {

namespace fs = std::filesystem;

bool starts_from_checkpoint(const Settings& settings) {
  return settings.resume != "none" && (settings.resume != "auto" || !checkpoint_steps(settings.output_dir).empty());
}

WorkBounds Trainer::work_of(const Settings& settings, bool fused) const {
  return training_work(settings, data_.train, data_.eval ? &*data_.eval : nullptr, fused);
}

bool Trainer::may_fuse() const {
  return settings_.fuse_micro_batches != Settings::FuseMicroBatches::off &&
         session_.worker().device().kind() == DeviceKind::cuda;
}

bool Trainer::fits_fused() {
  const Plan plan =
      plan_training(session_.config(), settings_, work_of(settings_, true), session_.worker().planned_rank());
  const MemoryLimits limits =
      run_limits(settings_, session_.worker().local_ranks().count, usable_gpu_bytes(session_.worker().device()));
  return plan.device.peak_total() <= limits.device_bytes;
}

// Whether the micro-batches of a step run as one batch. They do on GPUs with enough memory, because small batches leave
// most of a GPU idle. --fuse-micro-batches off prevents this. Collective.
bool Trainer::runs_fused() {
  if (!may_fuse() || settings_.grad_accum == 1) return false;
  const bool fits = is_supported(work_of(settings_, true).training, session_.config()) && fits_fused();
  return session_.world().all(fits, "memory of micro-batches");
}

void Trainer::check_adapter() {
  check_trains(session_.config(), settings_);
  if (!session_.config().adapter) return;
  if (settings_.adapter == Settings::Adapter::none) {
    throw UsageError(option_place("model"),
                     fmt::format("{} is a checkpoint with an adapter, and PEFT could not load an adapter of it",
                                 printable(settings_.model)),
                     "Export its adapter with tessera export, and continue it with " + option("adapter") +
                         " lora and " + option("init_adapter") + ", and the model of its run");
  }
  if (settings_.init == Settings::Init::random) {
    console_.note(
        "warning: the model has random weights, and the folder of the adapter does not hold them. tessera export "
        "--merge saves the complete model of a checkpoint");
  }
}

void Trainer::choose_settings() {
  if (!has_search(settings_)) return;
  const int num_ranks = session_.worker().num_ranks();
  const auto typical = [this, num_ranks](bool fused) {
    return [this, num_ranks, fused](const Settings& s) {
      return typical_work(s, data_.train, data_.eval ? &*data_.eval : nullptr, num_ranks, fused);
    };
  };
  FitRequest request{};
  request.fixed = fixed_settings(resolved_);
  request.work_of = [this](const Settings& s) { return work_of(s, false); };
  request.typical_of = typical(false);
  if (may_fuse()) {
    request.fused_of = [this](const Settings& s) {
      const WorkBounds work = work_of(s, true);
      return is_supported(work.training, session_.config()) ? std::optional(work) : std::nullopt;
    };
    request.fused_typical_of = typical(true);
  }
  session_.choose(chosen_settings(session_, std::move(request)));
  resolved_ = with_choice(std::move(resolved_), settings_);
  choice_ = choice_record(settings_, num_ranks);
}

Trainer::Trainer(Session& session, ResolvedSettings resolved, std::function<int()> received_signal, GivenRows given)
    : session_(session),
      settings_(session.settings()),
      resolved_(std::move(resolved)),
      console_(session.console()),
      received_signal_(std::move(received_signal)) {
  measurements_.emplace(session_);
  session_.read_model();
  check_adapter();
  data_ = load_training_data(settings_, session_.tokenizer(), session_.config(), session_.pool(),
                             {&session_.world(), session_.worker().is_first_of_node(), &console_}, std::move(given));
  choose_settings();
  fingerprint_ = train_fingerprint(settings_, session_.config(), data_.train.samples, session_.worker().num_ranks());
  fingerprint_["instruction_set"] = name_of_chosen_instruction_set();  // instead of the setting's value, perhaps auto
  if (data_.eval) {
    fingerprint_["eval_data_checksum"] = checksum_of(data_.eval->samples);
    fingerprint_["eval_generation"] = settings_.eval_generation;
    fingerprint_["max_new_tokens"] = settings_.max_new_tokens;
    fingerprint_["workshop_scoring"] = settings_.scoring == Scoring::workshop;
  }
  session_.agree(fingerprint_);
  // Fused micro-batches have more activations, but no sums of gradients, so either form may need less memory.
  fused_ = runs_fused();
  session_.check_work([this](const Settings& s) { return work_of(s, fused_); });
  const Engine& engine = session_.make_engine();
  calendar_.emplace(settings_, data_.train.samples, data_.eval.has_value(), engine.model(), session_.world());
  open_folder();
  work_ = work_of(settings_, fused_);
  session_.prepare(work_);
  std::unique_ptr<BackgroundCheckpoint> background;
  if (settings_.save_async) {
    background = std::make_unique<BackgroundCheckpoint>(session_.worker().host(), session_.world());
  }
  checkpoints_.emplace(*folder_, session_.world(), session_.pool(), std::move(background));
}

// Creates the output folder, and what watches and records a run there. Collective.
void Trainer::open_folder() {
  folder_.emplace(settings_.output_dir, settings_.owner_timeout, session_.world(), console_);
  recorder_.emplace(settings_, console_);
  folder_->handle_moves({.settle =
                             [this](const fs::path& folder, bool is_new) {
                               recorder_->keep_at(folder);
                               if (!is_new) return;
                               write_file_atomically(folder / "resolved-config.toml", resolved_config_text(resolved_));
                               recorder_->start_trackers_again();
                             },
                         .lose =
                             [this] {
                               checkpoints_->set_last_step(-1);
                               health_->forget_checkpoints();
                               state_.best_metric.reset();
                               state_.best_step = 0;
                               state_.stop_steps.clear();
                             }});
  const auto begin_again = [this](int64_t sound) -> std::string {
    checkpoints_->wait();
    if (sound < 0) return "No checkpoint of the run is known to be sound: start again with --resume none";
    return fmt::format(
        "The last sound checkpoint is {0}. A new run with other settings can begin from it: give "
        "--resume {0} and another --output-dir",
        checkpoint_folder(folder_->path(), sound).string());
  };
  const auto log_skipped = [this](const Record& record) { append("skipped", record, {}); };
  health_.emplace(settings_, session_.config().vocab_size, console_, Health::Hooks{begin_again, log_skipped});
}

int Trainer::run(const std::function<void()>& started) {
  const auto stop_now = [&] { return stop_asked(); };
  if (stop_now() || !folder_->take(stop_now)) return stop();  // a signal must not wait until the model is loaded
  return session_.within_memory([&] {
    start();
    Engine& engine = session_.engine();
    // Reads the tensors' types now: at the end, the initial model's files may be gone.
    if (!state_.loaded_types) state_.loaded_types = loaded_types_of(engine.model(), settings_, session_.world());
    const Model& model = engine.model();
    model_writer_.emplace(model,
                          saved_model_options(settings_, model.config(), session_.tokenizer(), *state_.loaded_types),
                          session_.world(), session_.pool());
    if (session_.worker().is_first()) {
      write_file_atomically(folder_->given() / "resolved-config.toml", resolved_config_text(resolved_));
    }
    start_trackers();
    plan_costs();
    started();
    return train();
  });
}

// Plans what the run needs, and how long a step takes. The time of a program's own loss is not known.
void Trainer::plan_costs() {
  if (!session_.worker().is_first()) return;
  const auto typical = [this] {
    return typical_work(settings_, data_.train, nullptr, session_.worker().num_ranks(), fused_);
  };
  planned_ = planned_costs(session_.config(), settings_, work_,
                           session_.engine().has_own_loss() ? std::function<WorkBounds()>() : typical,
                           session_.worker().planned_rank());
}

void Trainer::start_trackers() {
  tracker_options_.config["num_parameters"] = session_.engine().model().num_parameters();
  tracker_options_.config["world_size"] = session_.worker().num_ranks();
  recorder_->start_trackers(std::move(tracker_options_), runtime_before_s_);
}

int Trainer::train() {
  begin_s_ = steady_seconds();
  measurements_->begin(state_.step);
  session_.note_start();
  note_data(data_.train.use, settings_, console_);
  if (data_.eval) {
    note_data(data_.eval->use, settings_, console_);
    note_long_no_answer(data_.eval->use, session_.tokenizer(), settings_, console_);
  }
  const std::string ranks =
      session_.worker().num_ranks() == 1 ? "" : fmt::format("{} ranks of ", session_.worker().num_ranks());
  const int64_t all = session_.engine().model().num_parameters(),
                trained = session_.engine().model().num_trainable_parameters();
  const std::string some = trained < all ? fmt::format(" ({} of them trainable)", format_count(trained)) : "";
  console_.note(fmt::format("{} parameters{}, {} {}, {} of {}{}, {}{}", format_count(all), some,
                            format_count(data_.train.samples.size()), noun_for(data_.train.samples.size(), "sample"),
                            counted(calendar_->num_steps(), "step"), settings_.batch_words(),
                            ranks.empty() ? "" : " per rank", ranks, counted(session_.pool().num_threads(), "thread")));
  if (const auto& fill = calendar_->epochs().fill()) note_fill(*fill, settings_, console_);
  if (settings_.offload.uses(Tier::host) && session_.worker().device().host_visible()) {
    console_.note("On the CPU, device and host share the same memory. Offloading to the host saves no memory");
  }
  if (settings_.eval_before && data_.eval && state_.step == 0 && !state_.evaluated_before) {
    const std::optional<EvalOutcome> before = evaluate();
    if (!before) return stop();
    state_.before = *before;
    state_.evaluated_before = true;
  }
  progress_.emplace(console_, ProgressOptions{.description = "Training",
                                              .first_step = state_.step,
                                              .total_steps = calendar_->num_steps(),
                                              .unit = "tokens"});
  std::optional<BatchPlan> plan;
  for (int64_t epoch = -1;;) {
    const int64_t best_before = state_.best_step;
    if (state_.step > 0 && state_.evaluated_step != state_.step && calendar_->evaluates_after(state_.step)) {
      if (!evaluate_after_step()) return stop();
    }
    const bool best = settings_.load_best_model_at_end && state_.best_step != best_before;
    if (state_.step > 0 && (calendar_->saves_after(state_.step) || best)) checkpoint();
    if (state_.step >= calendar_->num_steps() || next_ == TrainObserver::Next::finish) break;
    if (stop_asked()) return stop();
    const EpochSteps::Place place = calendar_->epochs().place_of(state_.step);
    if (std::exchange(epoch, place.epoch) != place.epoch) plan.emplace(calendar_->batches_of_epoch(epoch));
    one_step(*plan, place.step);
    if (checkpoints_->take_rotation()) rotate();
  }
  progress_->finish();
  finish();
  return static_cast<int>(ExitCode::kDone);
}

// Whether any rank has received a signal to stop. Collective.
bool Trainer::stop_asked() {
  rethrow_lost_failure();
  const int mine = next_ == TrainObserver::Next::stop ? kStoppedByProgram : received_signal_();
  stop_signal_ = static_cast<int>(session_.world().max(mine, "signals"));
  return stop_signal_ != 0;
}

std::string note_of_stop(int signal, int64_t step, const std::string& added_words) {
  const std::string when =
      step > 0 ? fmt::format("after step {}. A checkpoint is saved", step) : "before the run had anything to save";
  if (signal == kStoppedByProgram) return fmt::format("Stopped by the program {}.", when);
  return fmt::format("Stopped by signal {} {}. Start the same command again{} to continue.", signal, when, added_words);
}

int Trainer::stop() {
  if (state_.step > 0) {
    const bool is_extra = checkpoints_->last_step() != state_.step && !calendar_->saves_after(state_.step);
    if (is_extra) state_.stop_steps.push_back(state_.step);  // the next checkpoint replaces this one
    checkpoint();
    finish_checkpoints(true);
  }
  progress_.reset();
  recorder_->finish_trackers(ExitCode::kSavedAfterSignal, Record::object(), runtime_s());
  console_.note(note_of_stop(stop_signal_, state_.step, folder_->words_of_new_name()));
  return static_cast<int>(ExitCode::kSavedAfterSignal);
}

void Trainer::one_step(const BatchPlan& plan, int64_t step_of_epoch) {
  session_.worker().enter(Phase::step);
  const bool beside_write = checkpoints_->is_writing();
  const double begin_s = steady_seconds();
  std::vector<PackedBatch> window;
  for (const MicroBatch& micro_batch : plan.step(step_of_epoch)) {
    window.push_back(batch_of(data_.train, micro_batch.indices));
    auto& numbers = window.back().sequence_numbers;
    numbers.resize(micro_batch.indices.size());
    std::iota(numbers.begin(), numbers.end(), micro_batch.first_sequence);
  }
  if (fused_) window = {merged(window)};
  const double learning_rate = calendar_->learning_rate(session_.engine().num_updates());
  const double loss_scale = health_->loss_scale();
  Engine& engine = session_.engine();
  const double compute_s = steady_seconds();
  const PartSeconds parts_before = engine.parts().until(compute_s);
  const StepResult result = engine.train_step(window, learning_rate, loss_scale);
  const double end_s = steady_seconds();

  ++state_.step;
  std::optional<StepSeconds> seconds;
  if (!result.skipped && !beside_write) {
    seconds = {.step_s = end_s - begin_s, .data_s = compute_s - begin_s};
    const bool has_parts = engine.device().kind() == DeviceKind::cpu;
    if (has_parts) seconds->part_s = engine.parts().until(end_s) - parts_before;
  }
  measurements_->add(state_.step, result, seconds);
  state_.num_updates = session_.engine().num_updates();
  const bool has_targets = result.num_targets > 0;
  health_->watch(state_.step, result, loss_scale, checkpoints_->last_step());  // may end the run
  state_.num_samples += result.num_sequences;
  state_.num_tokens += result.num_tokens;
  state_.num_targets += result.num_targets;
  if (std::isfinite(result.loss())) {
    for (double* sum : {&state_.total_loss, &state_.logged_loss, &state_.row_loss}) *sum += result.loss();
    for (int64_t* count : {&state_.loss_steps, &state_.logged_steps, &state_.row_steps}) ++*count;
  }
  if (++steps_of_this_run_ > 1 && has_targets) {
    state_.steady_s += steady_seconds() - begin_s;
    state_.steady_samples += result.num_sequences;
    state_.steady_tokens += result.num_tokens;
  }
  progress_->update(state_.step, result.num_tokens, has_targets ? std::optional(result.loss()) : std::nullopt);
  if (calendar_->logs_after(state_.step)) {
    log_step(result, learning_rate, loss_scale);
  }
  show_step(result, learning_rate, loss_scale);
}

// Collective if the program observes steps.
void Trainer::show_step(const StepResult& result, double learning_rate, double loss_scale) {
  if (!observer_.on_step) return;
  const auto asked = observer_.on_step({.step = state_.step,
                                        .num_steps = calendar_->num_steps(),
                                        .epoch = epoch_now(),
                                        .learning_rate = learning_rate,
                                        .loss_scale = loss_scale,
                                        .runtime_s = runtime_s(),
                                        .result = result});
  next_ = static_cast<TrainObserver::Next>(session_.world().max(static_cast<int>(asked), "what the program asks for"));
}

void Trainer::log_step(const StepResult& result, double learning_rate, double loss_scale) {
  // A mean of no losses is NaN. The line then has no loss, unless the losses were NaN or infinite.
  const double loss = state_.logged_loss / static_cast<double>(state_.logged_steps);
  const bool has_targets = result.num_targets > 0;
  StepMetrics metrics{.loss = {}, .grad_norm = {}, .learning_rate = learning_rate, .epoch = epoch_now()};
  if (has_targets || state_.logged_steps > 0) metrics.loss = loss;
  if (has_targets) metrics.grad_norm = result.gradient_norm;
  recorder_->say(trainer_line(metrics, recorder_->line_style()));
  Record timing{{"runtime_s", runtime_s()}};
  if (state_.steady_s > 0) timing["samples_per_second"] = static_cast<double>(state_.steady_samples) / state_.steady_s;
  timing.update(measurements_->speed());
  Record values{{"loss", loss},
                {"grad_norm", result.gradient_norm},
                {"learning_rate", learning_rate},
                {"num_targets", result.num_targets},
                {"num_tokens", result.num_tokens}};
  if (health_->has_loss_scale()) values["loss_scale"] = loss_scale;
  append("train", values, timing);
  recorder_->track_system(state_.step, measurements_->gpu_sampler());
  state_.logged_loss = 0;
  state_.logged_steps = 0;
}

void Trainer::append(const char* kind, const Record& values, const Record& timing) {
  folder_->saving(fmt::format("Step {}", state_.step),
                  [&] { recorder_->append(kind, state_.step, epoch_now(), values, timing, runtime_s()); });
}

WritePart Trainer::checkpoint_part() {
  return [this](CheckpointPart& part) {
    fill_checkpoint(part, session_.engine(), frozen_, state_, fingerprint_);
    // With these files, the checkpoint can be the --model of other runs.
    if (!session_.worker().is_first()) return;
    model_writer_->write_texts([&](std::string_view name, std::string_view text) { part.add_text(name, text); });
  };
}

void Trainer::checkpoint() {
  folder_->find(state_.step);
  // An evaluation after the last save may have changed the best model.
  if (checkpoints_->last_step() == state_.step) return checkpoints_->rotate_later();
  session_.worker().enter(Phase::save);
  health_->check_parameters(state_.step, session_.engine());
  if (progress_) progress_->pause();
  state_.metrics_bytes = recorder_->synced_size_bytes();
  state_.runtime_s = runtime_s();
  state_.loss_scale = health_->loss_scale_state();
  state_.health = health_->state();
  checkpoints_->save(state_.step, checkpoint_part());
  if (progress_) progress_->resume();
}

// Removes old checkpoints. Keeps the newest ones, as many as --save-total-limit allows. A checkpoint that is still
// being written does not count toward this limit. Always keeps the checkpoint of the best model and, if the newer ones
// are in doubt (Health) or with `keeps_sound`, the last sound checkpoint. A checkpoint that exists only because a
// signal stopped the run is removed when a newer checkpoint is complete. Collective.
void Trainer::rotate(bool keeps_sound) {
  Rotation rotation{static_cast<int>(settings_.save_total_limit), {}, {}};
  if (keeps_sound || health_->is_in_doubt()) rotation.protected_steps.insert(health_->sound_checkpoint());
  if (state_.best_metric) rotation.protected_steps.insert(state_.best_step);
  rotation.replaced_steps.insert(state_.stop_steps.begin(), state_.stop_steps.end());
  checkpoints_->rotate(state_.step, rotation);
}

// `is_wanted`: the checkpoint of this step was saved, and must be in the folder. Collective.
void Trainer::finish_checkpoints(bool is_wanted) {
  checkpoints_->finish(state_.step, is_wanted ? checkpoint_part() : WritePart());
  if (checkpoints_->take_rotation()) rotate();
}

// With --load-best-model-at-end, loads the best model unless it is the last one. Collective.
void Trainer::load_best_model() {
  if (!settings_.load_best_model_at_end || !state_.best_metric || state_.best_step == state_.step) return;
  session_.worker().enter(Phase::resume);
  const fs::path best = checkpoint_folder(folder_->path(), state_.best_step);
  const auto found = on_all_ranks(session_.world(), "the best model", [&] { return is_folder(best) ? "yes" : ""; });
  if (found[0].empty()) {
    console_.note(
        fmt::format("warning: {}, the checkpoint of the best model, was removed during the run. The saved model is the "
                    "last one",
                    best.string()));
    state_.best_metric.reset();
    state_.best_step = 0;
    return;
  }
  const auto checkpoint = Checkpoint::open_verified(best, session_.world(), &session_.pool());
  restore_trained_parameters(checkpoint, session_.engine().states(), session_.pool());
  console_.note(fmt::format("Loaded the best model, from step {}", state_.best_step));
}

void Trainer::finish() {
  folder_->find(state_.step);
  finish_checkpoints(checkpoints_->last_step() == state_.step);
  health_->check_end(state_.step, state_.num_updates, evaluated_at_end());
  Engine& engine = session_.engine();
  bytes_sent_ = engine.bytes_sent();
  load_best_model();
  const double mean_loss = state_.total_loss / static_cast<double>(state_.loss_steps);  // NaN without a loss
  const Record gpu = measurements_->gpu_of_all_ranks();
  measurements_->speed();
  const bool has_loss = state_.num_targets > 0;
  const TrainMetrics metrics{runtime_s(), state_.num_samples, state_.step,
                             has_loss ? std::optional(mean_loss) : std::nullopt, epoch_now()};
  recorder_->say(trainer_line(metrics, recorder_->line_style()));
  session_.worker().enter(Phase::save);
  health_->check_parameters(state_.step, engine);
  const auto write_part = [&](const ModelWriter::Write& write) {
    engine.states().save_parameters(write,
                                    [&](StateKind kind, int64_t) { return model_writer_->has(section_of(kind)); });
  };
  folder_->saving("The model", [&] {
    folder_->write(state_.step, [&] { model_writer_->write(folder_->path() / "model", write_part); });
  });
  Record timing = timing_record(metrics);
  if (!gpu.empty()) timing["gpu"] = gpu;
  append("summary",
         {{"train_loss", mean_loss},
          {"num_samples", state_.num_samples},
          {"num_tokens", state_.num_tokens},
          {"num_targets", state_.num_targets}},
         timing);
  state_.health = health_->state();
  const Record record = summary(metrics, gpu);
  if (!session_.worker().is_first()) return;
  final_summary_ = record;
  write_file_atomically(folder_->path() / "summary.json", to_pretty_json(record) + "\n");
  recorder_->finish_trackers(ExitCode::kDone, record, runtime_s());
  forget_overwritten_runs(settings_, folder_->path());
  if (settings_.json) {
    console_.print(to_json(record));
  } else {
    print_table(record);
  }
  warn_of_slow_steps(gpu);
}

}  // namespace tessera
