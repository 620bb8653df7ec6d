#include "tessera/launch/launch.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/process.h"
#include "tessera/launch/ranks_process.h"
#include "tessera/launch/restarts.h"
#include "tessera/log/console.h"

namespace tessera {
namespace {

// How an attempt ended. An attempt is one start of all ranks; a restart is a further attempt.
struct Outcome {
  int code = 0;
  std::string account{};  // describes the failure; empty: the launcher has nothing to report
  bool may_restart = false;
};

// Refuses numbers of ranks that would make the machine unusable.
void check_number(const ResolvedSettings& resolved) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t most = std::max<int64_t>(64, 16 * cores);
  if (resolved.settings.nproc <= most) return;
  throw UsageError(resolved.where("nproc"),
                   fmt::format("{} ranks are too many for this machine with {}. At most {} may start",
                               resolved.settings.nproc, counted(cores, "core"), most),
                   "Start the ranks on several machines with mpirun, srun or torchrun");
}

std::string account_of_death(const StatusBoard& board, int rank, int status) {
  std::string error = fmt::format("rank {} {}", rank, text_of_end(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    error += ", perhaps by the system because memory ran out";
  } else if (!WIFSIGNALED(status)) {
    error += " and without a message";
  }
  return board.account({rank, ExitCode::kRunFailed, error});
}

// Whether a signal that the launcher forwarded has ended a process. A process ends itself with 128 + n on a second
// signal n.
bool is_forwarded(const RanksEnd& end, int status) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  return std::count(end.forwarded.begin(), end.forwarded.end(), signal) > 0;
}

Outcome outcome_of(const RanksEnd& end, const StatusBoard& board) {
  const bool signalled = !end.forwarded.empty();
  const auto failed = [&](ExitCode code, std::string account) {
    const bool again = code == ExitCode::kRunFailed || code == ExitCode::kCommunication;
    return Outcome{static_cast<int>(code), std::move(account), again && !signalled};
  };
  const bool has_died = !end.lost.empty();
  const auto failure = board.first_failure();
  if (failure && failure->code == ExitCode::kOutputClosed) return {static_cast<int>(ExitCode::kOutputClosed)};
  // A signal during the start of the run can stop one rank before the others.
  const bool has_stopped =
      board.has_stopped() || std::any_of(end.statuses.begin(), end.statuses.end(), [](int status) {
        return WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::kSavedAfterSignal);
      });
  if (has_stopped && (!failure || failure->code == ExitCode::kCommunication)) {
    return {static_cast<int>(ExitCode::kSavedAfterSignal)};
  }
  if (failure && (failure->code != ExitCode::kCommunication || !has_died)) {
    return failed(failure->code, board.account(*failure));
  }
  const auto bad = std::find_if(end.statuses.begin(), end.statuses.end(), [](int status) { return status != 0; });
  const bool all_are_well = bad == end.statuses.end();
  if (const auto code = board.exit_code(); code && (*code != 0 || all_are_well)) return {*code};
  if (all_are_well) return {0};  // a board that is not shared does not know how the ranks ended
  const int rank = has_died ? end.lost[0] : static_cast<int>(bad - end.statuses.begin());
  const int status = end.statuses[static_cast<size_t>(rank)];
  // A rank ends immediately on a second signal, and on a signal that arrives before the rank has installed its
  // handlers. Such an end is not a failure.
  if (signalled && (end.gave_up || is_forwarded(end, status))) return {128 + end.forwarded.back()};
  return failed(ExitCode::kCommunication, account_of_death(board, rank, status));
}

std::string with_full_stop(const std::string& text) {
  return text.ends_with('.') ? text : text + ".";
}

// For a run that may restart after failures. Returns why it does not restart after this attempt, or an empty text if it
// restarts. `restarts`: the number of restarts so far. `has_progressed`: the attempt made a checkpoint.
std::string reason_to_end(const Settings& settings, int64_t restarts, bool has_progressed) {
  if (restarts >= settings.max_restarts) {
    return fmt::format("the limit --max-restarts {} is reached", settings.max_restarts);
  }
  if (restarts > 0 && !has_progressed) return fmt::format("restart {} made no new checkpoint", restarts);
  return "";
}

}  // namespace

int launch(const ResolvedSettings& resolved, const Environment& environment,
           const std::vector<std::string>& arguments) {
  const Settings& settings = resolved.settings;
  check_number(resolved);
  const int num_ranks = static_cast<int>(settings.nproc);
  const std::string program = own_program();
  if (program.empty())
    throw RunError("/proc/self/exe", "cannot be read, so the ranks cannot be started", "Mount /proc");
  ForwardedSignals signals;
  Console console = Console::of_process({}, Console::LostOutput::is_noted);
  const Checkpoints at_begin = checkpoints_in(settings.output_dir);
  Checkpoints before = at_begin;
  std::vector<std::string> next_arguments = arguments;
  for (int64_t restarts = 0;; ++restarts) {
    const auto board = StatusBoard::create(num_ranks);
    const RanksEnd end = run_ranks(program, num_ranks, next_arguments, environment, *board, signals);
    const Outcome outcome = outcome_of(end, *board);
    if (outcome.account.empty()) return outcome.code;
    const Checkpoints now = checkpoints_in(settings.output_dir);
    const auto end_run = [&](const std::string& text) {
      throw Error(static_cast<ExitCode>(outcome.code), "", text, "");
    };
    if (!outcome.may_restart || settings.max_restarts == 0) end_run(outcome.account);
    const std::string reason = reason_to_end(settings, restarts, made_checkpoint(before, now));
    if (!reason.empty()) end_run(fmt::format("{} Not restarted: {}", with_full_stop(outcome.account), reason));
    before = now;
    const bool has_saved = made_checkpoint(at_begin, now);
    next_arguments = restart_arguments(arguments, settings, has_saved);
    const bool continues = !now.empty() && (has_saved || settings.resume == "auto");
    const double pause_s = restart_pause_s(settings.restart_pause, restarts + 1);
    console.note(fmt::format("warning: {} Restart {} of {} in {} s, from {}", with_full_stop(outcome.account),
                             restarts + 1, settings.max_restarts, pause_s,
                             continues ? fmt::format("checkpoint-{}", now.rbegin()->first) : "the start of the run"));
    if (const int signal = signals.wait(pause_s)) {
      console.note(fmt::format("Stopped by signal {} before restart {}. Start the same command again to continue.",
                               signal, restarts + 1));
      return static_cast<int>(ExitCode::kSavedAfterSignal);
    }
  }
}

}  // namespace tessera
