#include "tessera/app/launch.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <thread>

#include "tessera/app/machine.h"
#include "tessera/app/mpirun_process.h"
#include "tessera/base/error.h"
#include "tessera/report/console.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// How an attempt ended.
struct Outcome {
  int code = 0;
  std::string account;  // of what failed; empty: the ranks have said all there is to say
  bool may_restart = false;
};

// Before so many processes take the machine away from everybody, this one included.
void check_number(const ResolvedSettings& resolved) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t most = std::max<int64_t>(64, 16 * cores);
  if (resolved.settings.nproc <= most) return;
  throw UsageError(resolved.where("nproc"),
                   fmt::format("{} ranks are too many for this machine of {} cores, which may start {}",
                               resolved.settings.nproc, cores, most),
                   "Start them on several machines with mpirun or srun");
}

std::string mpirun_path(const Environment& environment) {
  if (!have_mpi()) {
    throw UsageError("--nproc", "this build has no MPI to start ranks with",
                     "Build Tessera where Open MPI's headers are (Debian: libopenmpi-dev)");
  }
  if (const auto path = program_in_path(environment, "mpirun")) return *path;
  throw UsageError("--nproc", "mpirun is not found in PATH", "Install Open MPI (Debian: openmpi-bin)");
}

std::string account_of_kill(const StatusBoard& board, const KilledRank& killed) {
  std::string error =
      fmt::format("rank {} was killed by signal {} ({})", killed.rank, killed.signal, strsignal(killed.signal));
  if (killed.signal == SIGKILL) error += ", as the system does when memory runs out";
  return board.account({killed.rank, ExitCode::kRunFailed, error});
}

Outcome outcome_of(const MpirunEnd& end, const StatusBoard& board) {
  const bool signalled = !end.forwarded.empty();
  const auto told = [&](int code, std::string account) {
    const bool again =
        code == static_cast<int>(ExitCode::kRunFailed) || code == static_cast<int>(ExitCode::kCommunication);
    return Outcome{code, std::move(account), again && !signalled};
  };
  if (end.code == 0 || end.code == static_cast<int>(ExitCode::kSavedAfterSignal)) return {end.code, "", false};
  const auto failure = board.first_failure();
  const auto killed = killed_rank(end.noise);
  if (failure && (failure->code != ExitCode::kCommunication || !killed)) {
    return told(static_cast<int>(failure->code), board.account(*failure));
  }
  // A second signal ends a rank at once, and one that comes before ranks expect signals does so, too.
  const bool by_signal = end.code > 128 && signalled;
  if (by_signal && (!killed || std::count(end.forwarded.begin(), end.forwarded.end(), killed->signal))) {
    return {128 + end.forwarded.back(), "", false};
  }
  if (killed) return told(static_cast<int>(ExitCode::kCommunication), account_of_kill(board, *killed));
  if (end.was_killed) {
    const std::string name = strsignal(end.code - 128);
    return told(static_cast<int>(ExitCode::kCommunication),
                fmt::format("mpirun was killed by signal {} ({})", end.code - 128, name));
  }
  bool all_ended = true;
  for (int rank = 0; rank < board.size(); ++rank) all_ended = all_ended && board.has_ended(rank);
  if (all_ended) return told(end.code, "");
  const int signal = end.code - 128;
  if (signal > 0 && signal <= SIGRTMAX) {  // mpirun has codes of its own beyond, and may tell the code alone
    const std::vector<int> absent = board.absent();
    if (absent.size() == 1) {
      return told(static_cast<int>(ExitCode::kCommunication), account_of_kill(board, {absent[0], signal}));
    }
    return told(static_cast<int>(ExitCode::kCommunication),
                fmt::format("a rank was killed by signal {} ({}){}", signal, strsignal(signal),
                            absent.empty() ? ". " + board.not_waiting() : ", in phase start"));
  }
  return told(static_cast<int>(ExitCode::kRunFailed),
              fmt::format("mpirun ended with exit code {}:\n{}", end.code, end.noise));
}

// The arguments of another attempt. A run that was to begin anew, or elsewhere, goes on from what it has saved itself.
std::vector<std::string> continued(std::vector<std::string> arguments, const Settings& settings,
                                   fs::file_time_type begin) {
  if (settings.resume == "auto" || settings.output_dir.empty()) return arguments;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(settings.output_dir, error)) {
    const bool is_checkpoint = entry.path().filename().string().starts_with("checkpoint-");
    if (!is_checkpoint || entry.last_write_time(error) < begin) continue;
    arguments.insert(arguments.end(), {"--resume", "auto"});
    break;
  }
  return arguments;
}

}  // namespace

std::optional<LauncherLink> find_launcher(const Environment& environment) {
  const auto it = environment.find(kLauncherVariable);
  if (it == environment.end()) return std::nullopt;
  const size_t colon = it->second.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return LauncherLink{it->second.substr(0, colon), it->second.substr(colon + 1)};
}

std::optional<KilledRank> killed_rank(const std::string& mpiruns_words) {
  static const std::regex kPattern(R"(process rank (\d{1,9}) with PID \d+ on node \S+\s+exited on\s+signal (\d{1,3}))");
  std::smatch match;
  if (!std::regex_search(mpiruns_words, match, kPattern)) return std::nullopt;
  return KilledRank{std::stoi(match[1]), std::stoi(match[2])};
}

int launch(const Invocation& invocation, const std::vector<std::string>& arguments) {
  const Settings& settings = invocation.settings();
  check_number(invocation.resolved);
  const std::string mpirun = mpirun_path(invocation.environment);
  const int num_ranks = static_cast<int>(settings.nproc);
  const auto begin = fs::file_time_type::clock::now();
  StreamSocket streams;
  ForwardedSignals signals;
  Console console = Console::of_process();
  std::vector<std::string> words = arguments;
  for (int64_t restart = 1;; ++restart) {
    const auto board = StatusBoard::create(num_ranks);
    const MpirunEnd end = run_mpirun(mpirun, num_ranks, words, invocation.environment, *board, streams, signals);
    const Outcome outcome = outcome_of(end, *board);
    if (!outcome.may_restart || restart > settings.max_restarts) {
      if (outcome.account.empty()) return outcome.code;
      throw Error(static_cast<ExitCode>(outcome.code), "", outcome.account, "");
    }
    console.note(fmt::format("warning: {} Starting again from the last checkpoint (restart {} of {})",
                             outcome.account.ends_with('.') ? outcome.account : outcome.account + ".", restart,
                             settings.max_restarts));
    words = continued(arguments, settings, begin);
  }
}

}  // namespace tessera
