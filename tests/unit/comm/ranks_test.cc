#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "tessera/comm/sum.h"
#include "tessera/comm/world.h"

namespace tessera {
namespace {

using Environment = std::map<std::string, std::string>;

// Calls detect_ranks() for a program that is built with Open MPI 4.
std::optional<RankEnvironment> detect(const Environment& environment) {
  return detect_ranks(environment, {.family = MpiFlavour::Family::open_mpi, .major = 4});
}

TEST(DetectRanks, NothingMeansOneProcess) {
  EXPECT_FALSE(detect({}));
  EXPECT_FALSE(detect({{"RANK", "1"}})) << "without WORLD_SIZE, RANK may belong to another program";
  EXPECT_FALSE(detect({{"RANK", "major"}}));
}

TEST(DetectRanks, TorchrunGoesFirst) {
  const auto ranks = detect({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_RANK", "5"},
                             {"OMPI_COMM_WORLD_SIZE", "8"}});
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->rank, 5);
  EXPECT_EQ(ranks->source, "torchrun");
  EXPECT_TRUE(ranks->has_mpi);
}

TEST(DetectRanks, TorchrunVariablesThatMpirunContradictsAreIgnored) {
  const auto ranks =
      detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->rank, 3);
  EXPECT_EQ(ranks->size, 4);
  EXPECT_EQ(ranks->source, "mpirun");
}

TEST(DetectRanks, TorchrunVariablesThatSrunContradictsAreIgnored) {
  Environment srun = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  auto ranks = detect(srun);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->size, 4);
  EXPECT_EQ(ranks->source, "srun --mpi=pmix");
  srun["WORLD_SIZE"] = "4";
  EXPECT_EQ(detect(srun)->source, "torchrun");
  srun["PMIX_RANK"] = "3";
  ranks = detect(srun);
  EXPECT_EQ(ranks->rank, 3);
  EXPECT_EQ(ranks->source, "srun --mpi=pmix");
}

// srun starts one torchrun on each node, and each torchrun several ranks, which inherit the variables of srun.
TEST(DetectRanks, TorchrunWithinSrunGoesFirst) {
  for (const char* rank_of_srun : {"PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    Environment environment = {{"RANK", "5"},         {"WORLD_SIZE", "8"},   {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "1"},  {"TORCHELASTIC_RUN_ID", "7"},
                               {"PMI_SIZE", "2"},     {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
    environment[rank_of_srun] = "1";
    const auto ranks = detect(environment);
    ASSERT_TRUE(ranks);
    EXPECT_EQ(ranks->source, "torchrun");
    EXPECT_EQ(ranks->rank, 5);
    EXPECT_EQ(ranks->size, 8);
    EXPECT_FALSE(ranks->has_mpi);
  }
}

TEST(DetectRanks, MpirunGoesBeforeSlurm) {
  const auto ranks = detect({{"OMPI_COMM_WORLD_RANK", "3"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"PMIX_RANK", "3"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "2"}});
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->rank, 3);
  EXPECT_EQ(ranks->size, 4);
  EXPECT_EQ(ranks->source, "mpirun");
}

TEST(DetectRanks, MpichsMpirun) {
  const MpiFlavour mpich{.family = MpiFlavour::Family::mpich, .major = 5};
  const MpiFlavour open_mpi{.family = MpiFlavour::Family::open_mpi, .major = 5};
  Environment hydra = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}};
  auto ranks = detect_ranks(hydra, mpich);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->rank, 2);
  EXPECT_EQ(ranks->size, 3);
  EXPECT_EQ(ranks->source, "mpirun");
  EXPECT_TRUE(ranks->has_mpi);
  EXPECT_FALSE(detect_ranks(hydra, open_mpi)->has_mpi);
  EXPECT_FALSE(detect_ranks({{"PMI_RANK", "2"}}, mpich)) << "without PMI_SIZE, PMI_RANK may belong to another program";
  // If the variables of several launchers are set, a program uses the variables of the launcher that belongs to its
  // MPI. If only variables of another MPI's launcher are set, the ranks cannot use MPI.
  hydra.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(detect_ranks(hydra, mpich)->size, 3);
  EXPECT_EQ(detect_ranks(hydra, open_mpi)->size, 4);
  EXPECT_FALSE(detect_ranks({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, mpich)->has_mpi);
}

