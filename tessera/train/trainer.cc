#include "tessera/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/data_report.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/model_files.h"
#include "tessera/plan/memory_check.h"
#include "tessera/report/text.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/train/continuation.h"

namespace tessera {

namespace fs = std::filesystem;

WorkBounds training_work(const Settings& settings, const Dataset& train, const Dataset* eval, bool fused) {
  WorkBounds work;
  const int64_t at_once = fused ? settings.grad_accum : 1;
  work.training = settings.batch_tokens > 0 ? bounds_by_tokens(train.samples, settings.batch_tokens, at_once)
                                            : bounds_of(train.samples, settings.batch_size * at_once);
  work.micro_batches = fused ? 1 : settings.grad_accum;
  if (eval) work.evaluation = bounds_of(eval->samples, settings.eval_batch_size);
  if (eval && settings.eval_generation) {
    work.generation = bounds_of(eval->prompts, settings.eval_batch_size);
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

bool starts_from_checkpoint(const Settings& settings) {
  return settings.resume != "none" && (settings.resume != "auto" || !checkpoint_steps(settings.output_dir).empty());
}

WorkBounds Trainer::work_of(const Settings& settings, bool fused) const {
  return training_work(settings, data_.train, data_.eval ? &*data_.eval : nullptr, fused);
}

bool Trainer::fits_fused() {
  const Plan plan =
      plan_training(session_.config(), settings_, work_of(settings_, true), session_.worker().planned_rank());
  return plan.device.peak_total() <= cuda_memory_of(session_.worker().device()).usable_bytes;
}

// Whether the micro-batches of a step run as one batch. They do on GPUs with enough memory, because small batches leave
// most of a GPU idle. --fuse-micro-batches off prevents this. Collective.
bool Trainer::runs_fused() {
  if (settings_.fuse_micro_batches == Settings::FuseMicroBatches::off || settings_.grad_accum == 1) return false;
  if (session_.worker().device().kind() != DeviceKind::cuda) return false;
  const bool fits = is_supported(work_of(settings_, true).training, session_.config()) && fits_fused();
  return session_.world().all(fits, "memory of micro-batches");
}

Trainer::Trainer(Session& session, std::string resolved_config, std::function<int()> received_signal)
    : session_(session),
      settings_(session.settings()),
      resolved_config_(std::move(resolved_config)),
      output_dir_(settings_.output_dir),
      console_(session.console()),
      received_signal_(std::move(received_signal)) {
  memory_log_ = start_memory_log(settings_, session_.worker(), console_);
  session_.read_model();
  data_ = load_training_data(settings_, session_.tokenizer(), session_.config(), session_.pool());
  fingerprint_ = train_fingerprint(settings_, session_.config(), data_.train.samples, session_.worker().num_ranks());
  if (data_.eval) {
    fingerprint_["eval_data_checksum"] = checksum_of(data_.eval->samples);
    fingerprint_["eval_generation"] = settings_.eval_generation;
    fingerprint_["max_new_tokens"] = settings_.max_new_tokens;
    fingerprint_["workshop_scoring"] = settings_.scoring == Scoring::workshop;
  }
  session_.agree(fingerprint_);
  session_.check_work([this](const Settings& s) { return work_of(s, false); });
  fused_ = runs_fused();
  session_.recheck_with([this] {
    if (!fused_ || fits_fused()) return;
    throw OutOfMemoryError("memory", "another process took GPU memory after the memory check of this run",
                           "Start the run again, or add --fuse-micro-batches off");
  });
  const Engine& engine = session_.make_engine();
  calendar_.emplace(settings_, data_.train.samples, data_.eval.has_value(), engine.model(), session_.world());
  loss_watch_.emplace(session_.config().vocab_size);
  if (settings_.precision == Settings::Precision::fp16) loss_scaler_.emplace(settings_.loss_scaling());
  if (session_.worker().is_first()) lock_.emplace(settings_.output_dir, settings_.owner_timeout);
  work_ = work_of(settings_, fused_);
  session_.prepare(work_);
  if (settings_.save_async) {
    background_ = std::make_unique<BackgroundCheckpoint>(session_.worker().host(), session_.world());
  }
}

int Trainer::run(const std::function<void()>& started) {
  if (stop_asked() || !take_output_folder()) return stop();  // a signal must not wait until the model is loaded
  return session_.within_memory([&] {
    resume_or_start();
    // Reads the tensors' types now: at the end, the initial model's files may be gone.
    if (!state_.loaded_types) {
      state_.loaded_types = loaded_types_of(session_.engine().model(), settings_, session_.world());
    }
    model_writer_.emplace(session_.engine().model(), session_.tokenizer(), settings_, *state_.loaded_types,
                          session_.world(), session_.pool());
    if (session_.worker().is_first()) {
      write_file_atomically(fs::path(settings_.output_dir) / "resolved-config.toml", resolved_config_);
    }
    start_trackers();
    started();
    return train();
  });
}

// With --json, standard output contains only the summary.
void Trainer::say(const std::string& line) {
  if (settings_.json)
    console_.note(line);
  else
    console_.print(line);
}

int Trainer::train() {
  begin_s_ = steady_seconds();
  speed_ = SpeedFigures(begin_s_);
  if (memory_log_) memory_log_->note_step(state_.step);
  gpu_sampler_ = make_gpu_sampler(session_.worker().device());
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
                            format_count(std::ssize(data_.train.samples)),
                            noun_for(data_.train.samples.size(), "sample"), counted(calendar_->num_steps(), "step"),
                            settings_.batch_words(), ranks.empty() ? "" : " per rank", ranks,
                            counted(session_.pool().num_threads(), "thread")));
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
    if (state_.step >= calendar_->num_steps()) break;
    if (stop_asked()) return stop();
    const EpochSteps::Place place = calendar_->epochs().place_of(state_.step);
    if (std::exchange(epoch, place.epoch) != place.epoch) plan.emplace(calendar_->batches_of_epoch(epoch));
    one_step(*plan, place.step);
    if (std::exchange(rotates_, false)) rotate();
  }
  progress_->finish();
  finish();
  return static_cast<int>(ExitCode::kDone);
}

