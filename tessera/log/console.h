// Standard output and standard error. Results go to standard output, everything else to standard error. A status line
// (a progress bar) may be at the bottom of a terminal. All other output appears above the status line.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// What the screen of an output can show.
struct Terminal {
  bool interactive = false;  // lines can be redrawn: the output is a terminal, and TERM is set and not "dumb"
  bool color = false;        // interactive, and NO_COLOR is unset or empty (no-color.org)
  bool unicode = false;      // interactive, and the locale uses UTF-8
};

// `env` returns the value of an environment variable, or null if the variable is unset.
Terminal describe_terminal(bool is_tty, const std::function<const char*(const char*)>& env);

class Console {
 public:
  // What to do if standard output cannot be written.
  enum class LostOutput {
    ends_the_verb,  // for verbs that only print: throws OutputClosedError if the reader is gone, otherwise RunError
    is_noted,       // for verbs with results in files: prints one warning on standard error and continues
  };
  struct Output {
    Terminal terminal;
    std::function<void(std::string_view)> write;  // writes the complete text immediately
    std::function<int()> columns;                 // the terminal's width, measured at each call
  };
  Console(Output out, Output err) : out_(std::move(out)), err_(std::move(err)) {}

  // Standard output and error of this process. Text that standard error cannot take is lost. `bars` overrides whether
  // standard error counts as a terminal for progress bars.
  static Console of_process(std::optional<bool> bars = {}, LostOutput lost_output = LostOutput::ends_the_verb);
  // Prints nothing. For all ranks except the first.
  static Console muted();

  Console(const Console&) = delete;

  // Any thread may call these five functions. `line` has no newline at its end, but may have several lines.
  void print(std::string_view line);        // to standard output
  void print_part(std::string_view text);   // to standard output, without a newline; not while a status line is shown
  void note(std::string_view line);         // to standard error
  void show_status(std::string_view line);  // replaces the status line; must be narrower than the terminal
  void clear_status();

  const Terminal& out_terminal() const { return out_.terminal; }
  const Terminal& err_terminal() const { return err_.terminal; }
  int err_columns() const { return err_.columns(); }

 private:
  void write_above_status(const Output& output, std::string_view line);

  Output out_, err_;
  std::mutex mutex_;
  std::string status_;  // the status line on the screen; empty: none
};

}  // namespace tessera
