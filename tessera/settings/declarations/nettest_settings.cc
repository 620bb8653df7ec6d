// Declares the settings of network tests, of the checks before a run, and of doctor. Also parses the values of these
// settings.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

// Returns the role of a setting in the group kNettest. The short help of `nettest` shows the setting with `line`.
// The short help of other verbs does not show it.
Role brief_line(const char* line) {
  return brief(kNettest, line, kNettest);
}

Setting message_size(const char* name, int64_t S::*field, const Role& role, const char* help) {
  const auto parse = [](const std::string& text, const std::string& where) {
    return text.empty() || text == "0" ? int64_t{0} : parse_message_size(text, where);
  };
  return parsed(name, field, role, "BYTES", help, parse, [](int64_t bytes) { return bytes_text(bytes); });
}

std::vector<Setting> message_settings() {
  return {
      parsed("collective", &S::collective, brief_line("all, or a list: all_reduce, all_gather, ..."), "WORDS",
             "Collectives to measure: all, or a list of all_reduce, all_gather, reduce_scatter, broadcast",
             parse_collectives, [](const Names& words) { return joined(words, ","); }),
      parsed("sizes", &S::sizes, brief_line("sizes of the messages: 8K,1M,64M"), "BYTES,...",
             "Sizes of the messages, for example 8K,1M,64M. K, M, G and T are powers of 1024; a number without a unit "
             "counts bytes, as in nccl-tests",
             parse_message_sizes, message_sizes_text),
      message_size("min_bytes", &S::min_bytes, brief_line("instead of --sizes: the smallest size"),
                   "Smallest message, instead of --sizes; 0: the same as --max-bytes. Without any size: 4 GiB between "
                   "GPUs, 64 MiB between CPU ranks, or less if memory is short"),
      message_size("max_bytes", &S::max_bytes, brief_line("instead of --sizes: the largest size"),
                   "Largest message, instead of --sizes; 0: the same as --min-bytes"),
      integer("step_factor", &S::step_factor, brief_line("factor from one size to the next"), "N", {2, 1 << 20},
              "Factor from one size to the next, between --min-bytes and --max-bytes", {"stepfactor"}),
  };
}

std::vector<Setting> measurement_settings() {
  return {
      integer("warmup", &S::net_warmup, brief_line("calls before the measurement"), "N", kCount,
              "Calls before the measurement of each size", {"warmup_iters"}),
      integer("iterations", &S::net_iterations, brief_line("calls to measure"), "N", kPositive,
              "Calls to measure for each size", {"iters"}),
      choice("dtype", &S::net_dtype, brief_line("fp32, bf16 or fp16"),
             {{"auto", std::nullopt}, {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
             "Data type of the messages; auto: the type of --precision"),
      real("min_busbw", &S::min_busbw, brief_line("fail below this mean bus bandwidth, in GB/s"), "GB/S",
           kNonNegativeReal,
           "Lowest mean bus bandwidth in GB/s (10^9 bytes); below it the exit code is 5. With --pairs, every pair must "
           "reach it. 0: no limit"),
      boolean("pairs", &S::pairs, brief_line("test each pair of nodes, to find slow ones"),
              "Test each pair of nodes, to find slow ones; on one node, each pair of ranks"),
      boolean("workshop_exit_codes", &S::workshop_exit_codes, kNettest,
              "End with exit code 46 if the bandwidth is below --min-busbw, and with 44 if no result is valid"),
  };
}

std::vector<Setting> check_settings() {
  return {
      choice("preflight", &S::preflight, kPreflight, {{"none", S::Preflight::none}, {"nettest", S::Preflight::nettest}},
             "Check before the model is read. nettest: measure all_reduce between the ranks for a few seconds and "
             "check its data"),
      real("preflight_min_busbw", &S::preflight_min_busbw, kPreflight, "GB/S", kNonNegativeReal,
           "Lowest bus bandwidth for --preflight nettest in GB/s; below it the run ends with exit code 5. 0: no limit"),
      boolean("measure", &S::measure, kMeasure,
              "Measure the speeds of this machine in less than a minute, for the times that tessera plan predicts"),
      text("shared", &S::shared, kShared, "PATH",
           "A folder that all nodes must share, such as the folder of the data; every rank writes a file there and "
           "looks for the files of the others"),
  };
}

}  // namespace

std::vector<Setting> nettest_settings() {
  std::vector<Setting> all;
  for (auto* part : {message_settings, measurement_settings, check_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace tessera::declaring

namespace tessera {

namespace {

// Calls take(item) for each item of a comma-separated list.
template <typename Take>
void for_items(std::string_view text, const Take& take) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view item = text.substr(begin, end - begin);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    take(std::string(item));
    begin = end + 1;
  }
}

}  // namespace

int64_t parse_message_size(std::string_view text, const std::string& where) {
  std::string word(text);
  while (word.ends_with(' ')) word.pop_back();
  const bool has_letter = word.size() > 1 && std::string_view("KMGTkmgt").find(word.back()) != std::string_view::npos;
  const bool has_digit = !word.empty() && word.back() >= '0' && word.back() <= '9';  // bytes, as in nccl-tests
  const int64_t bytes = parse_bytes(word + (has_letter ? "iB" : has_digit ? "B" : ""), where);
  if (bytes == 0) throw UsageError(where, "a message has at least one byte", "Write a size such as 8K, 1M or 64MiB");
  return bytes;
}

std::vector<int64_t> parse_message_sizes(std::string_view text, const std::string& where) {
  std::vector<int64_t> sizes;
  if (text.empty()) return sizes;
  for_items(text, [&](const std::string& item) { sizes.push_back(parse_message_size(item, where)); });
  return sizes;
}

std::string message_sizes_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t bytes : sizes) text += (text.empty() ? "" : ",") + bytes_text(bytes);
  return text;
}

const std::vector<std::string>& all_collectives() {
  static const std::vector<std::string> words{"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
  return words;
}

std::vector<std::string> parse_collectives(std::string_view text, const std::string& where) {
  std::vector<std::string> words;
  for_items(text, [&](const std::string& item) {
    const std::string word = underscored(lower(item));
    const auto& known = all_collectives();
    if (word != "all" && std::ranges::find(known, word) == known.end()) {
      throw UsageError(where, fmt::format("unknown collective {}", quoted_value(item)),
                       fmt::format("Write all, or a list of: {}", joined(known, ", ")));
    }
    for (const std::string& each : word == "all" ? known : std::vector<std::string>{word}) {
      if (std::ranges::find(words, each) == words.end()) words.push_back(each);
    }
  });
  return words;
}

}  // namespace tessera
