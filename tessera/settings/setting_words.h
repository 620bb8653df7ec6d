// Parses settings whose text has a special form, and prints them in one canonical form: amounts of bytes, message
// sizes, collectives, offload, checkpointing, trackers, and the place of memory logs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Reads "32GiB", "25 MB", "1.5KiB", "4096B". Units: B; kB, MB, GB, TB (powers of 1000); KiB, MiB, GiB, TiB (powers of
// 1024). Upper and lower case are equal. Only 0 needs no unit. Throws UsageError with `where` if the text has another
// form, or if the amount is negative, too large, or not a whole number of bytes. If only the unit is missing, the error
// proposes `usual_unit`.
int64_t parse_bytes(std::string_view text, const std::string& where, std::string_view usual_unit = "GiB");
// The canonical text of an amount: "25MiB", "500MB". The unit is the one that gives the shortest whole number; of
// several such units, the first of TiB, GiB, MiB, KiB, TB, GB, MB, kB. If no unit gives a whole number, the unit is B:
// "1001B". Zero has no unit: "0".
std::string bytes_text(int64_t bytes);
// An amount as a person writes it: bytes_text() if that is short, otherwise a slightly smaller amount: "81559MiB".
std::string rounded_down_bytes_text(int64_t bytes);

// Reads the size of a message, as parse_bytes() does. Also reads sizes as in nccl-tests: the units K, M, G and T, which
// are powers of 1024, and numbers of bytes without a unit: "8K", "4G", "512". The size must be at least one byte.
int64_t parse_message_size(std::string_view text, const std::string& where);
// Reads a comma-separated list of message sizes. An empty text is an empty list.
std::vector<int64_t> parse_message_sizes(std::string_view text, const std::string& where);
// The canonical text: "8KiB,1MiB".
std::string message_sizes_text(const std::vector<int64_t>& sizes);

// The collectives that a network test knows.
const std::vector<std::string>& all_collectives();
// Reads "all", or a comma-separated list of collectives. Each collective appears at most once in the result. Throws
// UsageError.
std::vector<std::string> parse_collectives(std::string_view text, const std::string& where);

// Returns the text, a date such as "2026-01-31". Throws UsageError with `where`. An empty text is no date.
std::string parse_date(const std::string& text, const std::string& where);

// Reads "none", or a comma-separated list of "optimizer", "gradients" and "parameters". Each word may end with a
// tier: ":host" or ":cpu" for host memory (the default), ":file" or ":nvme" for files. Then may follow how much to
// offload: "=12" (blocks) or "=40%". Throws UsageError with `where`.
Offload parse_offload(std::string_view text, const std::string& where);
// The canonical text: "none", "optimizer:file=40%,parameters:host".
std::string offload_text(const Offload& offload);

// Reads what backward computes again: "none" (also off, false, no), "block" for all blocks (also all, on, true, yes), a
// number of blocks, or a comma-separated list of "block", "mlp" and "attention". Each word of a list may end with a
// number of blocks, as in "mlp=12". Throws UsageError with `where`.
Recomputation parse_checkpointing(std::string_view text, const std::string& where);
// The canonical text: "none", "block", "12", "block=4,mlp=20", "mlp,attention".
std::string checkpointing_text(const Recomputation& recomputation);

// Reads "none", or a comma-separated list of "tensorboard" and "wandb"; "all" means both. Throws UsageError with
// `where`.
TrackerChoice parse_trackers(std::string_view text, const std::string& where);
// The canonical text: "none", "tensorboard,wandb".
std::string tracker_text(const TrackerChoice& choice);

// Reads "FOLDER" or "FOLDER:SECONDS". Throws UsageError with `where` if the folder is empty, or if the part after the
// last colon is not a number of seconds from 0.01 to 86400.
MemoryLogPlace parse_memory_log(std::string_view text, const std::string& where);
// The canonical text: "", "logs:5", "logs:0.5".
std::string memory_log_text(const MemoryLogPlace& place);

// Reads the keys of fields: "messages=dialog,role=speaker"; empty: no field has another key than its name. Throws
// UsageError with `where`. FieldNames::text() is the canonical text.
FieldNames parse_fields(std::string_view text, const std::string& where);

// Parses a fraction greater than 0 and less than 1, or "none", which gives 0. eval_fraction_text() does the opposite.
double parse_eval_fraction(std::string_view text, const std::string& where);
std::string eval_fraction_text(double fraction);

}  // namespace tessera
