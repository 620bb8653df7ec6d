#include "tessera/launch/launch.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/comm/world.h"
#include "tessera/launch/mpirun_process.h"
#include "tessera/launch/restarts.h"
#include "tessera/log/console.h"

namespace tessera {
namespace {

// How an attempt ended. An attempt is one run of mpirun; a restart is a further attempt.
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
                   "Start the ranks on several machines with mpirun or srun");
}

std::string mpirun_path(const Environment& environment) {
  if (!have_mpi()) {
    throw UsageError(option_place("nproc"), "this build has no MPI to start ranks with",
                     "Build Tessera on a machine with MPI headers (Debian: libopenmpi-dev)");
  }
  if (const auto path = program_in_path(environment, "mpirun")) return *path;
  throw UsageError(option_place("nproc"), "mpirun is not found in PATH",
                   fmt::format("Install the mpirun of {}, the library of this build", mpi_flavour().text));
}

// Returns the rank that died first, or nullopt if it is not known. Usually this is end.lost[0]. If several ranks were
// lost and all of them waited in collectives, their order is not certain. The function then returns the rank that
// mpirun reports, if this is one of the lost ranks. If end.lost is empty, the function also returns the rank that
// mpirun reports. If mpirun reports no rank either, but exactly one rank has not joined a shared board, it returns this
// rank.
std::optional<int> dead_rank(const MpirunEnd& end, const StatusBoard& board,
                             const std::optional<ReportedDeath>& report) {
  std::optional<int> reported;
  for (int rank = 0; report && rank < board.size(); ++rank) {
    if (report->rank == rank || report->pid == board.pid_of(rank)) reported = rank;
  }
  if (end.lost.empty()) {
    const std::vector<int> absent = board.absent();
    return reported || absent.size() != 1 || !board.is_shared() ? reported : absent[0];
  }
  const bool is_certain = end.lost.size() == 1 || !board.is_waiting(end.lost[0]);
  const bool agree = reported && !is_certain && std::count(end.lost.begin(), end.lost.end(), *reported);
  return agree ? *reported : end.lost[0];
}

std::string account_of_death(const StatusBoard& board, std::optional<int> rank, int signal) {
  std::string error = rank ? fmt::format("rank {} ", *rank) : "a rank ";
  error += signal == 0 ? "was killed, or ended without a message"
                       : fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  if (signal == SIGKILL) error += ", perhaps by the system because memory ran out";
  if (rank) return board.account({*rank, ExitCode::kRunFailed, error});
  return error + (board.absent().empty() ? ". " + board.not_waiting() : ", in phase start");
}

// The signal that ended the rank that died first; 0: unknown. The exit code of mpirun shows this signal only with Open
// MPI. The exit code of Hydra (the mpirun of MPICH) may be the number of a signal or the exit code of a rank.
int signal_of(const MpirunEnd& end, const std::optional<ReportedDeath>& report) {
  if (end.signal_of_lost != 0) return end.signal_of_lost;
  if (report) return report->signal;
  const int signal = end.code - 128;  // codes above 128 + SIGRTMAX are mpirun's own
  return mpi_flavour().family == MpiFlavour::Family::open_mpi && signal > 0 && signal <= SIGRTMAX ? signal : 0;
}

// Why mpirun itself failed.
std::string account_of_mpirun(const MpirunEnd& end, const std::string& mpirun) {
  if (end.wait_error != 0) return fmt::format("cannot get the exit status of mpirun: {}", strerror(end.wait_error));
  if (end.was_killed) {
    return fmt::format("mpirun was killed by signal {} ({})", end.code - 128, strsignal(end.code - 128));
  }
  std::string text = fmt::format("mpirun ended with exit code {}", end.code);
  const MpiFlavour ours = mpi_flavour(), theirs = flavour_of_mpirun(mpirun);
  if (theirs.family != MpiFlavour::Family::none && !ours.fits(theirs)) {
    text += fmt::format(". {} is from {}, but this program uses {}. Put its mpirun first in PATH", mpirun, theirs.text,
                        ours.text);
  }
  return text + (end.noise.empty() ? "" : ":\n" + end.noise);
}

Outcome outcome_of(const MpirunEnd& end, const StatusBoard& board, const std::string& mpirun) {
  const bool signalled = !end.forwarded.empty();
  const auto failed = [&](int code, std::string account) {
    const bool again =
        code == static_cast<int>(ExitCode::kRunFailed) || code == static_cast<int>(ExitCode::kCommunication);
    return Outcome{code, std::move(account), again && !signalled};
  };
  const auto report = reported_death(end.noise);
  const bool has_died = !end.lost.empty();
  const auto failure = board.first_failure();
  if (failure && failure->code == ExitCode::kOutputClosed) return {static_cast<int>(ExitCode::kOutputClosed)};
  // A signal during the start of the run can stop one rank before the others. This rank then ends all ranks.
  if (board.has_stopped() && (!failure || failure->code == ExitCode::kCommunication)) {
    return {static_cast<int>(ExitCode::kSavedAfterSignal)};
  }
  if (failure && (failure->code != ExitCode::kCommunication || !has_died)) {
    return failed(static_cast<int>(failure->code), board.account(*failure));
  }
  if (const auto code = board.exit_code(); code && (*code != 0 || end.code == 0)) return {*code};
  if (end.code == 0 && end.wait_error == 0 && !board.is_shared()) return {0};  // only mpirun's exit code is known
  // A rank ends immediately on a second signal, and on a signal that arrives before the rank has installed its
  // handlers. Such an end is not a failure.
  const int signal = signal_of(end, report);
  const bool is_forwarded = std::count(end.forwarded.begin(), end.forwarded.end(), signal) > 0;
  if (signalled && !end.was_killed && (signal == 0 || is_forwarded)) return {128 + end.forwarded.back()};
  if (end.was_killed && !report)
    return failed(static_cast<int>(ExitCode::kCommunication), account_of_mpirun(end, mpirun));
  if (has_died || report || signal != 0) {
    return failed(static_cast<int>(ExitCode::kCommunication),
                  account_of_death(board, dead_rank(end, board, report), signal));
  }
  return failed(static_cast<int>(ExitCode::kRunFailed), account_of_mpirun(end, mpirun));
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
  const std::string mpirun = mpirun_path(environment);
  const int num_ranks = static_cast<int>(settings.nproc);
  StreamSocket streams;
  ForwardedSignals signals;
  Console console = Console::of_process({}, Console::LostOutput::is_noted);
  const Checkpoints at_begin = checkpoints_in(settings.output_dir);
  Checkpoints before = at_begin;
  std::vector<std::string> next_arguments = arguments;
  for (int64_t restarts = 0;; ++restarts) {
    const auto board = StatusBoard::create(num_ranks);
    const MpirunEnd end = run_mpirun(mpirun, num_ranks, next_arguments, environment, *board, streams, signals);
    const Outcome outcome = outcome_of(end, *board, mpirun);
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
