// Records: JSON objects that keep the order of their keys, for lines on the screen, metrics.jsonl and summary.json. The
// functions below write records as text. Numbers have the form in which Python prints them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

// A JSON value. A record without keys is Record::object(); Record() is null.
using Record = nlohmann::ordered_json;

// A double in the form of Python's repr(), the shortest text that reads back as the same number: 4.0, 1e-05, 1e+16,
// nan.
std::string python_repr(double value);

// Python's round(value, decimals): the decimal number nearest to the exact value, ties to the even digit.
double round_decimals(double value, int decimals);

// One line in the form of a printed Python dict: {'loss': 4.895, 'done': True}.
std::string to_python(const Record& value);

// One line of JSON: {"loss": 4.895, "done": true}. Numbers have the form of python_repr(), so every finite double reads
// back unchanged. NaN and infinities become null, because JSON has no such numbers. Bytes that are not UTF-8 become
// U+FFFD.
std::string to_json(const Record& value);

// Like to_json(), but on several lines, indented by two spaces. Lists of plain values stay on one line. No newline at
// the end.
std::string to_pretty_json(const Record& value);

// Reads a JSON object, such as a line that to_json() made. Throws InputError for any other text. `where`: the file and
// line, for the error.
Record record_from_json(std::string_view text, const std::string& where);

}  // namespace tessera