// Whether any rank has received a signal to stop. Collective.
bool Trainer::stop_asked() {
  stop_signal_ = static_cast<int>(session_.world().max(received_signal_(), "signals"));
  return stop_signal_ != 0;
}

std::string note_of_stop(int signal, int64_t step, const std::string& added_words) {
  const std::string when =
      step > 0 ? fmt::format("after step {}. A checkpoint is saved", step) : "before the run had anything to save";
  return fmt::format("Stopped by signal {} {}. Start the same command again{} to continue.", signal, when, added_words);
}

int Trainer::stop() {
  if (state_.step > 0) {
    const bool is_extra = last_saved_step_ != state_.step && !calendar_->saves_after(state_.step);
    if (is_extra) state_.stop_steps.push_back(state_.step);  // the next checkpoint replaces this one
    checkpoint();
    finish_checkpoints();
  }
  progress_.reset();
  if (trackers_) {
    trackers_->finish(static_cast<int>(ExitCode::kSavedAfterSignal), Record::object(), runtime_s());
  }
  console_.note(note_of_stop(stop_signal_, state_.step, words_of_new_name(output_dir_)));
  return static_cast<int>(ExitCode::kSavedAfterSignal);
}

void Trainer::one_step(const BatchPlan& plan, int64_t step_of_epoch) {
  session_.worker().enter(Phase::step);
  const double begin_s = steady_seconds();
  std::vector<PackedBatch> window;
  for (const MicroBatch& micro_batch : plan.step(step_of_epoch)) {
    window.push_back(pack(data_.train.samples, micro_batch.indices));
    auto& numbers = window.back().sequence_numbers;
    numbers.resize(micro_batch.indices.size());
    std::iota(numbers.begin(), numbers.end(), micro_batch.first_sequence);
  }
  if (fused_) window = {merged(window)};
  const double learning_rate = calendar_->learning_rate(session_.engine().num_updates());
  const double loss_scale = loss_scaler_ ? loss_scaler_->scale() : 1;
  const StepResult result = session_.engine().train_step(window, learning_rate, loss_scale);

  ++state_.step;
  if (memory_log_) memory_log_->note_step(state_.step);
  utilization_.add(session_.worker().device().ledger().current_total(),
                   gpu_sampler_ ? gpu_sampler_->latest() : GpuSample{});
  speed_.add(result.num_sequences);
  state_.num_updates = session_.engine().num_updates();
  const bool has_targets = result.num_targets > 0;
  if (has_targets) {
    watch_update(result, loss_scale);  // may end the run
  } else {
    note_no_targets();
  }
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
}

void Trainer::log_step(const StepResult& result, double learning_rate, double loss_scale) {
  const StepMetrics metrics{state_.logged_loss / static_cast<double>(state_.logged_steps), result.gradient_norm,
                            learning_rate, epoch_now()};
  say(trainer_line(metrics, line_style()));
  Record timing{{"runtime_s", runtime_s()}};
  if (state_.steady_s > 0) timing["samples_per_second"] = static_cast<double>(state_.steady_samples) / state_.steady_s;
  timing.update(speed_.log(steady_seconds()));
  Record values{{"loss", metrics.loss},
                {"grad_norm", metrics.grad_norm},
                {"learning_rate", learning_rate},
                {"num_targets", result.num_targets},
                {"num_tokens", result.num_tokens}};
  if (loss_scaler_) values["loss_scale"] = loss_scale;
  append("train", values, timing);
  track_system();
  state_.logged_loss = 0;
  state_.logged_steps = 0;
}

