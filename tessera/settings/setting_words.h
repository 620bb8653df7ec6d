// Values of settings that have a grammar of their own: amounts of bytes, and what is offloaded where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// ASCII letters in lower case.
std::string lower(std::string_view text);

// Reads "32GiB", "25 MB", "1.5KiB", "500000000", "5e8"; units are B, kB MB GB TB (powers of 1000) and KiB MiB GiB TiB
// (of 1024), in any case. Throws UsageError with `where` when it is none of these, no whole number of bytes, negative,
// or too large.
int64_t parse_bytes(std::string_view text, const std::string& where);
// The same amount with the largest unit that divides it: "25MiB", "500MB", "1001".
std::string bytes_text(int64_t bytes);

// Where the optimizer's states, the gradients and the parameters of a rank lie between their uses.
struct Offload {
  enum class Tier { device, host, file };
  Tier optimizer = Tier::device, gradients = Tier::device, parameters = Tier::device;

  bool any() const { return *this != Offload{}; }
  bool uses(Tier tier) const { return optimizer == tier || gradients == tier || parameters == tier; }
  bool operator==(const Offload&) const = default;
};

// Reads "none", or "optimizer", "gradients", "parameters" with commas between them, each with ":host" (the default;
// also
// ":cpu") or ":file" (also ":nvme") after it. Throws UsageError with `where`.
Offload parse_offload(std::string_view text, const std::string& where);
// "none", "optimizer:file,parameters:host"
std::string offload_text(const Offload& offload);

}  // namespace tessera
