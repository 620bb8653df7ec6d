// How messages name the options of a run. The rooms below `settings` know an option only by its name, such as
// "max_length". A program may install other names: what its users write, and where they wrote it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

// What to write to give an option, for a remedy: "--max-length" in the program, by default the name itself.
std::string option(std::string_view name);
// Where the user gave an option, for the start of an error: "--max-length", "run.toml:3: max_length" or
// "TESSERA_MAX_LENGTH" in the program, by default the name itself.
std::string option_place(std::string_view name);

// The names that the functions above use while this object exists. At most one object exists at a time.
class OptionNames {
 public:
  using Naming = std::function<std::string(std::string_view name)>;
  OptionNames(Naming flag, Naming place);
  ~OptionNames();
  OptionNames(const OptionNames&) = delete;
  OptionNames& operator=(const OptionNames&) = delete;

 private:
  friend std::string option(std::string_view name);
  friend std::string option_place(std::string_view name);
  Naming flag_, place_;
};

// Options that contradict each other.
struct Fault {
  std::string option;  // the name of the option at fault
  std::string what, remedy;
};

}  // namespace tessera