TEST(DetectRanks, SlurmWithPmi2) {
  const MpiFlavour mpich{.family = MpiFlavour::Family::mpich, .major = 4};
  const Environment slurm = {{"PMI_RANK", "2"},
                             {"PMI_SIZE", "4"},
                             {"SLURM_PROCID", "2"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(detect_ranks(slurm, mpich)->source, "srun --mpi=pmi2");
  EXPECT_TRUE(detect_ranks(slurm, mpich)->has_mpi);
  EXPECT_FALSE(detect_ranks(slurm, {.family = MpiFlavour::Family::open_mpi, .major = 4})->has_mpi);
}

TEST(DetectRanks, OpenMpi5AlsoSetsTheVariablesOfPmix) {
  const auto ranks = detect_ranks({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}},
                                  {.family = MpiFlavour::Family::open_mpi, .major = 5});
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->size, 2);
  EXPECT_EQ(ranks->source, "mpirun");
}

TEST(DetectRanks, SlurmWithAndWithoutPmix) {
  Environment slurm = {
      {"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  auto ranks = detect(slurm);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->rank, 2);
  EXPECT_EQ(ranks->size, 4);
  EXPECT_FALSE(ranks->has_mpi);
  slurm["PMIX_RANK"] = "2";
  ranks = detect(slurm);
  ASSERT_TRUE(ranks);
  EXPECT_TRUE(ranks->has_mpi);
  EXPECT_EQ(ranks->source, "srun --mpi=pmix");
}

TEST(DetectRanks, TheShellOfABatchJobIsNoRank) {
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})) << "srun --pty bash starts no rank";
}

TEST(DetectRanks, AnUnknownMpiIsNotUsed) {
  const MpiFlavour none;
  EXPECT_FALSE(detect_ranks({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, none)->has_mpi);
  Environment slurm = {{"PMIX_RANK", "1"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  const auto ranks = detect_ranks(slurm, none);
  ASSERT_TRUE(ranks);
  EXPECT_FALSE(ranks->has_mpi);
  EXPECT_EQ(ranks->source, "srun");
}

TEST(DetectRanks, TheLauncherGoesFirst) {
  const auto ranks = detect({{"LAUNCHED_BY_TESSERA", "board:7:token"},
                             {"RANK", "0"},
                             {"WORLD_SIZE", "3"},
                             {"MASTER_PORT", "1234"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"OMPI_COMM_WORLD_RANK", "5"},
                             {"OMPI_COMM_WORLD_SIZE", "8"}});
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->size, 3);
  EXPECT_FALSE(ranks->has_mpi);
  const MeetingPoint meeting = ranks->find_meeting();
  EXPECT_EQ(meeting.first_port, 1234);
  EXPECT_EQ(meeting.num_ports, 1);
  EXPECT_EQ(meeting.listener, 7);
  EXPECT_EQ(meeting.token, "token");
  EXPECT_TRUE(meeting.is_local);
}

TEST(DetectRanks, HalfSetOrImpossibleVariablesAreRefused) {
  const Environment good = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "7"}};
  EXPECT_EQ(detect(good)->find_meeting().host, "h");
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    Environment half = good;
    half.erase(name);
    EXPECT_THROW(detect(half), UsageError) << name;
  }
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    Environment half = good;
    half.erase(name);
    EXPECT_THROW(detect(half)->find_meeting(), UsageError) << name;
  }
  Environment wrong = good;
  wrong["RANK"] = "2";
  EXPECT_THROW(detect(wrong), UsageError);
}

TEST(DetectRanks, InvalidNumbersAreRefused) {
  for (const char* text : {"x", "-1", "3x", "99999999999"}) {
    EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", text}}), UsageError) << text;
  }
}

class ImaginedWorld final : public World {
 public:
  ImaginedWorld(int rank, std::vector<int> nodes) : World(rank, std::move(nodes)) {}
  Communicator& communicator() override { return *alone_; }
  std::unique_ptr<Communicator> make_communicator(Device&) override { return make_self_communicator(); }
  void enter_phase(const char*) override {}
  void set_exit_code(int) override {}
  void fail(ExitCode code, const std::string&, const std::function<void(const std::string&)>&) override { abort(code); }
  void abort(ExitCode) override { std::abort(); }

 private:
  std::unique_ptr<Communicator> alone_ = make_self_communicator();
};

