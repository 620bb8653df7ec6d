// The two streams a person watches. Results go to standard output, everything else to standard error; a status line (a
// progress bar) may stand at the bottom of a terminal, and whatever is printed meanwhile appears whole above it.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// What the screen behind a stream can do.
struct Terminal {
  bool interactive = false;  // a person watches it and lines can be redrawn: a terminal, and TERM is not dumb
  bool color = false;        // interactive, and NO_COLOR is unset or empty (no-color.org)
  bool unicode = false;      // interactive, and the locale's characters are UTF-8
};

// env gives an environment variable's value, null when unset.
Terminal describe_terminal(bool is_tty, const std::function<const char*(const char*)>& env);

class Console {
 public:
  // What happens when standard output cannot be written.
  enum class LostOutput {
    ends_the_verb,  // its purpose is to print: OutputClosedError if nobody reads it any more, else RunError
    is_noted,       // its results lie in files: one warning on standard error, and the verb continues
  };
  struct Stream {
    Terminal terminal;
    std::function<void(std::string_view)> write;  // writes all of it, now
    std::function<int()> columns;                 // the terminal's width, asked anew each time
  };
  Console(Stream out, Stream err) : out_(std::move(out)), err_(std::move(err)) {}

  // Standard output and error of this process. What standard error cannot take is lost.
  // `bars` overrides whether standard error counts as a terminal that a progress bar can be drawn on.
  static Console of_process(std::optional<bool> bars = {}, LostOutput lost_output = LostOutput::ends_the_verb);
  // Prints nothing anywhere: for all ranks but the first.
  static Console muted();

  Console(const Console&) = delete;

  // All four may be called from any thread. A line comes without its newline; it may hold several lines.
  void print(std::string_view line);        // to standard output
  void note(std::string_view line);         // to standard error
  void show_status(std::string_view line);  // replaces the status line; must be narrower than the terminal
  void clear_status();

  const Terminal& out_terminal() const { return out_.terminal; }
  const Terminal& err_terminal() const { return err_.terminal; }
  int err_columns() const { return err_.columns(); }

 private:
  void write_above_status(const Stream& stream, std::string_view line);

  Stream out_, err_;
  std::mutex mutex_;
  std::string status_;  // what stands on the screen; empty: nothing
};

}  // namespace tessera
