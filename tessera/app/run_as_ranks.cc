#include "tessera/app/run_as_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "tessera/app/net_report.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/comm/status_board.h"
#include "tessera/launch/launch.h"
#include "tessera/log/stream_writer.h"
#include "tessera/session/worker.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/checksum.h"
#include "tessera/train/auto_precision.h"
#include "tessera/train/trainer.h"

namespace tessera {
namespace {

void print_error(const std::string& text) {
  StreamWriter(STDERR_FILENO).write("error: " + text + "\n");
}

void print_note(const std::string& text) {
  StreamWriter(STDERR_FILENO).write(text + "\n");
}

// Returns the function that prints a failure with this exit code. Returns an empty function if nobody reads the output
// any more: the program then ends without a message.
std::function<void(const std::string&)> report_of(ExitCode code) {
  if (code == ExitCode::kOutputClosed) return {};
  return print_error;
}

// Throws UsageError if the ranks differ in program, verb or settings. Only the number of threads may differ. Must run
// before anything that depends on a setting: ranks with different settings would wait for each other forever.
void check_settings_agree(const Invocation& invocation, World& world) {
  const std::string program = read_file("/proc/self/exe", {});
  std::vector<std::pair<std::string, std::string>> facts{
      {"version", TESSERA_VERSION},
      {"program_checksum", checksum_text(checksum_of(program.data(), program.size()))},
      {"verb", invocation.verb->name}};
  for (const Setting* setting : settings_of(kAllGroups)) {
    if (setting->name != "threads") {
      facts.emplace_back(setting->name, toml_text(setting->get(invocation.settings())));
    }
  }
  check_agreement(world.communicator(), facts);
}

// Whether the command line does not run as one of several ranks.
bool is_one_process(const std::optional<RankEnvironment>& ranks) {
  return !ranks || (ranks->size == 1 && !ranks->has_mpi);
}

// Refuses --max-restarts unless this process is the launcher of --nproc or a rank that this launcher started.
void check_restarts(const Invocation& invocation, const std::optional<RankEnvironment>& ranks) {
  const Settings& settings = invocation.settings();
  const bool is_launcher = settings.nproc > 1 && is_one_process(ranks);
  if (settings.max_restarts == 0 || is_launcher || find_launcher(invocation.environment)) return;
  throw UsageError(invocation.resolved.where("max_restarts"),
                   ranks ? fmt::format("needs --nproc N, but {} has started the ranks", ranks->source)
                         : std::string("needs --nproc N with two or more ranks"),
                   "Leave it out and start the same command again: it continues from the last checkpoint");
}

bool is_pipe(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::is_fifo(path, error);
}

// Refuses pipes that would be read more than once: by several ranks, or for several settings. A pipe, such as a shell's
// <(...), delivers its content only once.
void check_pipes(const Invocation& invocation, const std::vector<std::string>& arguments) {
  const int64_t num_ranks = invocation.resolved.num_ranks;
  const auto refuse = [](const std::string& where, const std::string& path, const std::string& why) {
    throw UsageError(where, fmt::format("\"{}\" is a pipe, and a pipe can be read only once{}", printable(path), why),
                     "Save its content to a file first");
  };
  std::map<std::string, std::string> places;  // pipe → the setting that names it
  for (const Setting* setting : settings_of(invocation.resolved.groups)) {
    const SettingValue value = setting->get(invocation.settings());
    std::vector<std::string> paths;
    if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
      paths = *list;
    } else if (setting->type == SettingType::text || setting->type == SettingType::list) {  // a list of one is a text
      paths.push_back(plain_text(value));
    }
    for (const std::string& path : paths) {
      if (!is_pipe(path)) continue;
      const std::string where = invocation.resolved.where(setting->name);
      if (num_ranks > 1) refuse(where, path, fmt::format(", but the run has {} ranks", num_ranks));
      const auto [other, is_new] = places.emplace(path, where);
      if (!is_new) refuse(where, path, ", but " + other->second + " reads it too");
    }
  }
  for (const std::string& word : arguments) {  // a configuration file
    if (num_ranks > 1 && is_pipe(word)) refuse(word, word, fmt::format(", but the run has {} ranks", num_ranks));
  }
}

// Returns the exit code of a failed rank. If the launcher of --nproc started the rank, this is `code`: the launcher
// needs this code to find the cause, and applies --workshop-exit-codes itself.
ExitCode code_of_failure(const Invocation& invocation, ExitCode code) {
  if (find_launcher(invocation.environment)) return code;
  return static_cast<ExitCode>(with_workshop_codes(invocation.settings(), static_cast<int>(code)));
}

// Runs the launcher of --nproc. Throws the failure of the ranks.
int launch_ranks(const Invocation& invocation, const std::vector<std::string>& arguments) {
  try {
    return launch(invocation.resolved, invocation.environment, arguments);
  } catch (const Error& error) {
    const int code = with_workshop_codes(invocation.settings(), static_cast<int>(error.code()));
    if (code == static_cast<int>(error.code())) throw;
    throw Error(static_cast<ExitCode>(code), "", error.what(), "");
  }
}

}  // namespace

