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

namespace {

std::vector<int64_t> lengths_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> lengths;
  lengths.reserve(samples.size());
  for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.ids));
  return lengths;
}

// `lengths` must outlive the result.
BatchOptions batch_options(const Settings& s, const std::vector<int64_t>& lengths, const Model& model,
                           const Communicator& world) {
  BatchOptions options;
  options.world_size = world.size();
  options.rank = world.rank();
  options.num_samples = std::ssize(lengths);
  options.batch_size = s.batch_size;
  options.grad_accum = s.grad_accum;
  options.seed = static_cast<uint64_t>(s.seed);
  options.shuffle = s.shuffle;
  options.batch_tokens = s.batch_tokens;
  options.max_batch_samples = kMaxBatchSequences;
  options.lengths = lengths;
  options.cost = cost_of_samples(model);
  return options;
}

}  // namespace

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

static bool fits_fused(const Settings& settings, const Worker& worker, const ModelConfig& config, const Dataset& train,
                       const Dataset* eval) {
  const Plan plan = plan_training(config, settings, training_work(settings, train, eval, true), worker.planned_rank());
  return plan.device.peak_total() <= cuda_memory_of(worker.device()).usable_bytes;
}

// Whether the micro-batches of a step run as one batch. They do on GPUs with enough memory, because small batches leave
// most of a GPU idle. --fuse-micro-batches off prevents this. Collective.
static bool runs_fused(const Settings& settings, const Worker& worker, const ModelConfig& config, const Dataset& train,
                       const Dataset* eval) {
  if (settings.fuse_micro_batches == Settings::FuseMicroBatches::off || settings.grad_accum == 1) return false;
  if (worker.device().kind() != DeviceKind::cuda) return false;
  const bool fits = is_supported(training_work(settings, train, eval, true).training, config) &&
                    fits_fused(settings, worker, config, train, eval);
  return worker.world().sum({static_cast<double>(fits)}, "memory of micro-batches")[0] == worker.num_ranks();
}

static WorkBounds work_within_memory(const Settings& settings, const Worker& worker, const ModelConfig& config,
                                     const Dataset& train, const Dataset* eval, bool fused) {
  const auto work_of = [&](const Settings& s) { return training_work(s, train, eval, fused); };
  check_memory(config, settings, work_of, worker.planned_rank(), worker.local_ranks(),
               usable_gpu_bytes(worker.device()));
  check_disk(config, settings, work_of, worker.planned_rank(), worker.local_ranks());
  return work_of(settings);
}

// Whether the run will probably start from a checkpoint.
static bool resumes(const Settings& settings) {
  return settings.resume != "none" && (settings.resume != "auto" || !checkpoint_steps(settings.output_dir).empty());
}

// Throws OutOfMemoryError if the run does not fit any more. If it fits, returns advice on how to use less memory.
std::string Trainer::check_memory_again() const {
  const Dataset* eval = eval_ ? &*eval_ : nullptr;
  const auto work_of = [&](const Settings& s) { return training_work(s, train_, eval, false); };
  const PlannedRank rank = worker_.planned_rank();
  const LocalRanks local = worker_.local_ranks();
  check_memory(config_, settings_, work_of, rank, local, usable_gpu_bytes(worker_.device()));
  if (fused_ && !fits_fused(settings_, worker_, config_, train_, eval)) {
    throw OutOfMemoryError("memory", "another process took GPU memory after the memory check of this run",
                           "Start the run again, or add --fuse-micro-batches off");
  }
  return advice_for_less(config_, settings_, work_of, rank, local, usable_gpu_bytes(worker_.device()));
}

Trainer::Trainer(const Settings& settings, std::string resolved_config, Console& console, World* world,
                 std::function<int()> received_signal)
    : settings_(settings),
      resolved_config_(std::move(resolved_config)),
      console_(console),
      received_signal_(std::move(received_signal)),
      read_ahead_(resumes(settings) ? ReadAhead() : read_weights_ahead(settings, world)),
      worker_(settings, world),
      memory_log_(start_memory_log(settings, worker_, world, console)),
      config_(model_config_of(settings)),
      tokenizer_(tokenizer_of(settings, config_)),
      data_(load_training_data(settings, tokenizer_, config_, worker_.pool())),
      fused_(runs_fused(settings, worker_, config_, train_, eval_ ? &*eval_ : nullptr)),
      work_(work_within_memory(settings, worker_, config_, train_, eval_ ? &*eval_ : nullptr, fused_)),
      engine_(within_memory([&] { return check_memory_again(); },
                            [&] { return Engine(worker_.place(), config_, engine_options(settings)); })),
      lengths_(lengths_of(train_.samples)),
      batch_options_(batch_options(settings_, lengths_, engine_.model(), worker_.world())),
      epochs_(batch_options_) {
  if (worker_.is_first()) lock_.emplace(settings_.output_dir, settings_.owner_timeout);
  fingerprint_ = train_fingerprint(settings_, config_, train_.samples, worker_.num_ranks());
  if (eval_) {
    fingerprint_["eval_data_checksum"] = checksum_of(eval_->samples);
    fingerprint_["eval_generation"] = settings_.eval_generation;
    fingerprint_["max_new_tokens"] = settings_.max_new_tokens;
    fingerprint_["workshop_scoring"] = settings_.scoring == Scoring::workshop;
  }
  num_steps_ = total_steps(settings_.max_steps, settings_.epochs, epochs_);
  schedule_ = schedule_options(settings_, num_steps_);
  if (eval_) eval_every_ = {settings_.eval_strategy, settings_.eval_steps.of(num_steps_)};
  save_every_ = {settings_.save_strategy, settings_.save_steps.of(num_steps_)};
  logging_steps_ = settings_.logging_steps.of(num_steps_);
  if (settings_.precision == Settings::Precision::fp16) loss_scaler_.emplace(settings_.loss_scaling());
  // The lock of rank 0 has created the output folder. After this exchange, the folder exists for all ranks.
  check_ranks_agree(worker_.world(), fingerprint_);
  within_memory([&] { return check_memory_again(); }, [&] { engine_.prepare(work_); });
  if (settings_.save_async) background_ = std::make_unique<BackgroundCheckpoint>(worker_.host(), worker_.world());
}

