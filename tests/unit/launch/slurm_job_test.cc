#include "tessera/launch/slurm_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

SlurmJob job_in(const std::string& folder) {
  return {.settings = {},
          .mpi = {.family = MpiFlavour::Family::open_mpi, .major = 4},
          .program = "/opt/tessera",
          .arguments = {"train", "run.toml", "--lr", "1e-4"},
          .name = "a",
          .working_folder = folder,
          .job_folder = folder + "/runs",
          .job_file = "a.sbatch",
          .written_by = "tessera"};
}

TEST(SlurmJob, FoldersAsSbatchReadsThem) {
  const std::string plain = slurm_job_text(job_in("/data"));
  EXPECT_THAT(plain, HasSubstr("#SBATCH --chdir=/data\n"));
  EXPECT_THAT(plain, HasSubstr("#SBATCH --output=/data/runs/slurm-%j.log\n"));
  // In --output, sbatch replaces %j with the number of the job. A % in the name of the folder must therefore be written
  // as %%.
  const std::string odd = slurm_job_text(job_in("/my data/50%j#1"));
  EXPECT_THAT(odd, HasSubstr("#SBATCH --chdir=\"/my data/50%j#1\"\n"));
  EXPECT_THAT(odd, HasSubstr("#SBATCH --output=\"/my data/50%%j#1/runs/slurm-%j.log\"\n"));
  for (const char* bad : {"/a\"b", "/a\\b", "/a\nb", "/it's"})
    EXPECT_THROW(slurm_job_text(job_in(bad)), UsageError) << bad;
}

TEST(SlurmJob, TheOptionOfSrunDependsOnTheMpi) {
  SlurmJob job = job_in("/data");
  EXPECT_THAT(slurm_job_text(job), HasSubstr("\nsrun --mpi=pmix "));
  job.mpi.family = MpiFlavour::Family::mpich;
  EXPECT_THAT(slurm_job_text(job), HasSubstr("\nsrun --mpi=pmi2 "));
  job.mpi.family = MpiFlavour::Family::none;
  EXPECT_THAT(slurm_job_text(job), HasSubstr("\nsrun --mpi=none "));
}

TEST(SlurmJob, OneFlagPerLine) {
  EXPECT_THAT(slurm_job_text(job_in("/data")), HasSubstr("  /opt/tessera train run.toml \\\n  --lr 1e-4 || code=$?\n"));
}

TEST(SlurmJob, Secrets) {
  const Environment environment{
      {"WANDB_API_KEY", "0123456789abcdef"}, {"HF_TOKEN", "short"}, {"HOME", "/home/somebody"}};
  const auto is_refused = [&](const std::string& word) {
    try {
      check_no_secrets({"train", word}, environment);
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("0123456789abcdef")));
      return true;
    }
    return false;
  };
  for (const char* word : {"0123456789abcdef", "x=0123456789abcdef", "WANDB_API_KEY=a", "hf_abcdefghijKLMNOPQRST12"})
    EXPECT_TRUE(is_refused(word)) << word;
  for (const char* word : {"short", "--resume=/home/somebody", "hf_cache", "WANDB_API_KEY", "WANDB_API_KEY=", "hf_/a"})
    EXPECT_FALSE(is_refused(word)) << word;
}

}  // namespace
}  // namespace tessera