void report_failure(const Environment& environment, const Failure& failure) {
  std::optional<RankEnvironment> ranks;
  try {
    ranks = detect_ranks(environment);
  } catch (const Error&) {  // `failure` already describes this error
  }
  const bool is_rank = ranks && ranks->size > 1;
  const std::string text =
      is_rank && !names_a_rank(failure.text) ? fmt::format("rank {}: {}", ranks->rank, failure.text) : failure.text;
  const auto launcher = find_launcher(environment);
  if (is_rank && launcher) {
    StatusBoard::open(launcher->board, ranks->size)->fail(ranks->rank, failure.code, text);
    return;
  }
  // Rank 0 reports first. When rank 0 has ended, mpirun ends the other ranks, usually before they report the same
  // failure.
  if (is_rank && ranks->rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (const auto report = report_of(failure.code)) report(text);
}

Console console_of(const Invocation& invocation, Console::LostOutput lost_output) {
  const bool is_first = !invocation.world || invocation.world->rank() == 0;
  return is_first ? Console::of_process(invocation.settings().bars(), lost_output) : Console::muted();
}

int run_among_ranks(const Invocation& invocation, const std::function<int()>& work,
                    const std::function<void()>& before_end) {
  const bool alone = !invocation.world || invocation.world->size() == 1;
  if (alone || !uses_cuda(invocation.settings())) return work();
  try {
    return work();
  } catch (...) {
    const Failure failure = current_failure();
    if (before_end) before_end();
    invocation.world->fail(code_of_failure(invocation, failure.code), failure.text, report_of(failure.code));
    return static_cast<int>(failure.code);
  }
}

int run_as_ranks(Invocation& invocation, const std::optional<RankEnvironment>& ranks,
                 const std::vector<std::string>& arguments) {
  const Settings& settings = invocation.settings();
  const bool is_alone = is_one_process(ranks);
  check_restarts(invocation, ranks);
  check_pipes(invocation, arguments);
  if (is_alone && settings.nproc > 1) return launch_ranks(invocation, arguments);
  // The handlers of the signals must exist before make_world(): from then on, the launcher may send signals to this
  // rank.
  std::optional<StopSignals> signals;
  std::atomic<World*> running = nullptr;
  const auto end_start = [&](int signal) {
    if (!ranks || ranks->rank == 0) StreamWriter(STDERR_FILENO).write(note_of_stop(signal, 0) + "\n");
    if (World* const known = running) known->abort(ExitCode::kSavedAfterSignal);
    std::_Exit(static_cast<int>(ExitCode::kSavedAfterSignal));
  };
  if (invocation.verb->stops_on_signals) invocation.signals = &signals.emplace(end_start);
  WorldOptions options{.timeout_s = settings.comm_timeout, .report = print_error, .log = print_note};
  if (const auto launcher = find_launcher(invocation.environment)) options.board = launcher->board;
  const auto world = make_world(ranks, options);
  const StartScope start(invocation.signals);
  invocation.world = world.get();
  running = world.get();
  const auto check_number = [&] {
    if (settings.nproc == 0 || settings.nproc == world->size()) return;
    throw UsageError(invocation.resolved.where("nproc"),
                     fmt::format("{} contradicts the {} that {} has started", settings.nproc,
                                 counted(world->size(), "rank"), ranks->source),
                     "Remove the setting nproc");
  };
  if (world->size() == 1) {
    if (!is_alone) check_number();
    settle_precision(invocation.resolved, world.get());
    return invocation.verb->run(invocation);
  }
  try {
    check_number();
    if (!invocation.verb->accepts_differences) check_settings_agree(invocation, *world);
    settle_precision(invocation.resolved, world.get());
    const int code = invocation.verb->run(invocation);
    world->communicator().barrier("the end of the run");  // a barrier names the rank that is late
    world->set_exit_code(code);
    return code;
  } catch (...) {
    const Failure failure = current_failure();
    world->fail(code_of_failure(invocation, failure.code), failure.text, report_of(failure.code));
    return static_cast<int>(failure.code);
  }
}

}  // namespace tessera