bool Trainer::due(const Interval& interval) const {
  const bool is_last = state_.step == num_steps_;
  switch (interval.kind) {
    case Settings::Interval::no:
      return false;
    case Settings::Interval::epoch:
      return is_last || epochs_.ends_after(state_.step);
    case Settings::Interval::steps:
      return interval.steps > 0 && (is_last || state_.step % interval.steps == 0);
  }
  return false;
}

int Trainer::run(const std::function<void()>& started) {
  if (stop_asked() || !take_output_folder()) return stop();  // a signal must not wait until the model is loaded
  return within_memory([&] { return check_memory_again(); },
                       [&] {
                         resume_or_start();
                         // Reads the tensors' types now: at the end, the initial model's files may be gone.
                         if (!state_.loaded_types) {
                           state_.loaded_types = loaded_types_of(engine_.model(), settings_, worker_.world());
                         }
                         model_writer_.emplace(engine_.model(), tokenizer_, settings_, *state_.loaded_types,
                                               worker_.world(), worker_.pool());
                         if (worker_.is_first()) {
                           write_file_atomically(fs::path(settings_.output_dir) / "resolved-config.toml",
                                                 resolved_config_);
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
  gpu_sampler_ = make_gpu_sampler(worker_.device());
  worker_.note_precision(settings_, console_);
  worker_.note_device(settings_, console_);
  worker_.note_unpinned(console_);
  note_model(config_, console_);
  note_unused_keys(tokenizer_.unused_keys(), console_);
  note_data(train_.use, settings_, console_);
  if (eval_) {
    note_data(eval_->use, settings_, console_);
    note_long_no_answer(eval_->use, tokenizer_, settings_, console_);
  }
  const std::string ranks = worker_.num_ranks() == 1 ? "" : fmt::format("{} ranks of ", worker_.num_ranks());
  const int64_t all = engine_.model().num_parameters(), trained = engine_.model().num_trainable_parameters();
  const std::string some = trained < all ? fmt::format(" ({} of them trainable)", format_count(trained)) : "";
  console_.note(fmt::format("{} parameters{}, {} {}, {} of {}{}, {}{}", format_count(all), some,
                            format_count(std::ssize(train_.samples)), noun_for(train_.samples.size(), "sample"),
                            counted(num_steps_, "step"), settings_.batch_words(), ranks.empty() ? "" : " per rank",
                            ranks, counted(worker_.pool().num_threads(), "thread")));
  if (settings_.offload.uses(Tier::host) && worker_.device().host_visible()) {
    console_.note("On the CPU, device and host share the same memory. Offloading to the host saves no memory");
  }
  if (settings_.eval_before && eval_ && state_.step == 0 && !state_.evaluated_before) {
    const std::optional<EvalOutcome> before = evaluate();
    if (!before) return stop();
    state_.before = *before;
    state_.evaluated_before = true;
  }
  progress_.emplace(
      console_, ProgressOptions{
                    .description = "Training", .first_step = state_.step, .total_steps = num_steps_, .unit = "tokens"});
  std::optional<BatchPlan> plan;
  for (int64_t epoch = -1;;) {
    const int64_t best_before = state_.best_step;
    if (state_.step > 0 && state_.evaluated_step != state_.step && due(eval_every_)) {
      if (!evaluate_after_step()) return stop();
    }
    const bool best = settings_.load_best_model_at_end && state_.best_step != best_before;
    if (state_.step > 0 && (due(save_every_) || best)) checkpoint();
    if (state_.step >= num_steps_) break;
    if (stop_asked()) return stop();
    const EpochSteps::Place place = epochs_.place_of(state_.step);
    if (std::exchange(epoch, place.epoch) != place.epoch) plan.emplace(batch_options_, epoch);
    one_step(*plan, place.step);
    if (std::exchange(rotates_, false)) rotate();
  }
  progress_->finish();
  finish();
  return static_cast<int>(ExitCode::kDone);
}

// Whether any rank has received a signal to stop. Collective.
bool Trainer::stop_asked() {
  if (worker_.num_ranks() == 1) {
    stop_signal_ = received_signal_();
  } else {
    for (const std::string& text : worker_.world().all_gather_text(std::to_string(received_signal_()), "signals")) {
      stop_signal_ = std::max(stop_signal_, std::stoi(text));
    }
  }
  return stop_signal_ != 0;
}

std::string note_of_stop(int signal, int64_t step, const std::string& added_words) {
  const std::string when =
      step > 0 ? fmt::format("after step {}. A checkpoint is saved", step) : "before the run had anything to save";
  return fmt::format("Stopped by signal {} {}. Start the same command again{} to continue.", signal, when, added_words);
}

int Trainer::stop() {
  if (state_.step > 0) {
    const bool is_extra = last_saved_step_ != state_.step && !due(save_every_);
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
  worker_.enter(Phase::step);
  const double begin_s = steady_seconds();
  std::vector<PackedBatch> window;
  for (const MicroBatch& micro_batch : plan.step(step_of_epoch)) {
    window.push_back(pack(train_.samples, micro_batch.indices));
    auto& numbers = window.back().sequence_numbers;
    numbers.resize(micro_batch.indices.size());
    std::iota(numbers.begin(), numbers.end(), micro_batch.first_sequence);
  }
  if (fused_) window = {merged(window)};
  const double learning_rate = scheduled_rate(schedule_, rate_bounds(settings_), engine_.num_updates());
  const double loss_scale = loss_scaler_ ? loss_scaler_->scale() : 1;
  const StepResult result = engine_.train_step(window, learning_rate, loss_scale);

  ++state_.step;
  if (memory_log_) memory_log_->note_step(state_.step);
  utilization_.add(worker_.device().ledger().current_total(), gpu_sampler_ ? gpu_sampler_->latest() : GpuSample{});
  speed_.add(result.num_sequences);
  state_.num_updates = engine_.num_updates();
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
  if (logging_steps_ > 0 && state_.step % logging_steps_ == 0) {
    log_step(result, learning_rate, loss_scale);
  }
}

void Trainer::log_step(const StepResult& result, double learning_rate, double loss_scale) {
  // A mean of no losses is NaN. The line then has no loss, unless the losses were NaN or infinite.
  const double loss = state_.logged_loss / static_cast<double>(state_.logged_steps);
  const bool has_targets = result.num_targets > 0;
  StepMetrics metrics{.loss = {}, .grad_norm = {}, .learning_rate = learning_rate, .epoch = epoch_now()};
  if (has_targets || state_.logged_steps > 0) metrics.loss = loss;
  if (has_targets) metrics.grad_norm = result.gradient_norm;
  say(trainer_line(metrics, line_style()));
  Record timing{{"runtime_s", runtime_s()}};
  if (state_.steady_s > 0) timing["samples_per_second"] = static_cast<double>(state_.steady_samples) / state_.steady_s;
  timing.update(speed_.log(steady_seconds()));
  Record values{{"loss", loss},
                {"grad_norm", result.gradient_norm},
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
  worker_.enter(Phase::evaluation);
  EvalOutcome outcome;
  const auto stop = [&] { return stop_asked(); };
  const auto loss = evaluate_loss(engine_, worker_.world(), eval_->samples, settings_.eval_batch_size, console_, stop);
  if (!loss) return std::nullopt;
  outcome.loss = loss->loss;
  const EvalMetrics metrics{loss->loss, loss->runtime_s, loss->num_samples, loss->num_steps, epoch_now()};
  state_.eval_timing = timing_record(metrics);
  Record values{{"eval_loss", loss->loss}};
  std::optional<AnswerEvaluation> answers;
  if (settings_.eval_generation) {
    answers = evaluate_answers(engine_, worker_.world(), *eval_, tokenizer_, settings_, console_, stop);
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
  bytes_sent_ = engine_.bytes_sent();
  load_best_model();
  const double mean_loss = state_.total_loss / static_cast<double>(state_.loss_steps);  // NaN without a loss
  const Record gpu = gpu_of_all_ranks();
  speed_.log(steady_seconds());
  const bool has_loss = state_.num_targets > 0;
  const TrainMetrics metrics{runtime_s(), state_.num_samples, state_.step,
                             has_loss ? std::optional(mean_loss) : std::nullopt, epoch_now()};
  say(trainer_line(metrics, line_style()));
  worker_.enter(Phase::save);
  check_parameters();
  const auto write_part = [&](const ModelWriter::Write& write) { engine_.save_parameters(write); };
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
  if (!worker_.is_first()) return;
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
