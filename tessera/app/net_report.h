// What a network test prints, in the layout of nccl-tests, and its exit codes.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/comm/nettest/net_test.h"
#include "tessera/log/console.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The exit codes of the self-test of KAUST's workshop (docs/workshop.md). Used only with --workshop-exit-codes.
inline constexpr int kWorkshopNoResult = 44, kWorkshopTooSlow = 46;

// Returns the exit code of the process. With --workshop-exit-codes, a failure at run time (1, 4 or 5) becomes 44. In
// all other cases returns `code`.
int with_workshop_codes(const Settings& settings, int code);

// Whether a measurement is good. If it is good, `error` and `remedy` are empty.
struct NetVerdict {
  ExitCode code = ExitCode::kDone;  // or kCommunication
  bool too_slow = false;            // the data is right, but the bandwidth is below the limit
  std::string error{}, remedy{};
};
// `busbw`: the measured bandwidth, and `min_busbw`: its limit, both in GB/s. `num_wrong`: the number of wrong elements
// in the received data. `limit_flag`: the flag that sets `min_busbw`. The error names this flag.
NetVerdict verdict_of(double busbw, int64_t num_wrong, double min_busbw, const std::string& limit_flag);

// The ranks of a test and how they communicate.
struct NetRanks {
  // For each rank, its host and the number of its node. Nodes are numbered from 0, in the order of their lowest ranks.
  std::vector<std::string> hosts;
  std::vector<int> nodes;
  std::string library;  // "NCCL 2.28.3", "Open MPI 4.1.4"
  bool on_gpus = false;
};

// "rank 3", "ranks 0-3", "ranks 0,2,4".
std::string rank_list(const std::vector<int>& ranks);

// The lines of the output, without the last newline.
std::string net_header(const NetRanks& ranks, const NetTest& test);
std::string net_row(const NetResult& result, DType dtype);
std::string net_footer(double busbw, int64_t num_wrong);

// The names of the units that pair tests compare: nodes or ranks, each with its host.
std::vector<std::string> unit_names(const NetRanks& ranks, bool units_are_nodes);
std::string pair_table(const std::vector<NetPairResult>& pairs, const std::vector<std::string>& units,
                       const Terminal& terminal);
// Names the slowest pair. If there are several pairs, also names the unit (node or rank) whose pairs have the lowest
// mean bandwidth.
std::string slowest_lines(const std::vector<NetPairResult>& pairs, const std::vector<std::string>& units);
const NetPairResult& slowest_pair(const std::vector<NetPairResult>& pairs);

Record net_record(const NetResult& result);

}  // namespace tessera
