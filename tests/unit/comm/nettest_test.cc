// Tests the parts of `tessera nettest` and `tessera doctor` that need no network: message sizes, bandwidths, data with
// known sums, pairs of ranks, clock offsets and environment variables.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tessera/comm/clock_offsets.h"
#include "tessera/comm/communication_variables.h"
#include "tessera/comm/nettest/bandwidth.h"
#include "tessera/comm/nettest/net_test.h"
#include "tessera/comm/nettest/pair_schedule.h"
#include "tessera/comm/nettest/pattern.h"

namespace tessera {
namespace {

constexpr NetCollective kCollectives[] = {NetCollective::all_reduce, NetCollective::all_gather,
                                          NetCollective::reduce_scatter, NetCollective::broadcast};

// The expected factors follow doc/PERFORMANCE.md of nccl-tests.
TEST(Bandwidth, BusFactorsEqualNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(NetCollective::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(NetCollective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(NetCollective::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(NetCollective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(NetCollective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(4'000'000'000, 2), 2);
  EXPECT_EQ(algorithm_bandwidth(1, 0), 0);
}

TEST(Bandwidth, MessagesHaveWholeEqualShards) {
  EXPECT_EQ(message_of(NetCollective::all_reduce, 4 << 20, 4, 3).count, 1 << 20);
  const NetMessage third = message_of(NetCollective::all_gather, 4 << 20, 4, 3);
  EXPECT_EQ(third.count, 349524);  // the bytes of a shard are a multiple of 16
  EXPECT_EQ(third.bytes, 3 * 4 * 349524);
  EXPECT_EQ(message_of(NetCollective::reduce_scatter, 1, 2, 5).bytes, 10);  // at least one element per rank
  std::mt19937_64 source(24);
  for (int i = 0; i < 2000; ++i) {
    const auto bytes = static_cast<int64_t>(1 + source() % (uint64_t{1} << (source() % 40)));
    const size_t element = source() % 2 ? 2 : 4;
    const int ranks = 1 + static_cast<int>(source() % 600);
    const NetCollective collective = kCollectives[source() % 4];
    const NetMessage message = message_of(collective, bytes, element, ranks);
    const bool sharded = collective == NetCollective::all_gather || collective == NetCollective::reduce_scatter;
    EXPECT_EQ(message.num_elems, message.count * (sharded ? ranks : 1));
    EXPECT_EQ(message.bytes, message.num_elems * static_cast<int64_t>(element));
    EXPECT_GE(message.count, 1);
    const int64_t parts = sharded ? ranks : 1, slack = parts * 16;
    EXPECT_LE(message.bytes, std::max(bytes, parts * static_cast<int64_t>(element)));
    EXPECT_GT(message.bytes + slack, bytes);
  }
}

TEST(Bandwidth, SizesGrowByTheFactor) {
  EXPECT_EQ(stepped_sizes(8, 100, 2), (std::vector<int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(stepped_sizes(8, 8, 2), (std::vector<int64_t>{8}));
  EXPECT_EQ(stepped_sizes(9, 8, 2), std::vector<int64_t>{});
  EXPECT_EQ(stepped_sizes(1, INT64_MAX, 1 << 20).size(), 4u);  // without overflow
}

TEST(Bandwidth, TheAverageCoversAllResults) {
  std::vector<NetResult> results(3);
  results[0].busbw = 1;
  results[1].busbw = 2;
  results[2].busbw = 6;
  EXPECT_DOUBLE_EQ(average_busbw(results), 3);
  EXPECT_EQ(average_busbw({}), 0);
}

TEST(Pairs, EveryPairOnceAndDisjointInEachRound) {
  std::mt19937 source(7);
  std::vector<int> sizes{0, 1, 2, 3, 4, 5, 8};
  for (int i = 0; i < 30; ++i) sizes.push_back(static_cast<int>(source() % 130));
  for (const int n : sizes) {
    const auto rounds = pair_rounds(n);
    std::set<Pair> seen;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_TRUE(0 <= a && a < b && b < n) << n << ": " << a << " " << b;
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << n;
        EXPECT_TRUE(seen.emplace(a, b).second) << n << ": " << a << " " << b;
      }
      EXPECT_EQ(round.size(), static_cast<size_t>(n / 2)) << n;
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(n) * static_cast<size_t>(std::max(n - 1, 0)) / 2) << n;
    EXPECT_EQ(rounds.size(), static_cast<size_t>(n < 2 ? 0 : n - 1 + n % 2)) << n;
  }
}

TEST(Pairs, TheSlowUnitIsInTheSlowPairs) {
  std::vector<NetPairResult> pairs;
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) {
      NetResult result;
      result.busbw = a == 3 || b == 3 ? 2 : 10;
      pairs.push_back({a, b, result});
    }
  }
  EXPECT_EQ(slowest_unit(pairs).unit, 3);
  EXPECT_DOUBLE_EQ(slowest_unit(pairs).mean_busbw, 2);
}

TEST(Pattern, SumsAreExactForAnyNumberOfRanks) {
  // limits[t]: dtypes[t] represents all integers from 0 to this limit exactly.
  const int limits[] = {1 << 24, 1 << 11, 1 << 8};
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
  for (const int ranks : {1, 2, 3, 4, 64, 255, 256, 257, 700}) {
    for (int t = 0; t < 3; ++t) {
      const NetPattern pattern(dtypes[t], ranks, 42);
      std::vector<int64_t> share(static_cast<size_t>(ranks));
      for (int64_t i = 0; i < NetPattern::kPeriod; ++i) {
        int sum = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_GE(pattern.term(rank, i), 0);
          sum += pattern.term(rank, i);
          share[static_cast<size_t>(rank)] += pattern.term(rank, i);
        }
        ASSERT_LE(sum, limits[t]) << ranks;
      }
      // Every rank contributes to the sums, so the check of the sums notices a missing rank.
      EXPECT_GT(*std::min_element(share.begin(), share.end()), 100) << ranks;
    }
  }
}

TEST(Pattern, EveryWrongElementIsCounted) {
  std::mt19937_64 source(11);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const NetPattern pattern(dtype, 4, 1);
    const size_t element = size_of(dtype);
    for (int round = 0; round < 20; ++round) {
      const auto begin = static_cast<int64_t>(source() % 100'000), count = static_cast<int64_t>(1 + source() % 40'000);
      std::vector<std::byte> data(static_cast<size_t>(count) * element);
      const auto period = round % 2 ? pattern.sums() : pattern.sent(round);
      write_pattern(data.data(), begin, count, element, period);
      EXPECT_EQ(count_wrong(data.data(), begin, count, element, period), 0);
      EXPECT_GT(count_wrong(data.data(), begin + 1, count, element, period), 0) << count;  // wrong offset
      std::set<size_t> places;
      for (int i = 0; i < 5; ++i) places.insert(source() % static_cast<size_t>(count));
      for (const size_t place : places) data[place * element + source() % element] ^= std::byte{4};
      EXPECT_EQ(count_wrong(data.data(), begin, count, element, period), static_cast<int64_t>(places.size()));
    }
  }
}

TEST(Pattern, SendersDiffer) {
  const NetPattern pattern(DType::bf16, 4, 5);
  for (int64_t i = 0; i < 100; ++i) EXPECT_NE(pattern.sent(0, i), pattern.sent(1, i));
  EXPECT_NE(NetPattern(DType::f32, 4, 5).terms(0), NetPattern(DType::f32, 4, 6).terms(0));
}

TEST(Clocks, TheShortestRoundTripGivesTheOffset) {
  constexpr int64_t kSecond = 1'000'000'000;
  // The other clock is 5 s ahead. In the first exchange, the answer arrives 3 s late. The round trip of the second
  // exchange takes only 2000 ns, so its offset is more accurate.
  const std::vector<ClockExchange> exchanges{{100, 100 + 5 * kSecond + 10, 100 + 3 * kSecond},
                                             {5000, 5000 + 5 * kSecond + 1000, 7000}};
  const ClockOffset offset = offset_of(exchanges);
  EXPECT_NEAR(offset.seconds, 5, 1e-9);
  EXPECT_NEAR(offset.uncertainty, 1e-6, 1e-12);
  EXPECT_TRUE(offset.exceeds(1));
  EXPECT_FALSE((ClockOffset{1.5, 0.6}.exceeds(1)));  // the true offset may be less than 1 s
  EXPECT_TRUE((ClockOffset{-1.5, 0.1}.exceeds(1)));
}

TEST(Variables, AreTheVariablesOfCommunicationWithoutSecrets) {
  const Environment found = communication_variables({{"NCCL_ALGO", "Tree"},
                                                     {"UCX_TLS", "rc"},
                                                     {"OMPI_MCA_btl", "self,vader"},
                                                     {"OMPI_MCA_orte_precondition_transports", "secret"},
                                                     {"OMPI_MCA_ess_base_jobid", "7"},
                                                     {"UCX_ACCESS_TOKEN", "secret"},
                                                     {"HF_TOKEN", "secret"},
                                                     {"PATH", "/bin"}});
  EXPECT_EQ(
      found,
      (Environment{
          {"NCCL_ALGO", "Tree"}, {"OMPI_MCA_btl", "self,vader"}, {"UCX_ACCESS_TOKEN", "(set)"}, {"UCX_TLS", "rc"}}));
}

}  // namespace
}  // namespace tessera
