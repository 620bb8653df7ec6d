#include "tessera/comm/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/comm/mpi/mpi_library.h"
#include "tessera/comm/mpi/mpi_messenger.h"
#include "tessera/comm/ranks/ranks_world.h"
#include "tessera/comm/ranks/rendezvous_limit.h"
#include "tessera/comm/tcp/tcp_messenger.h"

namespace tessera {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  if (it == environment.end() || it->second.empty()) return std::nullopt;
  const std::string& text = it->second;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError(name, fmt::format("must be a rank or a number of ranks, got \"{}\"", printable(text)),
                     "Correct this variable, or unset it if it does not belong to this run");
  }
  return value;
}

class SelfWorld final : public World {
 public:
  SelfWorld() : World(0, {0}) {}
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> make_communicator(Device&) override { return make_self_communicator(); }
  void enter_phase(const char*) override {}
  void set_exit_code(int) override {}
  void fail(ExitCode code, const std::string& error, const std::function<void(const std::string&)>& report) override {
    if (report) report(error);
    abort(code);
  }
  void abort(ExitCode code) override { std::_Exit(static_cast<int>(code)); }

 private:
  std::unique_ptr<Communicator> communicator_ = make_self_communicator();
};

// The variables of torchrun, if they describe a rank. Throws UsageError if only some of them do.
std::optional<RankEnvironment> by_torchrun(const Environment& environment) {
  const auto has = [&](const char* name) { return environment.contains(name) && !environment.at(name).empty(); };
  // If only one of RANK and WORLD_SIZE is set, it may belong to another program, and is ignored, except if the other
  // variables of torchrun are set.
  if (!has("RANK") || !has("WORLD_SIZE")) {
    if (has("RANK") == has("WORLD_SIZE") || !has("MASTER_ADDR") || !has("MASTER_PORT")) return std::nullopt;
    const char *set = has("RANK") ? "RANK" : "WORLD_SIZE", *missing = has("RANK") ? "WORLD_SIZE" : "RANK";
    throw UsageError(
        missing,
        fmt::format("is not set, but {}={}, MASTER_ADDR and MASTER_PORT are set", set, printable(environment.at(set))),
        fmt::format("Set {}, or unset {}", missing, set));
  }
  return RankEnvironment{
      .rank = *number(environment, "RANK"), .size = *number(environment, "WORLD_SIZE"), .source = "torchrun"};
}

void check_rank(const RankEnvironment& ranks, const char* rank_name, const char* size_name) {
  if (ranks.size < 1)
    throw UsageError(size_name, fmt::format("must be at least 1, got {}", ranks.size), "Correct this variable");
  if (ranks.rank < ranks.size) return;
  throw UsageError(rank_name,
                   fmt::format("is {}, but {} is {}: the ranks are numbered from 0", ranks.rank, size_name, ranks.size),
                   "Correct the two variables");
}

// How ranks that mpirun has started with another MPI can start instead.
UsageError other_mpi(const RankEnvironment& ranks, const MpiFlavour& ours) {
  const bool has_none = ours.family == MpiFlavour::Family::none;
  const std::string reason = reason_of_no_mpi();
  return {
      ranks.source,
      fmt::format("started this process as rank {} of {}, but {}", ranks.rank, ranks.size,
                  has_none ? (reason.empty() ? "this build has no MPI" : "the MPI library cannot be opened: " + reason)
                           : "not with " + ours.text + ", which this program uses"),
      fmt::format("Start the ranks with `{} N`, torchrun or srun{}", option("nproc"),
                  has_none ? "" : ", or with the mpirun of " + ours.text)};
}

}  // namespace

