#include "tessera/base/option_names.h"

#include <atomic>

#include "tessera/base/error.h"

namespace tessera {

namespace {

std::atomic<const OptionNames*> installed = nullptr;

}  // namespace

OptionNames::OptionNames(Naming flag, Naming place) : flag_(std::move(flag)), place_(std::move(place)) {
  TESSERA_ASSERT(!installed.exchange(this));
}

OptionNames::~OptionNames() {
  installed = nullptr;
}

std::string option(std::string_view name) {
  const OptionNames* const names = installed;
  return names ? names->flag_(name) : std::string(name);
}

std::string option_place(std::string_view name) {
  const OptionNames* const names = installed;
  return names ? names->place_(name) : std::string(name);
}

}  // namespace tessera
