#include "tessera/comm/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tessera/base/option_names.h"

#ifdef TESSERA_HAVE_MPI
#include "tessera/comm/mpi/mpi_world.h"
#endif

namespace tessera {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  if (it == environment.end() || it->second.empty()) return std::nullopt;
  const std::string& text = it->second;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError(name, fmt::format("must be a rank or a number of ranks, got \"{}\"", text),
                     "Unset this variable, or start the ranks with mpirun");
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

}  // namespace

std::optional<RankEnvironment> detect_ranks(const Environment& environment, const MpiFlavour& flavour) {
  using Family = MpiFlavour::Family;
  const auto get = [&](const char* name) { return number(environment, name); };
  // If variables of several MPI launchers are set, the variables of this program's MPI are used.
  std::optional<RankEnvironment> mpi;
  const auto consider = [&](std::optional<int> rank, std::optional<int> size, const char* source, bool fits) {
    if (rank && (!mpi || (fits && !mpi->has_mpi))) mpi = {*rank, size.value_or(1), source, fits};
  };
  // A process of a job step is a rank. The shell of a batch job is not a rank, although SLURM_PROCID is set in it, too.
  // SLURM_STEP_NUM_TASKS is set only in a job step.
  const auto tasks = get("SLURM_STEP_NUM_TASKS"), procid = get("SLURM_PROCID");
  const auto pmi = get("PMI_RANK"), pmi_size = get("PMI_SIZE");
  const bool by_slurm = pmi && tasks && pmi == procid && pmi_size == tasks;
  consider(get("OMPI_COMM_WORLD_RANK"), get("OMPI_COMM_WORLD_SIZE"), "mpirun", flavour.family != Family::mpich);
  if (pmi_size) consider(pmi, pmi_size, by_slurm ? "srun --mpi=pmi2" : "mpirun", flavour.family != Family::open_mpi);
  const int num_tasks = tasks.value_or(get("SLURM_NTASKS").value_or(1));
  consider(get("PMIX_RANK"), num_tasks, "srun --mpi=pmix", true);
  // If only one of RANK and WORLD_SIZE is set, it may belong to another program, and is ignored.
  const bool has_both = environment.contains("RANK") && environment.contains("WORLD_SIZE");
  const auto rank = has_both ? get("RANK") : std::nullopt, size = has_both ? get("WORLD_SIZE") : std::nullopt;
  // If mpirun's or srun's values differ from RANK and WORLD_SIZE, these two variables were set before mpirun or srun
  // started. They do not describe this rank.
  const bool sizes_known = mpi && (mpi->source != "srun --mpi=pmix" || tasks);
  const bool contradicted = mpi && (mpi->rank != rank || (sizes_known && mpi->size != size));
  if (rank && size && !contradicted) {
    return RankEnvironment{.rank = *rank, .size = *size, .source = "torchrun", .has_mpi = mpi && mpi->has_mpi};
  }
  if (mpi) return mpi;
  if (!procid || !tasks || num_tasks == 1) return std::nullopt;
  return RankEnvironment{.rank = *procid, .size = num_tasks, .source = "srun", .has_mpi = false};
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

bool have_mpi() {
#ifdef TESSERA_HAVE_MPI
  return true;
#else
  return false;
#endif
}

std::unique_ptr<World> make_world(const std::optional<RankEnvironment>& ranks,
                                  [[maybe_unused]] const WorldOptions& options) {
  if (!ranks || (ranks->size == 1 && !ranks->has_mpi)) return std::make_unique<SelfWorld>();
  if (!ranks->has_mpi) {
    const MpiFlavour& ours = mpi_flavour();
    const bool other_mpi = ranks->source == "mpirun" || ranks->source == "srun --mpi=pmi2";
    const bool is_mpich = ours.family == MpiFlavour::Family::mpich;
    throw UsageError(
        ranks->source,
        fmt::format("started this process as rank {} of {}, but without {}", ranks->rank, ranks->size,
                    other_mpi ? ours.text + ", which this program uses" : "MPI"),
        fmt::format("Start the ranks with `{} N`, `mpirun -n N tessera …`{}, or `srun --mpi={}`{}", option("nproc"),
                    other_mpi ? " of " + ours.text : "", is_mpich ? "pmi2" : "pmix",
                    ranks->source == "torchrun" ? "; unset RANK and WORLD_SIZE if they were left over" : ""));
  }
#ifdef TESSERA_HAVE_MPI
  return make_mpi_world(*ranks, options);
#else
  if (ranks->size == 1) return std::make_unique<SelfWorld>();
  throw UsageError(ranks->source, fmt::format("started {} ranks, but this build has no MPI", ranks->size),
                   "Build Tessera on a machine with MPI headers (Debian: libopenmpi-dev)");
#endif
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
