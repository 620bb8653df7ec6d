#include "tessera/data/data_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/data/samples.h"

namespace tessera {

RowCount count_of(const EncodedRow& row) {
  RowCount count{.num_samples = std::ssize(row.samples), .num_tokens = row.num_tokens, .wrong_end = row.wrong_end};
  for (const Sample& sample : row.samples) {
    count.num_used += std::ssize(sample.ids);
    count.has_target = count.has_target || num_targets_of(sample) > 0;
  }
  if (!row.fault.what.empty()) count.fault = &row.fault;
  return count;
}

void DataUse::add(const RowCount& row) {
  if (row.num_samples == 0) {
    ++(row.fault ? rows_too_long : rows_left_out);
    tokens_dropped += row.num_tokens;
    if (row.fault) bad.push_back(*row.fault);
    return;
  }
  ++rows_used;
  num_samples += row.num_samples;
  tokens_used += row.num_used;
  tokens_cut += row.num_tokens - row.num_used;
  rows_cut += row.num_used < row.num_tokens;
  rows_without_loss += !row.has_target;
  rows_without_answer += row.is_unanswerable;
  rows_without_context += row.is_without_context;
  rows_free_answer += row.has_free_answer;
  if (row.wrong_end) {
    ++rows_without_end;
    if (!wrong_end) wrong_end = row.wrong_end;
  }
}

void DataUse::add_malformed(std::vector<BadRow> rows) {
  rows_malformed += num_rows_of(rows);
  bad.insert(bad.end(), std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
}

int64_t num_rows_of(std::span<const BadRow> bad) {
  int64_t count = 0;
  for (const BadRow& row : bad) count += row.num_rows;
  return count;
}

std::string data_name(const std::vector<std::string>& files) {
  if (files.size() < 2) return files.empty() ? "" : files[0];
  return fmt::format("{} and {}", files[0], counted(files.size() - 1, "more file"));
}

std::string place_in_file(const std::string& place, const std::vector<std::string>& files, std::string& named) {
  const std::string* file = nullptr;
  for (const std::string& each : files) {
    const bool is_inside = place == each || place.starts_with(each + ":");
    if (is_inside && (!file || each.size() > file->size())) file = &each;
  }
  if (!file) return place;
  std::string row = place.substr(std::min(file->size() + 1, place.size()));
  if (row.starts_with(' ')) {
    row.erase(0, 1);
  } else if (!row.empty()) {
    const size_t end = std::min(row.find_first_not_of("0123456789"), row.size());
    const bool has_column = end + 1 < row.size() && row[end] == ':' && row[end + 1] != ' ';
    row = fmt::format("line {}{}{}", row.substr(0, end), has_column ? ", column " : "",
                      row.substr(end + (has_column ? 1 : 0)));
  }
  if (*file == named) return row;
  named = *file;
  return row.empty() ? *file : *file + ": " + row;
}

void check_bad_rows(std::span<const BadRow> bad, int64_t num_rows, BadRows policy, double most,
                    const std::vector<std::string>& files) {
  constexpr size_t kShown = 3;
  if (bad.empty()) return;
  if (policy == BadRows::stop) throw InputError(bad[0].place, bad[0].what, bad[0].remedy);
  const int64_t count = num_rows_of(bad);
  const bool all = count == num_rows;
  if (!all && static_cast<double>(count) <= most * static_cast<double>(num_rows)) return;
  std::string what = all && num_rows == 1 ? std::string("its only row cannot be used")
                     : all                ? fmt::format("none of its {} rows can be used", num_rows)
                           : fmt::format("{} of its {} rows cannot be used, and {} is {}", count, num_rows,
                                         option("max_bad_rows"), most);
  std::string named = files.size() == 1 ? files[0] : "";
  for (size_t i = 0; i < std::min(kShown, bad.size()); ++i) {
    const std::string place = place_in_file(bad[i].place, files, named);
    what += fmt::format("{}{}{}{}", i == 0 ? ": " : "; ", place, place.empty() ? "" : ": ", bad[i].what);
  }
  if (bad.size() > kShown) what += "; …";
  std::string remedy = bad[0].remedy.empty() ? "Correct the rows" : bad[0].remedy;
  if (!all) remedy += ". To skip them, raise " + option("max_bad_rows");
  throw InputError(data_name(files), what, remedy);
}

}  // namespace tessera
