#include "tessera/app/job_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tessera/base/error.h"
#include "tessera/launch/slurm_job.h"
#include "tessera/settings/verb_groups.h"

namespace tessera {
namespace {

ResolvedSettings with(std::map<std::string, int64_t> values, Groups groups) {
  SettingSources sources{};
  for (const auto& [name, value] : values) sources.flags.emplace_back(find_setting(name), std::to_string(value));
  return resolve(sources, groups, "", {});
}

// Uses random settings. `local` is --ranks-per-node and `gpus` is --gpus-per-node; 0 means that the flag is not given.
// `most` is the expected number of ranks on a node. It is the same for all nodes of a job, so a job is refused if
// `ranks` is not a multiple of `most`.
TEST(JobCommand, NodesAndRanksOnANodeFitTheRun) {
  std::mt19937 random(5);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto below = [&](unsigned bound) { return static_cast<int64_t>(random() % bound); };
    const int64_t ranks = 1 + below(24), gpus = below(9), local = below(5);
    std::map<std::string, int64_t> run{{"nproc", ranks}}, job;
    if (local > 0) run["ranks_per_node"] = local;
    if (gpus > 0) job["gpus_per_node"] = gpus;
    const int64_t most = std::min({ranks, local > 0 ? local : ranks, gpus > 0 ? gpus : ranks});
    try {
      const Settings s = resources_of_job(with(job, kSlurmVerb), with(run, kRanks | kSharding));
      EXPECT_EQ(s.nodes * ranks_on_a_node(s), ranks);
      EXPECT_EQ(ranks_on_a_node(s), most);
      EXPECT_EQ(s.gpus_per_node, gpus > 0 ? ranks_on_a_node(s) : 0);  // the job gets one GPU for each rank
      ++accepted;
    } catch (const UsageError&) {
      EXPECT_NE(ranks % most, 0);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

TEST(JobCommand, TheSettingsOfTheJobDecideAboutNodes) {
  const auto job = with({{"nodes", 2}, {"ntasks_per_node", 3}}, kSlurmVerb);
  EXPECT_EQ(resources_of_job(job, with({{"nproc", 6}}, kRanks)).nodes, 2);
  EXPECT_EQ(resources_of_job(job, with({}, kRanks)).ntasks_per_node, 3);
  EXPECT_THROW(resources_of_job(job, with({{"nproc", 4}}, kRanks)), UsageError);
  const Settings s =
      resources_of_job(with({{"ntasks_per_node", 2}, {"gpus_per_node", 4}}, kSlurmVerb), with({{"nproc", 6}}, kRanks));
  EXPECT_EQ(s.nodes, 3);
  EXPECT_EQ(s.gpus_per_node, 4);
}

}  // namespace
}  // namespace tessera
