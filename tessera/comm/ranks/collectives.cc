#include "tessera/comm/ranks/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/option_names.h"

namespace tessera {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::exchange:
      return "exchange";
  }
  return "?";
}

Call Call::make(Collective collective, DType dtype, int64_t bytes, const char* what, int root) {
  Call call{.collective = collective, .dtype = dtype, .root = root, .bytes = bytes, .what = {}};
  std::strncpy(call.what, what, sizeof call.what - 1);
  return call;
}

bool Call::agrees_with(const Call& other) const {
  return collective == other.collective && dtype == other.dtype && root == other.root &&
         (bytes == other.bytes || collective == Collective::exchange);
}

std::string Call::to_string() const {
  return fmt::format("{} of {}", name_of(collective), what);
}

StatusBoard::Waiting Collectives::waiting(const Call& call) const {
  return {group_.board, group_.world_ranks[static_cast<size_t>(group_.rank)], call.to_string()};
}

std::string Collectives::names_of(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(group_.world_ranks[static_cast<size_t>(ranks[i])]);
  }
  return text;
}

void Collectives::fail(const Call& call, const std::string& what, const std::string& remedy) const {
  throw CommunicationError(names_of({group_.rank}), fmt::format("{}: {}", call.to_string(), what), remedy);
}

void Collectives::fail_waiting(const Call& call, const std::vector<int>& ranks) const {
  fail(call, fmt::format("waited {} s for {}", group_.timeout_s, names_of(ranks)),
       "If a rank is slow but not stuck, give a longer " + option("comm_timeout"));
}

void Collectives::fail_disagreeing(const Call& call, int peer, const Call& theirs) const {
  const auto data = [](const Call& c) {
    const std::string root = c.collective == Collective::broadcast ? fmt::format(" from root {}", c.root) : "";
    return fmt::format("{} bytes of {}{}", c.bytes, tessera::name_of(c.dtype), root);
  };
  fail(call, fmt::format("this rank passes {}, but {} is in {} and passes {}", data(call), names_of({peer}),
                         theirs.to_string(), data(theirs)));
}

}  // namespace tessera
