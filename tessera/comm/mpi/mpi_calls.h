// The calls of MPI that messages need, as a C interface: MPIs have different binary interfaces, so mpi_calls.c, the
// only file that includes MPI's header, is compiled once for each of them. It is a part of the program, or a module
// that the program opens together with the MPI library of the machine (mpi_library.h).
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { kMpiTextBytes = 8192 };

// Results are those of MPI; 0 is success. A message is known by its position in its batch: 0, 1, … in the order of the
// calls of send() and receive().
struct MpiCalls {
  void (*version)(char* text);  // of the library; may be called before start()
  // Starts MPI for calls from several threads. Returns null or why this is impossible.
  const char* (*start)(int* rank, int* size);
  void (*finish)(void);
  void (*abort)(int exit_code);
  void (*error_text)(int result, char* text);

  void* (*open_batch)(void);
  int (*send)(void* batch, const void* data, int bytes, int rank, int tag);
  int (*receive)(void* batch, void* data, int bytes, int rank, int tag);
  // Writes the positions and the results of the messages that are done since the last call, and returns their number:
  // −1 if there are no others. If MPI itself fails, returns −2 and writes results[0].
  int (*test)(void* batch, int* positions, int* results);
  void (*close_batch)(void* batch);  // gives up the messages that are not done
};

// The calls of the MPI that mpi_calls.c was compiled for.
extern const struct MpiCalls tessera_mpi_calls;

#ifdef __cplusplus
}
#endif
