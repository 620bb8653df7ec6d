// Values of summary.json and metrics.jsonl by their keys. In tessera/compare, only these functions depend on how a
// record is stored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/report/record.h"

namespace tessera {

// `key` may be a path into nested objects, with dots between the names: "gpu.power_w.mean". These functions do not
// throw: a value of another type counts as absent.
bool has_value(const Record& record, std::string_view key);
bool is_null(const Record& record, std::string_view key);  // the key exists with JSON's null: NaN or infinite
std::optional<double> find_number(const Record& record, std::string_view key);  // only finite numbers
std::vector<double> find_numbers(const Record& record, std::string_view key);   // of a list, or one number
std::string find_text(const Record& record, std::string_view key);
std::string find_texts(const Record& record, std::string_view key);       // of a list: sorted, with commas between them
std::string find_plain_text(const Record& record, std::string_view key);  // a text, number, Boolean or list of these
const Record* find_record(const Record& record, std::string_view key);    // nullptr: none; points into `record`
std::vector<const Record*> find_records(const Record& record, std::string_view key);  // the objects of a list
std::vector<std::string> keys_of(const Record& record);

}  // namespace tessera