TEST(World, GroupsOfOneNode) {
  const auto ranks_per_node = [](std::vector<int> nodes) {
    std::set<int> found;  // the values of all ranks; all ranks must have the same value
    for (int rank = 0; rank < std::ssize(nodes); ++rank) found.insert(ImaginedWorld(rank, nodes).ranks_per_node());
    EXPECT_EQ(found.size(), 1u);
    return *found.begin();
  };
  EXPECT_EQ(ranks_per_node({0}), 1);
  EXPECT_EQ(ranks_per_node({0, 0, 0}), 3);
  EXPECT_EQ(ranks_per_node({0, 0, 1, 1, 2, 2}), 2);
  EXPECT_EQ(ranks_per_node({0, 1, 0, 1}), 0) << "ranks 0 and 1 are on different nodes";
  EXPECT_EQ(ranks_per_node({0, 0, 1}), 0);
  EXPECT_EQ(ranks_per_node({0, 1, 1}), 0);
  EXPECT_EQ(ImaginedWorld(2, {0, 1, 0, 1}).local_rank(), 1);
  EXPECT_EQ(ImaginedWorld(2, {0, 1, 0, 1}).local_size(), 2);
}

TEST(World, OfOneProcess) {
  const auto world = make_world(std::nullopt, {});
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->local_size(), 1);
  EXPECT_EQ(world->ranks_per_node(), 1);
  check_agreement(world->communicator(), {{"lr", "0.1"}});
}

TEST(World, RanksOfAnotherMpiGetTheRemedy) {
  const Environment hydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  try {
    make_world(detect(hydra), {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("nproc"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("torchrun"), std::string::npos) << error.what();
  }
}

TEST(World, ErrorsThatNameARank) {
  EXPECT_TRUE(names_a_rank("rank 12: disk: is full"));
  for (const char* text : {"", "rank", "rank 1", "rank : x", "rank x: y", "ranks 1: y"})
    EXPECT_FALSE(names_a_rank(text));
}

TEST(SumInOrder, IsTheOrderOfTheInputs) {
  // In f32, (1e8 - 1e8) + 1 is 1. But 1e8 + 1 is rounded to 1e8, so (1e8 + 1) - 1e8 is 0.
  const std::vector<float> a = {1e8f}, b = {-1e8f}, c = {1.0f};
  const auto bytes = [](const std::vector<float>& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  float out = 0;
  sum_in_order({bytes(a), bytes(b), bytes(c)}, reinterpret_cast<std::byte*>(&out), 1, DType::f32);
  EXPECT_EQ(out, 1.0f);
  sum_in_order({bytes(a), bytes(c), bytes(b)}, reinterpret_cast<std::byte*>(&out), 1, DType::f32);
  EXPECT_EQ(out, 0.0f);
}

TEST(SumInOrder, SixteenBitsAreRoundedOnce) {
  // Next to 1, bf16 values are 2^-7 apart (8 significant bits). 1 + 3 · 2^-9 is above the midpoint 1 + 2^-8, so it
  // rounds up to 1 + 2^-7. If each addition were rounded, the sum would stay 1.
  const uint16_t one = f32_to_bf16(1), tiny = f32_to_bf16(0x1p-9f);
  const auto* x = reinterpret_cast<const std::byte*>(&one);
  const auto* y = reinterpret_cast<const std::byte*>(&tiny);
  uint16_t out = 0;
  sum_in_order({x, y, y, y}, reinterpret_cast<std::byte*>(&out), 1, DType::bf16);
  EXPECT_EQ(bf16_to_f32(out), 1 + 0x1p-7f);
}

TEST(SumInOrder, OverflowAndNaNStay) {
  const uint16_t big = f32_to_f16(65504), inf = f32_to_f16(std::numeric_limits<float>::infinity());
  const uint16_t nan = f32_to_f16(std::nanf(""));
  const auto sum = [](uint16_t a, uint16_t b) {
    uint16_t out = 0;
    sum_in_order({reinterpret_cast<const std::byte*>(&a), reinterpret_cast<const std::byte*>(&b)},
                 reinterpret_cast<std::byte*>(&out), 1, DType::f16);
    return f16_to_f32(out);
  };
  EXPECT_TRUE(std::isinf(sum(big, big)));
  EXPECT_TRUE(std::isinf(sum(inf, big)));
  EXPECT_TRUE(std::isnan(sum(nan, big)));
}

TEST(SumInOrder, IntoOneOfTheInputs) {
  std::vector<int32_t> a(5000), b(5000);
  for (int i = 0; i < 5000; ++i) a[static_cast<size_t>(i)] = i, b[static_cast<size_t>(i)] = 2 * i;
  auto* data = reinterpret_cast<std::byte*>(b.data());
  sum_in_order({reinterpret_cast<const std::byte*>(a.data()), data}, data, 5000, DType::i32);
  EXPECT_EQ(b[4999], 3 * 4999);
}

}  // namespace
}  // namespace tessera