void Trainer::append(const char* kind, const Record& values, const Record& timing) {
  if (!metrics_) return;
  Record line;
  saving(fmt::format("Step {}", state_.step),
         [&] { line = metrics_->append(kind, state_.step, epoch_now(), values, timing); });
  if (trackers_) trackers_->append(line, runtime_s());
}

// Returns nullopt if a signal stops the ranks during the evaluation. Collective.
std::optional<EvalOutcome> Trainer::evaluate() {
  session_.worker().enter(Phase::evaluation);
  EvalOutcome outcome;
  const auto stop = [&] { return stop_asked(); };
  const auto loss = evaluate_loss(session_.engine(), session_.world(), data_.eval->samples, settings_.eval_batch_size,
                                  console_, stop);
  if (!loss) return std::nullopt;
  outcome.loss = loss->loss;
  const EvalMetrics metrics{loss->loss, loss->runtime_s, loss->num_samples, loss->num_steps, epoch_now()};
  state_.eval_timing = timing_record(metrics);
  Record values{{"eval_loss", loss->loss}};
  std::optional<AnswerEvaluation> answers;
  if (settings_.eval_generation) {
    answers = evaluate_answers(session_.engine(), session_.world(), *data_.eval, session_.tokenizer(), settings_,
                               console_, stop);
    if (!answers) return std::nullopt;
    outcome.answers = answers->metrics;
    values.update(answer_record(answers->metrics));
    state_.eval_timing["answers_runtime"] = answers->runtime_s;
  }
  say(trainer_line(metrics, line_style()));
  if (answers) say(trainer_line(answers->metrics, line_style()));
  append("eval", values, state_.eval_timing);
  return outcome;
}

// Returns false if a signal stops the ranks during the evaluation. Collective.
bool Trainer::evaluate_after_step() {
  progress_->pause();
  const std::optional<EvalOutcome> outcome = evaluate();
  if (!outcome) return false;
  state_.evaluated_step = state_.step;
  state_.rows.push_back({epoch_now(), state_.row_loss / static_cast<double>(state_.row_steps), *outcome});
  state_.row_loss = 0;
  state_.row_steps = 0;
  if (improves(*outcome)) state_.best_step = state_.step;
  progress_->resume();
  return true;
}

bool Trainer::improves(const EvalOutcome& outcome) {
  if (!std::isfinite(outcome.loss.value())) return false;  // even if exact match or F1 is better
  const double metric = metric_of(outcome, settings_.metric_for_best_model);
  if (state_.best_metric && metric <= *state_.best_metric) return false;
  state_.best_metric = metric;
  return true;
}

void Trainer::finish() {
  find_output_folder();
  finish_checkpoints();
  check_end();
  bytes_sent_ = session_.engine().bytes_sent();
  load_best_model();
  const double mean_loss = state_.total_loss / static_cast<double>(state_.loss_steps);  // NaN without a loss
  const Record gpu = gpu_of_all_ranks();
  speed_.log(steady_seconds());
  const TrainMetrics metrics{runtime_s(), state_.num_samples, state_.step, mean_loss, epoch_now()};
  say(trainer_line(metrics, line_style()));
  session_.worker().enter(Phase::save);
  check_parameters();
  const auto write_part = [&](const ModelWriter::Write& write) { session_.engine().save_parameters(write); };
  saving("The model", [&] { in_output_folder([&] { model_writer_->write(output_dir_ / "model", write_part); }); });
  Record timing = timing_record(metrics);
  if (!gpu.empty()) timing["gpu"] = gpu;
  append("summary",
         {{"train_loss", mean_loss},
          {"num_samples", state_.num_samples},
          {"num_tokens", state_.num_tokens},
          {"num_targets", state_.num_targets}},
         timing);
  const Record record = summary(metrics, gpu);
  if (!session_.worker().is_first()) return;
  write_file_atomically(output_dir_ / "summary.json", to_pretty_json(record) + "\n");
  if (trackers_) trackers_->finish(static_cast<int>(ExitCode::kDone), record, runtime_s());
  forget_overwritten_runs();
  if (settings_.json) {
    console_.print(to_json(record));
  } else {
    print_table(record);
  }
}

}  // namespace tessera
