#include "tessera/comm/mpi_flavour.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Family = MpiFlavour::Family;

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

}  // namespace
}  // namespace tessera
