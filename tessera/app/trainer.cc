#include "tessera/app/trainer.h"
#include "tessera/app/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "tessera/app/memory_check.h"
#include "tessera/app/model_files.h"
#include "tessera/report/summary.h"
#include "tessera/report/table.h"
#include "tessera/report/text.h"
#include "tessera/store/atomic_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

BatchOptions batch_options(const Settings& s, size_t num_samples) {
  BatchOptions options;
  options.num_samples = static_cast<int64_t>(num_samples);
  options.batch_size = s.batch_size;
  options.grad_accum = s.grad_accum;
  options.seed = static_cast<uint64_t>(s.seed);
  options.shuffle = s.shuffle;
  return options;
}

// The most memory this process has had resident.
int64_t peak_resident_bytes() {
  // Not getrusage(): its figure starts at what the parent process had.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

double metric_of(const EvalOutcome& outcome, Settings::Metric metric) {
  switch (metric) {
    case Settings::Metric::eval_loss:
      return -outcome.loss.value();
    case Settings::Metric::exact_match:
      return outcome.exact_match.value();
    case Settings::Metric::f1:
      return outcome.f1.value();
  }
  return 0;
}

}  // namespace

WorkBounds training_work(const Settings& settings, const Dataset& train, const Dataset* eval) {
  WorkBounds work;
  work.training = bounds_of(train.samples, settings.batch_size);
  if (eval) work.evaluation = bounds_of(eval->samples, settings.eval_batch_size);
  if (eval && settings.eval_generation) {
    work.generation = bounds_of(eval->prompts, settings.eval_batch_size);
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

static WorkBounds work_within_memory(const Settings& settings, const ModelConfig& config, const Dataset& train,
                                     const Dataset* eval) {
  const WorkBounds work = training_work(settings, train, eval);
  check_memory(config, engine_options(settings), work);
  return work;
}

Trainer::Trainer(const Settings& settings, std::string resolved_config, Console& console)
    : settings_(settings),
      resolved_config_(std::move(resolved_config)),
      console_(console),
      lock_(settings.output_dir),
      worker_(settings),
      config_(model_config_of(settings)),
      tokenizer_(tokenizer_of(settings, config_)),
      train_(load_dataset(settings, DatasetUse::training, tokenizer_, config_.eos_token_id, false, worker_.pool())),
      eval_(eval_dataset_of(settings, tokenizer_, config_.eos_token_id, worker_.pool())),
      work_(work_within_memory(settings, config_, train_, eval_ ? &*eval_ : nullptr)),
      engine_(worker_.place(), config_, engine_options(settings)) {
  remove_stale_temporaries(settings_.output_dir);
  fingerprint_ = train_fingerprint(settings_, config_, train_.samples);
  if (eval_) {
    fingerprint_.set("eval_data_checksum", checksum_of(eval_->samples))
        .set("eval_generation", settings_.eval_generation);
    fingerprint_.set("max_new_tokens", settings_.max_new_tokens)
        .set("workshop_scoring", settings_.scoring == Scoring::workshop);
  }
  const BatchPlan plan(batch_options(settings_, train_.samples.size()), 0);
  steps_per_epoch_ = plan.num_steps();
  // As the Trainer: a fraction of an epoch is rounded up to a whole step.
  num_steps_ = settings_.max_steps > 0
                   ? settings_.max_steps
                   : static_cast<int64_t>(std::ceil(settings_.epochs * static_cast<double>(steps_per_epoch_)));
  const auto ratio_steps = static_cast<int64_t>(std::ceil(settings_.warmup_ratio * static_cast<double>(num_steps_)));
  schedule_ = {settings_.lr_schedule, settings_.warmup_steps > 0 ? settings_.warmup_steps : ratio_steps,
               settings_.lr_decay_steps > 0 ? settings_.lr_decay_steps : num_steps_, settings_.warmup_type};
  if (eval_) eval_every_ = interval(settings_.eval_strategy, settings_.eval_steps);
  save_every_ = interval(settings_.save_strategy, settings_.save_steps);
  engine_.prepare(work_);
}

Trainer::Interval Trainer::interval(Settings::Interval kind, int64_t steps) const {
  switch (kind) {
    case Settings::Interval::no:
      return {0};
    case Settings::Interval::epoch:
      return {steps_per_epoch_};
    case Settings::Interval::steps:
      return {steps};
  }
  return {0};
}

int Trainer::run() {
  resume_or_start();
  write_file_atomically(fs::path(settings_.output_dir) / "resolved-config.toml", resolved_config_);
  return train();
}

void Trainer::resume_or_start() {
  if (settings_.resume == "none" || !resume()) start_anew();
}

bool Trainer::resume() {
  worker_.enter(Phase::resume);
  const auto warn = [&](const std::string& text) { console_.note("warning: " + text); };
  const std::optional<Checkpoint> checkpoint =
      settings_.resume == "auto" ? latest_checkpoint(settings_.output_dir, worker_.world(), warn, &worker_.pool())
                                 : Checkpoint::open_verified(settings_.resume, worker_.world(), &worker_.pool());
  if (!checkpoint) return false;
  std::error_code ignored;  // what is not there is not the same
  if (!fs::equivalent(checkpoint->folder(), checkpoint_folder(settings_.output_dir, checkpoint->step()), ignored)) {
    throw UsageError(
        "--resume",
        fmt::format("{} is no checkpoint of the output folder {}", checkpoint->folder().string(), settings_.output_dir),
        "Give the output folder of the run that made it");
  }
  const std::string where = (checkpoint->folder() / "trainer_state.json").string();
  state_ = TrainState::from_json(checkpoint->trainer_state(), fingerprint_, where);
  restore_checkpoint(*checkpoint, engine_, true, worker_.pool());
  runtime_before_s_ = state_.runtime_s;
  last_saved_step_ = state_.step;
  if (state_.num_threads != worker_.pool().num_threads()) {
    warn(fmt::format(
        "the checkpoint was made on {} threads; on {} sums round otherwise, and results may differ in their "
        "last digits",
        state_.num_threads, worker_.pool().num_threads()));
  }
  metrics_.emplace(
      MetricsLog::resume((fs::path(settings_.output_dir) / "metrics.jsonl").string(), state_.metrics_bytes));
  forget_steps_after(state_.step);
  console_.note(
      fmt::format("Resuming from {} (step {} of {})", checkpoint->folder().string(), state_.step, num_steps_));
  return true;
}

// Checkpoints of later steps, damaged or of a run that is not continued, would point beyond the end of metrics.jsonl.
void Trainer::forget_steps_after(int64_t last) {
  for (const int64_t step : checkpoint_steps(settings_.output_dir)) {
    if (step <= last) continue;
    const fs::path folder = checkpoint_folder(settings_.output_dir, step);
    console_.note(fmt::format("Removing {}, which this run does not go on from", folder.string()));
    remove_folder_atomically(folder);
  }
}

void Trainer::start_anew() {
  worker_.enter(Phase::load);
  load_or_initialize(engine_, settings_, worker_.pool());
  if (settings_.resume == "none") forget_steps_after(-1);
  metrics_.emplace(MetricsLog::create((fs::path(settings_.output_dir) / "metrics.jsonl").string()));
}

// With --json, standard output is the summary alone.
void Trainer::say(const std::string& line) {
  if (settings_.json)
    console_.note(line);
  else
    console_.print(line);
}

int Trainer::train() {
  const StopSignals signals;
  begin_s_ = steady_seconds();
  const Model& model = engine_.model();
  console_.note(fmt::format("{} parameters, {} samples, {} steps of {} x {} samples, {} threads",
                            format_count(model.num_parameters()),
                            format_count(static_cast<int64_t>(train_.samples.size())), num_steps_, settings_.batch_size,
                            settings_.grad_accum, worker_.pool().num_threads()));
  if (settings_.eval_before && eval_ && state_.step == 0 && !state_.evaluated_before) {
    state_.before = evaluate();
    state_.evaluated_before = true;
  }
  progress_.emplace(console_,
                    ProgressOptions{.description = "Training", .first_step = state_.step, .total_steps = num_steps_});
  while (state_.step < num_steps_) {
    const BatchPlan plan(batch_options(settings_, train_.samples.size()), state_.step / steps_per_epoch_);
    for (int64_t i = state_.step % steps_per_epoch_; i < steps_per_epoch_ && state_.step < num_steps_; ++i) {
      one_step(plan, i);
      const int64_t best_before = state_.best_step;
      if (eval_every_.due(state_.step, num_steps_)) evaluate_after_step();
      const bool best = settings_.load_best_model_at_end && state_.best_step != best_before;
      if (save_every_.due(state_.step, num_steps_) || best) checkpoint();
      if (signals.received() && state_.step < num_steps_) {
        if (last_saved_step_ != state_.step) checkpoint();
        progress_.reset();
        console_.note(fmt::format("Stopped by signal {} after step {}; saved. Start the same command again to go on.",
                                  signals.received(), state_.step));
        return static_cast<int>(ExitCode::kSavedAfterSignal);
      }
    }
  }
  progress_->finish();
  finish();
  return static_cast<int>(ExitCode::kDone);
}

void Trainer::one_step(const BatchPlan& plan, int64_t step_of_epoch) {
  worker_.enter(Phase::step);
  const double begin_s = steady_seconds();
  std::vector<PackedBatch> window;
  for (const auto indices : plan.step(step_of_epoch)) {
    window.push_back(pack(train_.samples, indices));
    window.back().first_sequence = plan.first_sequence(step_of_epoch, std::ssize(window) - 1);
  }
  const double learning_rate = scheduled_rate(schedule_, settings_.warmup_min_lr, settings_.lr, state_.step);
  const StepResult result = engine_.train_step(window, learning_rate);

  ++state_.step;
  state_.num_samples += result.num_sequences;
  state_.num_tokens += result.num_tokens;
  state_.num_targets += result.num_targets;
  for (double* sum : {&state_.total_loss, &state_.logged_loss, &state_.row_loss}) *sum += result.loss();
  ++state_.logged_steps;
  ++state_.row_steps;
  if (++steps_of_this_run_ > 1) {
    state_.steady_s += steady_seconds() - begin_s;
    state_.steady_samples += result.num_sequences;
    state_.steady_tokens += result.num_tokens;
  }
  progress_->update(state_.step, result.num_sequences, result.loss());
  if (settings_.logging_steps > 0 && state_.step % settings_.logging_steps == 0) log_step(result, learning_rate);
}

void Trainer::log_step(const StepResult& result, double learning_rate) {
  const StepMetrics metrics{state_.logged_loss / static_cast<double>(state_.logged_steps), result.gradient_norm,
                            learning_rate, epoch_now()};
  say(trainer_line(metrics));
  Record timing{{"runtime_s", runtime_s()}};
  if (state_.steady_s > 0)
    timing.set("samples_per_second", static_cast<double>(state_.steady_samples) / state_.steady_s);
  metrics_->append("train", state_.step, metrics.epoch,
                   {{"loss", metrics.loss},
                    {"grad_norm", metrics.grad_norm},
                    {"learning_rate", learning_rate},
                    {"num_targets", result.num_targets},
                    {"num_tokens", result.num_tokens}},
                   timing);
  state_.logged_loss = 0;
  state_.logged_steps = 0;
}

EvalOutcome Trainer::evaluate() {
  worker_.enter(Phase::evaluation);
  EvalOutcome outcome;
  const LossEvaluation loss = evaluate_loss(engine_, eval_->samples, settings_.eval_batch_size, console_);
  outcome.loss = loss.loss;
  say(trainer_line(EvalMetrics{loss.loss, loss.runtime_s, loss.num_samples, loss.num_steps, epoch_now()}));
  Record values{{"eval_loss", loss.loss}}, timing{{"eval_runtime", loss.runtime_s}};
  if (settings_.eval_generation) {
    const AnswerEvaluation answers = evaluate_answers(engine_, *eval_, tokenizer_, settings_.eval_batch_size,
                                                      settings_.max_new_tokens, settings_.scoring, console_);
    outcome.exact_match = answers.metrics.exact_match;
    outcome.f1 = answers.metrics.f1;
    say(trainer_line(answers.metrics));
    values.set("exact_match", *outcome.exact_match).set("f1", *outcome.f1);
    timing.set("answers_runtime", answers.runtime_s);
  }
  metrics_->append("eval", state_.step, epoch_now(), values, timing);
  return outcome;
}

void Trainer::evaluate_after_step() {
  progress_->pause();
  const EvalOutcome outcome = evaluate();
  state_.rows.push_back(
      {epoch_now(), state_.row_loss / static_cast<double>(std::max<int64_t>(1, state_.row_steps)), outcome});
  state_.row_loss = 0;
  state_.row_steps = 0;
  if (improves(outcome)) state_.best_step = state_.step;
  progress_->resume();
}

bool Trainer::improves(const EvalOutcome& outcome) {
  const double metric = metric_of(outcome, settings_.metric_for_best_model);
  if (!std::isfinite(metric) || (state_.best_metric && metric <= *state_.best_metric)) return false;
  state_.best_metric = metric;
  return true;
}

void Trainer::checkpoint() {
  if (last_saved_step_ == state_.step) return;
  worker_.enter(Phase::save);
  progress_->pause();
  state_.metrics_bytes = metrics_->synced_size_bytes();
  state_.runtime_s = runtime_s();
  state_.num_threads = worker_.pool().num_threads();
  save_checkpoint(settings_.output_dir, worker_.world(), engine_, state_, fingerprint_, worker_.pool());
  last_saved_step_ = state_.step;
  if (settings_.save_total_limit > 0) {
    std::set<int64_t> kept;
    if (settings_.load_best_model_at_end && state_.best_metric) kept.insert(state_.best_step);
    rotate_checkpoints(settings_.output_dir, worker_.world(), static_cast<int>(settings_.save_total_limit), kept);
  }
  progress_->resume();
}

void Trainer::finish() {
  const fs::path folder = settings_.output_dir;
  if (settings_.load_best_model_at_end && state_.best_metric && state_.best_step != state_.step) {
    const fs::path best = checkpoint_folder(folder, state_.best_step);
    restore_checkpoint(Checkpoint::open_verified(best, worker_.world(), &worker_.pool()), engine_, false,
                       worker_.pool());
    console_.note(fmt::format("Took the best model, of step {}", state_.best_step));
  }
  const double mean_loss = state_.step ? state_.total_loss / static_cast<double>(state_.step) : 0;
  const TrainMetrics metrics{runtime_s(), state_.num_samples, state_.step, mean_loss, epoch_now()};
  say(trainer_line(metrics));
  const auto parameters_of = [&](int64_t unit) { return engine_.parameters(unit).flat; };
  save_model(engine_.model(), parameters_of, folder / "model", tokenizer_, settings_);
  Record timing{{"train_runtime", metrics.runtime_s}};
  metrics_->append("summary", state_.step, metrics.epoch,
                   {{"train_loss", mean_loss},
                    {"num_samples", state_.num_samples},
                    {"num_tokens", state_.num_tokens},
                    {"num_targets", state_.num_targets}},
                   timing);
  const Record record = summary();
  write_summary((folder / "summary.json").string(), record);
  if (settings_.json)
    console_.print(to_json(record));
  else
    print_table(record);
}

Record Trainer::summary() const {
  const auto best_row = [&]() -> const EpochRow* {
    if (state_.rows.empty()) return nullptr;
    if (!settings_.load_best_model_at_end || !state_.best_metric) return &state_.rows.back();
    const auto is_best = [&](const EpochRow& row) {
      return metric_of(row.eval, settings_.metric_for_best_model) == *state_.best_metric;
    };
    return &*std::find_if(state_.rows.begin(), state_.rows.end(), is_best);
  }();
  const auto put = [](Record& record, const EvalOutcome& outcome, const std::string& suffix) {
    if (outcome.exact_match) record.set("exact_match" + suffix, *outcome.exact_match);
    if (outcome.f1) record.set("f1" + suffix, *outcome.f1);
    if (outcome.loss) record.set("eval_loss" + suffix, *outcome.loss);
  };
  Record record{{"schema", 1}, {"model", (fs::path(settings_.output_dir) / "model").string()}};
  if (best_row) put(record, best_row->eval, "");
  put(record, state_.before, "_before");
  const double seconds = runtime_s();
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  record.set("train_loss", state_.step ? state_.total_loss / static_cast<double>(state_.step) : 0.0);
  record.set("epoch", epoch_now()).set("steps", state_.step).set("best_step", state_.best_step);
  record.set("num_parameters", engine_.model().num_parameters());
  record.set("num_samples", state_.num_samples)
      .set("num_tokens", state_.num_tokens)
      .set("num_targets", state_.num_targets);
  record.set("train_runtime", seconds).set("train_samples_per_second", rate(state_.num_samples, seconds));
  record.set("train_steps_per_second", rate(state_.step, seconds));
  record.set("train_samples_per_second_steady", rate(state_.steady_samples, state_.steady_s));
  record.set("train_tokens_per_second_steady", rate(state_.steady_tokens, state_.steady_s));
  record.set("peak_memory_bytes", peak_resident_bytes());
  Record ledger;
  const Ledger& book = worker_.device().ledger();
  for (int c = 0; c < kNumCategories; ++c) {
    int64_t peak = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      peak = std::max(peak, book.peak(static_cast<Phase>(p), static_cast<Category>(c)));
    }
    ledger.set(name_of(static_cast<Category>(c)), peak);
  }
  ledger.set("total", book.peak_total());
  record.set("ledger_peak_bytes", ledger);
  std::vector<Value> rows;
  for (const EpochRow& row : state_.rows) {
    Record value{{"epoch", row.epoch}, {"train_loss", row.train_loss}};
    put(value, row.eval, "");
    rows.emplace_back(value);
  }
  return record.set("epochs", rows);
}

void Trainer::print_table(const Record& summary) const {
  const auto number = [](const std::optional<double>& value, int decimals) {
    return value ? fmt::format("{:.{}f}", *value, decimals) : std::string("-");
  };
  Table table({{"epoch", Align::kRight},
               {"train loss", Align::kRight},
               {"eval loss", Align::kRight},
               {"exact match", Align::kRight},
               {"F1", Align::kRight}});
  const auto add = [&](const std::string& epoch, std::optional<double> loss, const EvalOutcome& e) {
    table.row({epoch, number(loss, 4), number(e.loss, 4), number(e.exact_match, 3), number(e.f1, 3)});
  };
  if (state_.evaluated_before) add("before", std::nullopt, state_.before);
  for (const EpochRow& row : state_.rows) add(fmt::format("{:.2f}", row.epoch), row.train_loss, row.eval);
  if (state_.evaluated_before || !state_.rows.empty()) console_.print(table.render(console_.out_terminal()));
  const auto field = [&](const char* key) { return *summary.find(key)->get_if<double>(); };
  console_.print(fmt::format("speed   {} samples/s, {} tokens/s", format_rate(field("train_samples_per_second_steady")),
                             format_rate(field("train_tokens_per_second_steady"))));
  console_.print(
      fmt::format("memory  {} at most", format_bytes(*summary.find("peak_memory_bytes")->get_if<int64_t>())));
  console_.print(fmt::format("model   {}", *summary.find("model")->get_if<std::string>()));
}

}  // namespace tessera
