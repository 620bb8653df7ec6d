/// @file
/// The exception of the library.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// What kind of failure an Error is. The program `tessera` has an exit code for each kind.
enum class ErrorKind {
  run = 1,            ///< a failure at run time: a full disk, a diverging run, an exception of another library
  usage = 2,          ///< wrong options, or options that contradict each other
  input = 3,          ///< a bad file or row: data, model, tokenizer, checkpoint
  memory = 4,         ///< the work does not fit into memory, as planned or as allocated
  communication = 5,  ///< other ranks failed or did not answer in time
};

/// The name of a kind: "usage".
TESSERA_API const char* name_of(ErrorKind kind) noexcept;

/// Every failure of the library. After it, all objects can be used again, and other calls still work. The exception
/// of a callback is no Error: it leaves the call unchanged.
class TESSERA_API Error : public std::runtime_error {
 public:
  /// what() becomes "subject: text", or the text alone if there is no subject.
  Error(ErrorKind kind, const std::string& subject, const std::string& text);
  Error(const Error&) noexcept;
  Error& operator=(const Error&) noexcept;
  ~Error() override;

  ErrorKind kind() const noexcept { return kind_; }
  /// The option, file, row or tensor at fault: "learning-rate", "train.jsonl:12". It may be empty.
  const std::string& subject() const noexcept { return texts_->subject; }
  /// What is wrong, and what to do. what() has the subject before it.
  const std::string& text() const noexcept { return texts_->text; }

 private:
  struct Texts {
    std::string subject, text;
  };
  ErrorKind kind_;
  std::shared_ptr<const Texts> texts_;
};

TESSERA_END_NAMESPACE
