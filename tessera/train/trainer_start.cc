// The start of a training run: does what choose_start() has decided.
#include <fmt/format.h>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/load/initial_weights.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/store/engine_checkpoint.h"
#include "tessera/store/file.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;

void Trainer::start() {
  session_.worker().enter(Phase::resume);
  const RunStart start = choose_start(session_, fingerprint_);
  if (!start.from) {
    start_again();
  } else if (start.in_new_folder) {
    begin_elsewhere(*start.from);
  } else {
    resume(start);
  }
  state_.choice = choice_;
}

void Trainer::restore(const RunStart::From& from) {
  const Checkpoint& checkpoint = from.checkpoint;
  if (from.state.step > calendar_->num_steps()) {
    throw UsageError(option_place(settings_.max_steps > 0 ? "max_steps" : "epochs"),
                     fmt::format("the run ends after step {}, but {} is from step {}", calendar_->num_steps(),
                                 checkpoint.folder().string(), from.state.step),
                     "Increase the number of steps or epochs, or name an earlier checkpoint with --resume");
  }
  state_ = from.state;
  const UnitStates states = session_.engine().states();
  restore_checkpoint(checkpoint, states, session_.world(), session_.pool());
  frozen_ = frozen_files_of(checkpoint, states);
  runtime_before_s_ = state_.runtime_s;
  session_.engine().set_num_updates(state_.num_updates);
  health_->restore(state_.health, state_.loss_scale);
  if (checkpoint.world_size() != session_.worker().num_ranks()) {
    console_.note(
        fmt::format("The checkpoint was made by {}, and this run has {}. The state is the same; sums round "
                    "differently from here on",
                    counted(checkpoint.world_size(), "rank"), session_.worker().num_ranks()));
  }
  if (state_.fused_micro_batches.value_or(fused_) != fused_) {
    console_.note(
        fused_ ? "The checkpoint's run computed the micro-batches of a step one by one, and this run computes them as "
                 "one. Sums round differently from here on. To avoid this, use --fuse-micro-batches off"
               : "The checkpoint's run computed the micro-batches of a step as one, and this run computes them one "
                 "by one. Sums round differently from here on");
  }
  state_.fused_micro_batches = fused_;
}

// Continues the run in the output folder. Checkpoints that are newer than the one that it starts from refer to records
// beyond the new end of metrics.jsonl, so they get a suffix. Collective.
void Trainer::resume(const RunStart& start) {
  const Checkpoint& checkpoint = start.from->checkpoint;
  const fs::path name = checkpoint_folder(settings_.output_dir, start.from->state.step);
  if (full_path(checkpoint.folder()) != full_path(name)) {
    throw UsageError(option_place("resume"),
                     fmt::format("{} was renamed: it may be superseded or damaged", checkpoint.folder().string()),
                     fmt::format("Rename it to {} first, or start a new run from it with another --output-dir",
                                 name.filename().string()));
  }
  restore(*start.from);
  checkpoints_->set_last_step(state_.step);
  if (session_.worker().is_first()) {
    recorder_->log_to(MetricsLog::resume((folder_->path() / MetricsLog::kFileName).string(), state_.metrics_bytes));
  }
  set_checkpoints_aside(settings_.output_dir, session_.world(), state_.step, start.is_chosen ? "superseded" : "damaged",
                        [&](const std::string& text) { console_.note(text); });
  // The earlier run may have ended before it removed old checkpoints. No step has used the newest one yet.
  rotate(true);
  checkpoints_->rotate_later();
  const int64_t num_steps = calendar_->num_steps();
  console_.note(fmt::format("Resuming from {} (step {} of {})", checkpoint.folder().string(), state_.step, num_steps));
  for (const Change& change : start.from->changes) {
    const bool computes =
        session_.worker().device().kind() == DeviceKind::cpu || session_.engine().shard_plan().options().offload.any();
    if (change.key != "instruction_set" || !computes) continue;
    console_.note("The checkpoint " + listed({change}) + ". The losses can differ in the last bits");
  }
  const Record then = TrainState::fingerprint_in(checkpoint.trainer_state(), state_file(checkpoint));
  if (start.from->changes.empty() || !then.contains("max_steps") || !then.contains("epochs")) return;
  const int64_t steps_then =
      total_steps(then["max_steps"].get<int64_t>(), then["epochs"].get<double>(), calendar_->epochs());
  if (steps_then != num_steps) {
    console_.note(note_of_length(settings_, steps_then, num_steps, state_.step, state_.num_updates));
  }
}

// Begins a new run from a checkpoint in another folder. Collective.
void Trainer::begin_elsewhere(const RunStart::From& from) {
  const Checkpoint& checkpoint = from.checkpoint;
  restore(from);
  make_way(session_);
  if (session_.worker().is_first()) {
    const fs::path source = checkpoint.folder().parent_path() / MetricsLog::kFileName,
                   log = folder_->path() / MetricsLog::kFileName;
    const auto bytes = static_cast<size_t>(state_.metrics_bytes);
    std::string records = fs::exists(source) ? read_file(source, {}) : "";
    const bool is_its_log = records.size() >= bytes && (bytes == 0 || records[bytes - 1] == '\n');
    if (!is_its_log) {
      console_.note(fmt::format("warning: {} does not hold the records up to step {}: {} begins with the next step",
                                source.string(), state_.step, log.string()));
    }
    records.resize(is_its_log ? bytes : 0);
    write_file_atomically(log, records);
    recorder_->log_to(MetricsLog::resume(log.string(), static_cast<int64_t>(records.size())));
  }
  console_.note(fmt::format("A new run from {} (step {} of {}). The search for the best model starts here",
                            checkpoint.folder().string(), state_.step, calendar_->num_steps()));
  for (const Change& change : from.changes) console_.note("The checkpoint's run had " + change.shown());
}

void Trainer::start_again() {
  session_.worker().enter(Phase::load);
  state_.fused_micro_batches = fused_;
  session_.load_weights();
  frozen_ = frozen_files(settings_, session_.engine().model(), session_.world(), session_.pool());
  make_way(session_);
  if (session_.worker().is_first()) {
    recorder_->log_to(MetricsLog::create((folder_->path() / MetricsLog::kFileName).string()));
  }
}

}  // namespace tessera