std::optional<RankEnvironment> detect_ranks(const Environment& environment, const MpiFlavour& flavour) {
  using Family = MpiFlavour::Family;
  const auto get = [&](const char* name) { return number(environment, name); };
  if (const auto link = find_launcher(environment)) {
    RankEnvironment ranks{
        .rank = get("RANK").value_or(0), .size = get("WORLD_SIZE").value_or(1), .source = "the launcher"};
    check_rank(ranks, "RANK", "WORLD_SIZE");
    const MeetingPoint meeting{.host = "127.0.0.1",
                               .first_port = get("MASTER_PORT").value_or(0),
                               .token = link->token,
                               .is_local = true,
                               .listener = link->listener,
                               .place = "MASTER_PORT"};
    ranks.find_meeting = [meeting] { return meeting; };
    return ranks;
  }
  // If variables of several MPI launchers are set, the variables of this program's MPI are used.
  std::optional<RankEnvironment> mpi;
  const auto consider = [&](std::optional<int> rank, std::optional<int> size, const char* source, bool fits) {
    if (rank && (!mpi || (fits && !mpi->has_mpi))) mpi = {*rank, size.value_or(1), source, fits, {}};
  };
  // A process of a job step is a rank. The shell of a batch job is not a rank, although SLURM_PROCID is set in it, too.
  // SLURM_STEP_NUM_TASKS is set only in a job step.
  const auto tasks = get("SLURM_STEP_NUM_TASKS"), procid = get("SLURM_PROCID");
  const auto pmi = get("PMI_RANK"), pmi_size = get("PMI_SIZE");
  const bool by_slurm = pmi && tasks && pmi == procid && pmi_size == tasks;
  consider(get("OMPI_COMM_WORLD_RANK"), get("OMPI_COMM_WORLD_SIZE"), "mpirun", flavour.family == Family::open_mpi);
  if (pmi_size) consider(pmi, pmi_size, by_slurm ? "srun --mpi=pmi2" : "mpirun", flavour.family == Family::mpich);
  const int num_tasks = tasks.value_or(get("SLURM_NTASKS").value_or(1));
  consider(get("PMIX_RANK"), num_tasks, "srun --mpi=pmix", flavour.family != Family::none);
  const std::optional<RankEnvironment> torchrun = by_torchrun(environment);
  // If mpirun's or srun's values differ from RANK and WORLD_SIZE, one of them describes the process that started the
  // other. torchrun is the inner one if its own variable is set: people start it with srun, once per node.
  const bool sizes_known = mpi && (mpi->source != "srun --mpi=pmix" || tasks);
  const bool differs = mpi && (mpi->rank != torchrun.value_or(RankEnvironment{}).rank ||
                               (sizes_known && mpi->size != torchrun.value_or(RankEnvironment{}).size));
  if (torchrun && (!differs || environment.contains("TORCHELASTIC_RUN_ID"))) {
    RankEnvironment ranks = *torchrun;
    check_rank(ranks, "RANK", "WORLD_SIZE");
    ranks.has_mpi = mpi && mpi->has_mpi && !differs;
    ranks.find_meeting = [=] { return meeting_of_torchrun(environment, ranks.rank, ranks.size); };
    return ranks;
  }
  const bool is_step = procid && tasks && num_tasks > 1;
  if (mpi && !mpi->has_mpi && mpi->size > 1 && !(is_step && mpi->source != "mpirun")) {
    mpi->find_meeting = [ranks = *mpi, flavour]() -> MeetingPoint { throw other_mpi(ranks, flavour); };
    return mpi;
  }
  if (mpi && (mpi->has_mpi || mpi->size == 1)) return mpi;
  if (!is_step) return std::nullopt;
  RankEnvironment ranks{.rank = *procid, .size = num_tasks, .source = "srun"};
  check_rank(ranks, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  ranks.find_meeting = [=] { return meeting_of_srun(environment, ranks.rank, ranks.size); };
  return ranks;
}

int World::local_rank() const {
  return static_cast<int>(std::count(nodes_.begin(), nodes_.begin() + rank_, nodes_[static_cast<size_t>(rank_)]));
}

int World::local_size() const {
  return static_cast<int>(std::count(nodes_.begin(), nodes_.end(), nodes_[static_cast<size_t>(rank_)]));
}

int World::ranks_per_node() const {
  const int each = local_size();
  TESSERA_ASSERT(each > 0);  // local_size() counts this rank
  for (int r = 0; r < size(); ++r) {
    if (nodes_[static_cast<size_t>(r)] != r / each) return 0;
  }
  return size() % each == 0 ? each : 0;
}

namespace {

// The ranks that have joined the board of the launcher, but do not run or do not wait, and the ranks that have not
// joined. Empty without a launcher.
std::string missing_ranks(const StatusBoard* board) {
  if (!board) return "";
  std::string text;
  for (const int rank : board->absent())
    text += fmt::format("{}Rank {} has not started.", text.empty() ? "" : " ", rank);
  const std::string others = board->not_waiting();
  return text + (text.empty() || others.empty() ? "" : " ") + others;
}

std::unique_ptr<World> make_tcp_world(const RankEnvironment& ranks, const WorldOptions& options) {
  const MeetingPoint meeting = ranks.find_meeting();
  std::shared_ptr<StatusBoard> board;
  if (!options.board.empty()) {
    board = StatusBoard::open(options.board, ranks.size);
    board->join(ranks.rank);
  }
  const StatusBoard::Waiting waiting(board.get(), ranks.rank, "a call until all ranks have arrived");
  auto messenger = make_tcp_messenger(
      ranks.rank, ranks.size, meeting,
      {.timeout_s = options.timeout_s, .missing = [board] { return missing_ranks(board.get()); }, .log = options.log});
  try {
    return make_ranks_world(std::move(messenger), options, board);
  } catch (const CommunicationError& error) {
    const std::string missing = missing_ranks(board.get());
    if (missing.empty()) throw;
    throw CommunicationError("", fmt::format("{} {}", error.what(), missing), "");
  }
}

std::unique_ptr<World> make_mpi_world(const RankEnvironment& ranks, const WorldOptions& options) {
  auto messenger = [&] {
    const RendezvousLimit limit("arrived", ranks.rank, options, nullptr);
    return make_mpi_messenger();
  }();
  if (ranks.size > 0 && messenger->size() != ranks.size) {
    const int found = messenger->size();
    messenger->finish();
    throw UsageError(
        ranks.source,
        fmt::format("started {}, but the MPI library of this program finds {}", counted(ranks.size, "rank"), found),
        fmt::format("Use the mpirun of {}, which this program uses, or srun --mpi={}", mpi_flavour().text,
                    mpi_flavour().family == MpiFlavour::Family::mpich ? "pmi2" : "pmix"));
  }
  return make_ranks_world(std::move(messenger), options, nullptr);
}

}  // namespace

std::unique_ptr<World> make_world(const std::optional<RankEnvironment>& ranks, const WorldOptions& options) {
  if (!ranks || (ranks->size == 1 && !ranks->has_mpi)) return std::make_unique<SelfWorld>();
  if (ranks->has_mpi) return make_mpi_world(*ranks, options);
  return make_tcp_world(*ranks, options);
}

bool names_a_rank(std::string_view error) {
  constexpr std::string_view kBegin = "rank ";
  if (!error.starts_with(kBegin)) return false;
  const size_t end = error.find_first_not_of("0123456789", kBegin.size());
  return end != kBegin.size() && error.substr(std::min(end, error.size())).starts_with(": ");
}

void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& facts) {
  // The text has the lengths of each name and value before them, so names and values may contain any characters.
  std::string text;
  for (const auto& [name, value] : facts) text += fmt::format("{} {} {}{}", name.size(), value.size(), name, value);
  const std::vector<std::string> texts = communicator.all_gather_text(text, "settings to compare");
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto parse = [](std::string_view rest) {
      std::vector<std::pair<std::string, std::string>> result;
      const auto take_number = [&] {
        size_t value = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
        return value;
      };
      while (!rest.empty()) {
        const size_t name = take_number(), value = take_number();
        result.emplace_back(rest.substr(0, name), rest.substr(name, value));
        rest.remove_prefix(name + value);
      }
      return result;
    };
    const auto first = parse(texts[0]), other = parse(texts[rank]);
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const auto at = [i](const auto& list) {
        return i < list.size() ? list[i] : std::pair<std::string, std::string>();
      };
      const auto [name, value] = at(first);
      const auto [other_name, other_value] = at(other);
      if (name == other_name && value == other_value) continue;
      throw UsageError(name.empty() ? other_name : name,
                       name.empty() ? fmt::format("is missing on rank 0, but {} on rank {}", other_value, rank)
                                    : fmt::format("is {} on rank 0, but {} on rank {}", value,
                                                  name == other_name ? other_value : "missing", rank),
                       "Start all ranks with the same program, settings and data");
    }
  }
}

}  // namespace tessera
