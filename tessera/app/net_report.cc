#include "tessera/app/net_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/log/table.h"

namespace tessera {
namespace {

const char* nccl_name_of(DType dtype) {
  return dtype == DType::f32 ? "float" : dtype == DType::f16 ? "half" : "bfloat16";
}

// The time in microseconds, for a column of seven characters.
std::string time_text(double seconds) {
  const double us = seconds * 1e6;
  return us >= 10000 ? fmt::format("{:.0f}", us) : us >= 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.2f}", us);
}

}  // namespace

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.back() - ranks[0] + 1 == static_cast<int>(ranks.size())) {
    return fmt::format("ranks {}-{}", ranks[0], ranks.back());
  }
  std::string text = "ranks ";
  for (const int rank : ranks) text += fmt::format("{}{}", text.back() == ' ' ? "" : ",", rank);
  return text;
}

int with_workshop_codes(const Settings& settings, int code) {
  const auto is = [code](ExitCode known) { return code == static_cast<int>(known); };
  const bool is_failure = is(ExitCode::kRunFailed) || is(ExitCode::kOutOfMemory) || is(ExitCode::kCommunication);
  return settings.workshop_exit_codes && is_failure ? kWorkshopNoResult : code;
}

NetVerdict verdict_of(double busbw, int64_t num_wrong, double min_busbw, const std::string& limit_flag) {
  if (num_wrong > 0) {
    return {.code = ExitCode::kCommunication,
            .error = fmt::format("{} of the received data {} wrong", counted(num_wrong, "element"),
                                 num_wrong == 1 ? "is" : "are"),
            .remedy = "Do not train on these nodes. Run tessera nettest --pairs to find the faulty node"};
  }
  if (busbw >= min_busbw) return {};
  return {.code = ExitCode::kCommunication,
          .too_slow = true,
          .error = fmt::format("the bus bandwidth {:.4g} GB/s is below {} {} GB/s", busbw, limit_flag,
                               python_repr(min_busbw)),
          .remedy = "Run tessera nettest --pairs to find the slow node"};
}

std::string net_header(const NetRanks& ranks, const NetTest& test) {
  const int num_nodes = *std::max_element(ranks.nodes.begin(), ranks.nodes.end()) + 1;
  std::string text = fmt::format("# tessera nettest: {} on {}, {} on {}\n", counted(ranks.hosts.size(), "rank"),
                                 counted(num_nodes, "node"), ranks.library, ranks.on_gpus ? "GPUs" : "CPUs");
  text += fmt::format("# warm-up {}, iterations {}, data checked before and after; times are means over the ranks\n#\n",
                      test.warmup, test.iterations);
  for (int node = 0; node < num_nodes; ++node) {
    std::vector<int> members;
    for (size_t r = 0; r < ranks.nodes.size(); ++r) {
      if (ranks.nodes[r] == node) members.push_back(static_cast<int>(r));
    }
    text += fmt::format("#  node {}: {}, {}\n", node, ranks.hosts[static_cast<size_t>(members[0])], rank_list(members));
  }
  text += fmt::format("#\n# {:>56}{:>27}\n", "", "in-place");
  text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}\n", "size", "count", "type",
                      "redop", "root", "time", "algbw", "busbw", "#wrong");
  return text + fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}", "(B)", "(elements)", "", "",
                            "", "(us)", "(GB/s)", "(GB/s)");
}

std::string net_row(const NetResult& result, DType dtype) {
  const bool reduces =
      result.collective == NetCollective::all_reduce || result.collective == NetCollective::reduce_scatter;
  const int root = result.collective == NetCollective::broadcast ? 0 : -1;
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6.2f}  {:>6.2f} {:>6}", result.message.bytes,
                     result.message.count, nccl_name_of(dtype), reduces ? "sum" : "none", root,
                     time_text(result.seconds), result.algbw, result.busbw, result.wrong);
}

std::string net_footer(double busbw, int64_t num_wrong) {
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}", num_wrong,
                     num_wrong == 0 ? "OK" : "FAILED", busbw);
}

std::vector<std::string> unit_names(const NetRanks& ranks, bool units_are_nodes) {
  std::vector<std::string> names;
  for (size_t r = 0; r < ranks.hosts.size(); ++r) {
    if (!units_are_nodes) {
      names.push_back(fmt::format("rank {} ({})", r, ranks.hosts[r]));
    } else if (ranks.nodes[r] == static_cast<int>(names.size())) {
      names.push_back(fmt::format("node {} ({})", names.size(), ranks.hosts[r]));
    }
  }
  return names;
}

const NetPairResult& slowest_pair(const std::vector<NetPairResult>& pairs) {
  return *std::min_element(pairs.begin(), pairs.end(), [](const NetPairResult& a, const NetPairResult& b) {
    return a.result.busbw < b.result.busbw;
  });
}

std::string pair_table(const std::vector<NetPairResult>& pairs, const std::vector<std::string>& units,
                       const Terminal& terminal) {
  Table table({{"first"},
               {"second"},
               {"time (us)", Align::kRight},
               {"algbw (GB/s)", Align::kRight},
               {"busbw (GB/s)", Align::kRight},
               {"#wrong", Align::kRight}});
  for (const NetPairResult& pair : pairs) {
    table.row({units[static_cast<size_t>(pair.first)], units[static_cast<size_t>(pair.second)],
               time_text(pair.result.seconds), fmt::format("{:.2f}", pair.result.algbw),
               fmt::format("{:.2f}", pair.result.busbw), fmt::format("{}", pair.result.wrong)});
  }
  return table.render(terminal);
}

std::string slowest_lines(const std::vector<NetPairResult>& pairs, const std::vector<std::string>& units) {
  const NetPairResult& pair = slowest_pair(pairs);
  const SlowUnit slow = slowest_unit(pairs);
  std::string text =
      fmt::format("# Slowest pair         : {} and {}, {:.4g} GB/s", units[static_cast<size_t>(pair.first)],
                  units[static_cast<size_t>(pair.second)], pair.result.busbw);
  if (pairs.size() > 1) {
    text += fmt::format("\n# Slowest on average   : {}, mean of its pairs {:.4g} GB/s",
                        units[static_cast<size_t>(slow.unit)], slow.mean_busbw);
  }
  return text;
}

Record net_record(const NetResult& result) {
  return {{"collective", name_of(result.collective)},
          {"size_bytes", result.message.bytes},
          {"count", result.message.count},
          {"iterations", result.iterations},
          {"time_us", result.seconds * 1e6},
          {"algbw", result.algbw},
          {"busbw", result.busbw},
          {"wrong", result.wrong}};
}

}  // namespace tessera
