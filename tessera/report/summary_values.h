// Looks up values of summary.json and metrics.jsonl by their keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/record.h"

namespace tessera {

// `key` may be a path into nested objects, with dots between the names: "gpu.power_w.mean". These functions do not
// throw. If the value is absent or has an unexpected type, the result is false, nullopt, nullptr or empty.
bool has_value(const Record& record, std::string_view key);
bool is_null(const Record& record, std::string_view key);  // the value is null, which stands for NaN or infinity
// Returns nullopt also for NaN and infinity.
std::optional<double> find_number(const Record& record, std::string_view key);
// The finite numbers of a list. A single number counts as a list of one number.
std::vector<double> find_numbers(const Record& record, std::string_view key);
std::string find_text(const Record& record, std::string_view key);
// The texts of a list, sorted and without duplicates, joined to one text: "a, b".
std::string find_texts(const Record& record, std::string_view key);
// A text, number, Boolean or list of these, as text.
std::string find_plain_text(const Record& record, std::string_view key);
const Record* find_record(const Record& record, std::string_view key);  // nullptr: none; points into `record`
std::vector<const Record*> find_records(const Record& record, std::string_view key);  // the objects of a list
std::vector<std::string> keys_of(const Record& record);

}  // namespace tessera
