// The process belongs to another program, which uses Tessera as a library. Faults then end no process and print
// nothing.
#pragma once

#include <exception>

namespace tessera {

// From now on, and for the complete process: a failed assertion throws std::logic_error instead of ending the process,
// a thread whose work throws only ends, and messages do not name the command of the process.
void become_library();
bool is_library();

// Keeps the exception of a thread of the library, for the next call of rethrow_lost_failure() on any thread.
void keep_lost_failure(std::exception_ptr failure) noexcept;
// Throws the first kept exception, and forgets it. Does nothing if there is none.
void rethrow_lost_failure();

}  // namespace tessera
