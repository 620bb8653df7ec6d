#include "tessera/comm/mpi_flavour.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using Family = MpiFlavour::Family;
using ::testing::Contains;
using ::testing::Not;

MpiFlavour open_mpi(int major) {
  return {.family = Family::open_mpi, .major = major};
}

TEST(MpiFlavour, ByWhatLibrariesAndLaunchersSay) {
  const auto expect = [](const char* version, Family family, int major, const char* text) {
    const MpiFlavour flavour = parse_mpi_flavour(version);
    EXPECT_EQ(flavour.family, family) << version;
    EXPECT_EQ(flavour.major, major) << version;
    EXPECT_EQ(flavour.text, text);
  };
  expect("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", Family::open_mpi, 4,
         "Open MPI 4.1.4");
  expect("Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11, repo rev: v5.0.11rc1",
         Family::open_mpi, 5, "Open MPI 5.0.11");
  expect("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n", Family::open_mpi, 5,
         "Open MPI 5.0.11");
  expect("MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n", Family::mpich, 5,
         "MPICH 5.0.2");
  expect("HYDRA build details:\n    Version:                                 4.3.0b1\n", Family::mpich, 4,
         "MPICH 4.3.0b1");
  expect("Intel(R) MPI Library 2021.9 for Linux* OS\n", Family::mpich, 2021, "Intel MPI 2021.9");
  expect("MVAPICH2 Version      :\t2.3.7\n", Family::mpich, 2, "MVAPICH 2.3.7");
  expect("sh: 1: mpirun: not found", Family::none, 0, "");
  expect("", Family::none, 0, "");
}

TEST(MpiFlavour, OfThisBuild) {
#ifdef TESSERA_TEST_MPI
  EXPECT_NE(mpi_flavour().family, Family::none);
  EXPECT_GT(mpi_flavour().major, 0);
#else
  EXPECT_EQ(mpi_flavour().family, Family::none);
#endif
}

TEST(MpiFlavour, LaunchersFitTheirOwnRanks) {
  EXPECT_TRUE(open_mpi(5).fits(open_mpi(5)));
  EXPECT_FALSE(open_mpi(4).fits(open_mpi(5)));
  EXPECT_FALSE(open_mpi(4).fits({.family = Family::mpich, .major = 4}));
  EXPECT_TRUE((MpiFlavour{.family = Family::mpich, .major = 4}.fits({.family = Family::mpich, .major = 5})));
}

TEST(MpiFlavour, OptionsThatEachLauncherKnows) {
  EXPECT_THAT(mpirun_options(open_mpi(4), 3), Contains("--oversubscribe"));
  EXPECT_THAT(mpirun_options(open_mpi(5), 3), Contains(":OVERSUBSCRIBE"));
  EXPECT_THAT(mpirun_options(open_mpi(5), 3), Not(Contains("--oversubscribe")));
  EXPECT_EQ(mpirun_options({.family = Family::mpich, .major = 4}, 3),
            (std::vector<std::string>{"-disable-auto-cleanup", "-n", "3"}));
}

TEST(MpiFlavour, VariablesOfTheUserStay) {
  Environment environment{{"OMPI_MCA_btl", "self,tcp"}};
  add_mpirun_variables(open_mpi(4), environment);
  EXPECT_EQ(environment.at("OMPI_MCA_btl"), "self,tcp");
  EXPECT_EQ(environment.at("OMPI_MCA_plm"), "isolated");
}

TEST(MpiFlavour, DeathsThatLaunchersReport) {
  const auto four = reported_death(
      "----\nmpirun noticed that process rank 12 with PID 0 on node vm exited on signal 9 (Killed).\n----\n");
  ASSERT_TRUE(four);
  EXPECT_EQ(four->rank, 12);
  EXPECT_EQ(four->signal, 9);
  const auto five = reported_death(
      "----\nprterun noticed that process rank 1 with PID 13950 on node vm exited on\nsignal 11 (Segmentation "
      "fault).\n");
  ASSERT_TRUE(five);
  EXPECT_EQ(five->rank, 1);
  EXPECT_EQ(five->signal, 11);
  const auto hydra = reported_death(
      "=====\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 14000 RUNNING AT vm\n=   EXIT CODE: 9\n"
      "=   CLEANING UP REMAINING PROCESSES\n=====\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal "
      "9)\n");
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->pid, 14000);
  EXPECT_FALSE(hydra->rank);
  EXPECT_EQ(hydra->signal, 9);
  const auto brief =
      reported_death("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis typically\n");
  ASSERT_TRUE(brief);
  EXPECT_FALSE(brief->pid);
  EXPECT_EQ(brief->signal, 9);
  EXPECT_FALSE(reported_death("mpirun detected that one or more processes exited with non-zero status"));
  EXPECT_FALSE(reported_death(""));
}

}  // namespace
}  // namespace tessera
